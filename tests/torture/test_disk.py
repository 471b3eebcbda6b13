"""What a disk may hold, for suites that cut the power."""

import random
from pathlib import Path

from tests.torture.disk import Disk, Record, read

DB, LOG, DIRECTORY = "/p/.clavain/db", "/p/.clavain/db-wal", "/p/.clavain"


def _images(disk: Disk) -> list[dict[str, bytes]]:
    return [disk.image(random.Random(seed)) for seed in range(60)]


def test_what_was_synced_is_always_there() -> None:
    disk = Disk({DB: b"aaaa"})
    disk.apply(Record("W", 2, DB, b"bbbb"))
    disk.apply(Record("S", 0, DB))

    assert all(image == {DB: b"aabbbb"} for image in _images(disk))
    assert disk.waiting(DB) == 0


def test_what_was_not_synced_may_be_there_or_not() -> None:
    disk = Disk({DB: b"aaaa"})
    disk.apply(Record("W", 0, DB, b"b"))
    disk.apply(Record("T", 2, DB))

    found = {image[DB] for image in _images(disk)}

    assert {b"aaaa", b"baaa", b"aa", b"ba"} >= found >= {b"aaaa", b"ba"}
    assert disk.waiting(DB) == 1  # only what was written


def test_a_sync_of_one_file_says_nothing_about_another() -> None:
    disk = Disk({DB: b"a", LOG: b""})
    disk.apply(Record("W", 0, LOG, b"log"))
    disk.apply(Record("W", 0, DB, b"b"))
    disk.apply(Record("S", 0, DB))

    assert {image[DB] for image in _images(disk)} == {b"b"}
    assert {image[LOG] for image in _images(disk)} == {b"", b"log"}


def test_a_new_file_is_certain_once_its_directory_is_synced() -> None:
    disk = Disk({})
    disk.apply(Record("W", 0, LOG, b"log"))
    disk.apply(Record("S", 0, LOG))

    before = _images(disk)
    disk.apply(Record("S", 0, DIRECTORY))
    after = _images(disk)

    assert {} in before
    assert all(image == {LOG: b"log"} for image in after)


def test_a_record_that_was_cut_off_never_happened(tmp_path: Path) -> None:
    file = tmp_path / "record"
    file.write_bytes(b"W 5 3 /a b\nxyzS 0 0 /a b\nW 0 4 /a b\nxy")

    assert list(read(file)) == [Record("W", 5, "/a b", b"xyz"), Record("S", 0, "/a b")]
