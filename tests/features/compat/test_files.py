"""Reading legacy files where anybody may plant anything."""

import os
import socket
import stat
import sys

import pytest

from icd.features.compat.files import FILE_BYTES, Entry, _put_back, read, remove
from icd.values.payloads import PAYLOAD_BYTES

NOBODY = 65534
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a foreign file")

DOCUMENT, GUARD = "clavain-dispatch-s1.json", "clavain-stop-s1"


def test_a_document_is_read_with_its_scope_and_time(only, write):
    write(DOCUMENT, b' {"a":1}\n', mtime_ms=1_700_000_000_250)

    entry = only()

    assert (entry.scope_id, entry.payload, entry.mtime_ms) == ("s1", '{"a":1}', 1_700_000_000_250)
    assert entry.forgotten == 0


def test_a_guard_is_its_time_and_forgets_what_it_holds(only, write):
    write(GUARD, b"4711\n", mtime_ms=5000)

    entry = only()

    assert (entry.scope_id, entry.payload, entry.mtime_ms, entry.forgotten) == ("s1", None, 5000, 5)


def test_a_guard_need_not_be_readable(only, write):
    os.chmod(write(GUARD), 0)

    assert isinstance(only(), Entry)


def test_an_empty_directory_is_a_guard(only, folder):
    (folder / GUARD).mkdir()
    os.utime(folder / GUARD, ns=(0, 7_000_000_000))

    entry = only()

    assert (entry.payload, entry.mtime_ms, entry.forgotten) == (None, 7000, 0)
    assert entry.identity.kind == stat.S_IFDIR


def test_a_directory_that_holds_something_is_no_guard(only, folder):
    (folder / GUARD / "owner.json").mkdir(parents=True)

    assert only().reason == "is a directory that is not empty"


def test_a_directory_is_no_document(only, folder):
    (folder / DOCUMENT).mkdir()

    assert only().reason == "is a directory"


@pytest.mark.parametrize("name", [DOCUMENT, GUARD])
@pytest.mark.parametrize("target", ["/etc/passwd", "/nonexistent", "."])
def test_a_symbolic_link_is_refused(only, folder, name, target):
    (folder / name).symlink_to(target)

    assert only().reason == "is a symbolic link"


@pytest.mark.parametrize("name", [DOCUMENT, GUARD])
def test_a_pipe_is_refused_at_once(only, folder, name):
    os.mkfifo(folder / name)

    assert only().reason == "is not a regular file"


def test_a_socket_is_refused(only, folder, monkeypatch):
    monkeypatch.chdir(folder)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(GUARD)

        assert only().reason == "is not a regular file"


@pytest.mark.parametrize("name", [DOCUMENT, GUARD])
def test_a_file_with_a_second_name_is_refused(only, folder, write, name):
    os.link(write(name, b"1"), folder / "other")

    assert only().reason == "has a second name (a hard link)"


@root_only
@pytest.mark.parametrize("name", [DOCUMENT, GUARD])
def test_a_file_of_somebody_else_is_refused(only, write, name):
    os.chown(write(name, b"1"), NOBODY, NOBODY)

    assert only().reason == "belongs to another user"


@root_only
def test_a_directory_of_somebody_else_is_refused(only, folder):
    (folder / GUARD).mkdir()
    os.chown(folder / GUARD, NOBODY, NOBODY)

    assert only().reason == "belongs to another user"


def test_a_file_that_is_gone_by_now_is_refused(found, write):
    path = write(DOCUMENT, b"1")
    (file,) = found()
    os.unlink(path)

    assert read(file).reason == "it is gone"


@pytest.mark.parametrize(
    "content, reason",
    [
        (b"", "invalid JSON payload: Expecting value at byte 0"),
        (b"{", "invalid JSON payload"),
        (b"\xff\xfe", "invalid JSON payload: not UTF-8 at byte 0"),
        (b"\0" * 100, "invalid JSON payload"),
        (b"[" * 100_000, "JSON nesting too deep"),
        (b'"' + b"x" * PAYLOAD_BYTES + b'"', "payload too large"),
        (b" " * (FILE_BYTES + 1), f"is larger than {FILE_BYTES} bytes"),
    ],
    ids=range(7),
)
def test_what_is_not_a_payload_is_refused_with_the_reason(only, write, content, reason):
    write(DOCUMENT, content)

    assert only().reason.startswith(reason)


def test_a_secret_is_refused_and_never_repeated(only, write):
    write(DOCUMENT, b'{"note":"ghp_0123456789abcdefghijklmnopqrstuvwxyz"}')

    reason = only().reason

    assert "a GitHub token" in reason
    assert "0123456789" not in reason


@pytest.mark.parametrize(
    "name, reason",
    [
        (b"clavain-stop-\xff\xfe", "its name is not UTF-8"),
        (b"clavain-stop-a\tb", "the scope 'a\\tb' contains control characters"),
        (b"clavain-stop-a\nb", "the scope 'a\\nb' contains control characters"),
        (b"clavain-stop-\x1b[2J", "the scope '\\x1b[2J' contains control characters"),
    ],
)
def test_a_hostile_name_is_refused_on_one_line(only, write, name, reason):
    write(name)

    assert only().reason == reason


def test_the_longest_name_that_a_file_can_have_is_fine(only, write):
    write("clavain-stop-" + "x" * (255 - len("clavain-stop-")))

    assert only().scope_id == "x" * 242


# --- envelopes ------------------------------------------------------------------------------


@pytest.fixture
def envelope(band):
    place = band / "interphase" / "bead"
    place.mkdir(parents=True)

    def written(content):
        (place / "s1.json").write_bytes(content)

    return written


def test_of_an_envelope_the_payload_is_read_as_it_is_written(only, envelope):
    envelope(b'{"version":"1.2.0","namespace":"interphase","payload":{"id": 1,  "id": 2},"x":[]}')

    assert only().payload == '{"id": 1,  "id": 2}'


def test_what_our_mirror_wrote_is_no_legacy(only, envelope):
    envelope(b'{"version":"1.0.0","source":"intercore","payload":{}}')

    refused = only()

    assert (refused.mirrored, refused.reason) == (True, "intercore's own mirror wrote it")


def test_an_envelope_of_another_source_is_legacy(only, envelope):
    envelope(b'{"version":"1.0.0","source":["intercore"],"payload":{}}')

    assert only().payload == "{}"


@pytest.mark.parametrize(
    "content, reason",
    [
        (b"", "is not an interband envelope"),
        (b"[]", "is not an interband envelope"),
        (b'{"version":"1.0.0"}', "is not an interband envelope"),
        (b'{"payload":{}}', "is not an interband envelope"),
        (b'{"version":1,"payload":{}}', "is not an interband envelope"),
        (b"[" * 100_000, "is not an interband envelope"),
        (b'{"version":"\xff","payload":{}}', "is not an interband envelope"),
        (b'{"version":"2.0.0","payload":{}}', "is an interband envelope of another version than 1"),
        (b'{"version":"10.0","payload":{}}', "is an interband envelope of another version than 1"),
        (b'{"version":"1.0.0","payload":[]}', "is an interband envelope whose payload is not an object"),
        (b'{"version":"1.0.0","payload":{"a":"\xff"}}', "invalid JSON payload: not UTF-8 at byte 6"),
        (b'{"version":"1.0.0","payload":{"a":"password=0123456789"}}', "payload contains a likely"),
    ],
)  # fmt: skip
def test_what_is_not_an_envelope_is_refused_with_the_reason(only, envelope, content, reason):
    envelope(content)

    assert only().reason.startswith(reason)


# --- Removing a legacy file, and only the one that was imported -----------------------------------


DOCUMENT, GUARD = "clavain-dispatch-s1.json", "clavain-stop-s1"


_pending = {}


def _interrupt(event, _args):
    action = _pending.pop(event, None)
    if action is not None:
        action()


sys.addaudithook(_interrupt)


@pytest.fixture
def just_before():
    """Have something happen right before the next system call of a kind."""
    yield _pending.__setitem__
    assert _pending == {}


@pytest.fixture
def left(folder):
    """The names that are left in the directory."""
    return lambda: sorted(os.listdir(folder))


@pytest.mark.parametrize("name, content", [(DOCUMENT, b"1"), (GUARD, b"")])
def test_a_file_that_is_as_it_was_read_is_removed(only, write, left, name, content):
    write(name, content)

    assert remove(only()) is None
    assert left() == []


def test_a_guard_directory_is_removed(only, folder, left):
    (folder / GUARD).mkdir()

    assert remove(only()) is None
    assert left() == []


def test_a_file_that_is_gone_already_is_as_good_as_removed(only, write):
    path = write(DOCUMENT, b"1")
    entry = only()
    os.unlink(path)

    assert remove(entry) is None


def test_a_file_that_was_written_again_is_put_back(only, folder, write, left):
    write(DOCUMENT, b"1", mtime_ms=1000)
    entry = only()
    write(DOCUMENT, b"2", mtime_ms=2000)

    assert remove(entry) == "has changed since it was read"
    assert left() == [DOCUMENT]
    assert (folder / DOCUMENT).read_bytes() == b"2"
    assert (folder / DOCUMENT).stat().st_nlink == 1


def test_a_file_that_was_replaced_by_one_of_the_same_time_and_size_is_put_back(
    only, folder, write, left
):
    write(DOCUMENT, b"1", mtime_ms=1000)
    entry = only()
    os.rename(write("new", b"2", mtime_ms=1000), folder / DOCUMENT)

    assert remove(entry) == "has changed since it was read"
    assert (folder / DOCUMENT).read_bytes() == b"2"
    assert left() == [DOCUMENT]


def test_a_guard_directory_that_was_made_anew_is_put_back(only, folder, left):
    (folder / GUARD).mkdir()
    os.utime(folder / GUARD, ns=(0, 1))
    entry = only()
    (folder / GUARD).rmdir()
    (folder / GUARD).mkdir()

    assert remove(entry) == "has changed since it was read"
    assert left() == [GUARD]


def test_a_guard_directory_in_which_something_appeared_is_put_back(only, folder):
    (folder / GUARD).mkdir()
    entry = only()
    (folder / GUARD / "owner.json").write_bytes(b"{}")

    assert remove(entry) is not None
    assert (folder / GUARD / "owner.json").exists()


def test_a_file_that_somebody_has_open_for_writing_is_put_back(only, folder, write, left):
    path = write(DOCUMENT, b"1")
    entry = only()

    with open(path, "r+b"):
        assert remove(entry) == "is being written"

    assert left() == [DOCUMENT]
    assert remove(entry) is None


def test_a_symbolic_link_that_took_the_files_place_is_put_back(only, folder, write):
    path = write(DOCUMENT, b"1")
    entry = only()
    os.unlink(path)
    os.symlink("/etc/passwd", path)

    assert remove(entry) == "has changed since it was read"
    assert os.readlink(path) == b"/etc/passwd"


def test_what_a_producer_put_there_meanwhile_is_not_overwritten(folder, left):
    moved, newer = folder / ".icctl-0", folder / DOCUMENT
    moved.write_bytes(b"moved")
    newer.write_bytes(b"newer")

    _put_back(os.fsencode(moved), os.fsencode(newer))

    assert left() == [DOCUMENT]
    assert newer.read_bytes() == b"newer"


def test_a_guard_that_was_claimed_meanwhile_stays_claimed(folder, left):
    moved, newer = folder / ".icctl-0", folder / GUARD
    moved.mkdir()
    newer.touch()

    _put_back(os.fsencode(moved), os.fsencode(newer))

    assert left() == [GUARD]


def test_a_directory_that_may_not_be_written_to_keeps_its_files(only, write, folder, left):
    write(DOCUMENT, b"1")
    entry = only()
    us = os.geteuid()
    folder.chmod(0o500)
    if us == 0:
        os.seteuid(65_534)  # root may write anywhere

    told = remove(entry)

    os.seteuid(us)
    folder.chmod(0o700)
    assert told == "cannot be removed: Permission denied"
    assert left() == [DOCUMENT]


def replace(path, text):
    with open(f"{path}.new", "w", encoding="ascii") as file:
        file.write(text)
    os.rename(f"{path}.new", path)


def overwrite(path, text):
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


@pytest.mark.parametrize("moment", ["os.rename", "os.remove"])
@pytest.mark.parametrize("produce", [replace, overwrite])
def test_what_a_producer_writes_at_the_last_moment_is_not_removed(
    only, folder, write, left, *, just_before, moment, produce
):
    write(DOCUMENT, b"1")
    entry = only()

    just_before(moment, lambda: produce(folder / DOCUMENT, "2"))
    remove(entry)

    assert (folder / DOCUMENT).read_text() == "2"
    assert left() == [DOCUMENT]


@pytest.mark.parametrize("moment", ["os.rename", "os.rmdir"])
def test_a_guard_that_is_claimed_again_at_the_last_moment_is_not_removed(
    only, folder, left, just_before, moment
):
    (folder / GUARD).mkdir()
    os.utime(folder / GUARD, ns=(0, 1))
    entry = only()

    def claim_again():
        if (folder / GUARD).exists():
            (folder / GUARD).rmdir()
        (folder / GUARD).mkdir()

    just_before(moment, claim_again)
    remove(entry)

    assert left() == [GUARD]


def test_of_two_newer_files_the_newest_stays(only, folder, write, left, just_before):
    write(DOCUMENT, b"1", mtime_ms=1000)
    entry = only()
    write(DOCUMENT, b"2", mtime_ms=2000)

    just_before("os.link", lambda: overwrite(folder / DOCUMENT, "3"))
    remove(entry)

    assert (folder / DOCUMENT).read_text() == "3"
    assert left() == [DOCUMENT]
