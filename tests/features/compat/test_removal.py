"""Removing a legacy file, and only the one that was imported."""

import os
import sys

import pytest

from icd.features.compat.legacy import removal
from icd.features.compat.legacy.removal import remove

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

    assert remove(entry) == "was written again since it was read"
    assert left() == [DOCUMENT]
    assert (folder / DOCUMENT).read_bytes() == b"2"
    assert (folder / DOCUMENT).stat().st_nlink == 1


def test_a_file_that_was_replaced_by_one_of_the_same_time_and_size_is_put_back(
    only, folder, write, left
):
    write(DOCUMENT, b"1", mtime_ms=1000)
    entry = only()
    os.rename(write("new", b"2", mtime_ms=1000), folder / DOCUMENT)

    assert remove(entry) == "was written again since it was read"
    assert (folder / DOCUMENT).read_bytes() == b"2"
    assert left() == [DOCUMENT]


def test_a_guard_directory_that_was_made_anew_is_put_back(only, folder, left):
    (folder / GUARD).mkdir()
    os.utime(folder / GUARD, ns=(0, 1))
    entry = only()
    (folder / GUARD).rmdir()
    (folder / GUARD).mkdir()

    assert remove(entry) == "was written again since it was read"
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

    assert remove(entry) == "was written again since it was read"
    assert os.readlink(path) == b"/etc/passwd"


def test_what_a_producer_put_there_meanwhile_is_not_overwritten(folder, left):
    moved, newer = folder / ".icctl-0", folder / DOCUMENT
    moved.write_bytes(b"moved")
    newer.write_bytes(b"newer")

    removal._put_back(os.fsencode(moved), os.fsencode(newer))

    assert left() == [DOCUMENT]
    assert newer.read_bytes() == b"newer"


def test_a_guard_that_was_claimed_meanwhile_stays_claimed(folder, left):
    moved, newer = folder / ".icctl-0", folder / GUARD
    moved.mkdir()
    newer.touch()

    removal._put_back(os.fsencode(moved), os.fsencode(newer))

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
