"""Removing a legacy file, and only the one that was imported."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from icd.legacy import removal
from icd.legacy.reading import Entry, read
from icd.legacy.removal import remove

DOCUMENT, GUARD = "clavain-dispatch-s1.json", "clavain-stop-s1"


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
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    write(DOCUMENT, b"1")
    entry = only()
    folder.chmod(0o500)

    assert remove(entry) == "cannot be removed: Permission denied"
    folder.chmod(0o700)
    assert left() == [DOCUMENT]


def replace(path, text):
    with open(f"{path}.new", "w", encoding="ascii") as file:
        file.write(text)
    os.rename(f"{path}.new", path)


def overwrite(path, text):
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


@pytest.mark.parametrize("produce", [replace, overwrite])
def test_whatever_a_producer_wrote_last_is_in_the_file_or_was_read_before_its_removal(
    found, folder, produce
):
    path = folder / DOCUMENT
    imported = {"0"}

    def write_many():
        for number in range(1, 2000):
            produce(path, str(number))

    with ThreadPoolExecutor(1) as pool:
        producer = pool.submit(write_many)
        while not producer.done():
            for file in found("dispatch"):
                entry = read(file)
                if isinstance(entry, Entry) and remove(entry) is None:
                    imported.add(entry.payload)
        producer.result()

    assert path.read_text() == "1999" if path.exists() else "1999" in imported
