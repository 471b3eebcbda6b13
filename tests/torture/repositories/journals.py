"""Rollback journals that a stranger leaves beside a database.

SQLite takes one for the remains of a crash: it plays it back, and then deletes the super-journal
that its end names, wherever that lies (pager.c: readSuperJournal, pager_playback, pager_delsuper).
"""

import os
import socket
import struct
from collections.abc import Callable

from tests.torture.repositories.clone import PAGE, Clone, Primitive, template

MAGIC = bytes.fromhex("d9d505f920a163d7")
NONCE = 0x01020304
SECTOR = 512
LOCK_PAGE = 0x40000000 // PAGE + 1
HUGE_BYTES = 1 << 31
UNKNOWN = 0xFFFFFFFF  # as many records as the file has room for
SUPERS: dict[str, Callable[[Clone], str]] = {
    "relative": lambda clone: os.path.relpath(clone.precious, clone.root),
    "absolute": lambda clone: str(clone.precious),
    "from the root": lambda clone: str(clone.precious).lstrip("/"),
    "roundabout": lambda clone: f"{clone.root}/../{clone.root.name}/../../precious.txt",
    "another database": lambda clone: str(clone.other),
    "a mirrored file": lambda clone: f"{clone.home}/.interband/clavain/dispatch/others.json",
    "a log": lambda clone: f"{clone.home}/.local/state/intercore/kept",
    "a key": lambda clone: f"{clone.home}/.ssh/id_ed25519",
    "a directory": lambda clone: str(clone.home / "empty"),
    "a file of its own": lambda clone: f"{clone.root}/beside.txt",
}  # fmt: skip


def trailer(name: bytes, lock_page: int = LOCK_PAGE) -> bytes:
    """The record of a super-journal; a sum of signed bytes, as C has them."""
    total = sum(byte - 256 if byte > 127 else byte for byte in name) & 0xFFFFFFFF
    return struct.pack(">I", lock_page) + name + struct.pack(">II", len(name), total) + MAGIC


def header(pages: int, records: int = 0, *, sector: int = SECTOR, page_size: int = PAGE) -> bytes:
    found = MAGIC + struct.pack(">IIIII", records, NONCE, pages, sector, page_size)
    return found.ljust(sector, b"\0")


def record(number: int, page: bytes) -> bytes:
    """A page as it was before the transaction that is to be rolled back."""
    total = (NONCE + sum(page[at] for at in range(len(page) - 200, 0, -200))) & 0xFFFFFFFF
    return struct.pack(">I", number) + page + struct.pack(">I", total)


def _pages(clone: Clone, page_size: int = PAGE) -> int:
    return clone.database.stat().st_size // page_size


def _leave(clone: Clone, content: bytes) -> None:
    clone.beside("-journal").write_bytes(content)


def naming(victim: str, *, wal: bool = False, records: int = 0, **shape: int) -> Primitive:
    """The journal of a transaction over several databases, which names a file of the user's."""

    def make(clone: Clone) -> None:
        found = clone.sound(wal=wal, **({"page_size": shape["page_size"]} if shape else {}))
        size = shape.get("page_size", PAGE)
        body = header(len(found) // size, records, page_size=size)
        if records:
            body += record(1, found[:size])
        lock_page = 0x40000000 // size + 1
        _leave(clone, body + trailer(SUPERS[victim](clone).encode(), lock_page))

    return make


def foreign(clone: Clone) -> None:
    """Beside a database that is not even ours."""
    clone.put(template("original-9"))
    with clone.sql() as conn:
        conn.execute("PRAGMA application_id = 1")
    _leave(clone, header(_pages(clone)) + trailer(str(clone.precious).encode()))


def of_the_original(clone: Clone) -> None:
    clone.put(template("original-9"))
    _leave(clone, header(_pages(clone)) + trailer(str(clone.precious).encode()))


def old(clone: Clone) -> None:
    clone.sound("ours-1002")
    _leave(clone, header(_pages(clone)) + trailer(str(clone.precious).encode()))


def in_parts(clone: Clone) -> None:
    """Two headers: the first transaction was synced in two parts."""
    pages = _pages(clone)
    body = header(pages) + header(pages)
    _leave(clone, body + trailer(os.path.relpath(clone.precious, clone.root).encode()))


def beside_an_empty(clone: Clone) -> None:
    clone.put(b"")
    _leave(clone, header(0) + trailer(str(clone.precious).encode()))


def beside_nothing(clone: Clone) -> None:
    clone.database.unlink()
    _leave(clone, header(0) + trailer(str(clone.precious).encode()))


def beside_a_stump(clone: Clone) -> None:
    clone.put(clone.database.read_bytes()[: PAGE * 2])
    _leave(clone, header(2) + trailer(str(clone.precious).encode()))


def that_empties(clone: Clone) -> None:
    """Rolled back, the database has no page left."""
    _leave(clone, header(0))


def that_grows(clone: Clone) -> None:
    _leave(clone, header(1 << 20))


def that_brings_a_trigger(clone: Clone) -> None:
    """What is judged before it is rolled back is another database than the one after."""
    sound = clone.database.read_bytes()
    with clone.sql() as conn:
        conn.execute("CREATE TRIGGER planted AFTER INSERT ON runs BEGIN SELECT 1; END")
    spoilt = clone.database.read_bytes()
    clone.put(sound)
    changed = [
        (number, spoilt[number * PAGE : (number + 1) * PAGE])
        for number in range(len(spoilt) // PAGE)
        if spoilt[number * PAGE : (number + 1) * PAGE] != sound[number * PAGE : (number + 1) * PAGE]
    ]
    body = b"".join(record(number + 1, page) for number, page in changed)
    _leave(clone, header(len(spoilt) // PAGE, len(changed)) + body)


def without_a_name(clone: Clone) -> None:
    found = clone.database.read_bytes()
    _leave(clone, header(_pages(clone), 1) + record(1, found[:PAGE]))


def with_a_wrong_sum(clone: Clone) -> None:
    end = bytearray(trailer(str(clone.precious).encode()))
    end[-9] ^= 1
    _leave(clone, header(_pages(clone)) + end)


def with_a_long_name(clone: Clone) -> None:
    _leave(clone, header(_pages(clone)) + trailer(b"/" * 300 + str(clone.precious).encode()))


def empty(clone: Clone) -> None:
    _leave(clone, b"")


def zeros(clone: Clone) -> None:
    """As `journal_mode = PERSIST` leaves one that is over."""
    _leave(clone, b"\0" * 512)


def garbage(clone: Clone) -> None:
    _leave(clone, clone.rng.randbytes(5000))


def one_byte(clone: Clone) -> None:
    _leave(clone, b"\xd9")


def counting_records(records: int, sector: int) -> Primitive:
    def make(clone: Clone) -> None:
        _leave(clone, header(_pages(clone), records, sector=sector)[:sector] + b"x" * 9000)

    return make


def huge(clone: Clone) -> None:
    _leave(clone, header(_pages(clone), UNKNOWN))
    os.truncate(clone.beside("-journal"), HUGE_BYTES)


def planted(kind: str, end: str) -> Primitive:
    """Something that is no regular file, in the place of one that SQLite or we open."""

    def make(clone: Clone) -> None:
        place(kind, clone, clone.beside(end))

    return make


def place(kind: str, clone: Clone, path: "os.PathLike[str]") -> None:
    where = os.fspath(path)
    if kind == "pipe":
        os.mkfifo(where, 0o600)
    elif kind == "directory":
        os.mkdir(where)
    elif kind == "socket":
        _listen(where)
    elif kind == "loop":
        os.symlink(os.path.basename(where), where)
    elif kind == "dangling link":
        os.symlink(clone.home / "made-by-a-link", where)
    elif kind == "hard link":
        os.link(clone.precious, where)
    else:
        targets = {
            "link": clone.precious, "link to a device": "/dev/zero", "link to a directory": clone.home,
            "link to another database": clone.other, "link to a password": "/etc/passwd",
        }  # fmt: skip
        os.symlink(targets[kind], where)


def _listen(where: str) -> None:
    """By a short name: a socket's path has little room."""
    before = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.chdir(os.path.dirname(where))
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(os.path.basename(where))
    finally:
        os.fchdir(before)
        os.close(before)


KINDS = ["pipe", "directory", "socket", "link", "dangling link", "link to a device"]

PRIMITIVES: dict[str, Primitive] = {
    **{f"journal that names {victim}": naming(victim) for victim in SUPERS},
    **{
        f"journal that names {victim}, with a log": naming(victim, wal=True)
        for victim in ("relative", "absolute", "from the root")
    },
    "journal with a record that names relative": naming("relative", records=1),
    "journal with a record that names absolute": naming("absolute", records=1),
    "journal of pages of 512 that names absolute": naming("absolute", page_size=512),
    "journal of pages of 65536 that names relative": naming("relative", page_size=65536),
    "journal beside a foreign database": foreign,
    "journal beside the original's": of_the_original,
    "journal beside an old one of ours": old,
    "journal beside an empty file": beside_an_empty,
    "journal beside nothing": beside_nothing,
    "journal beside a stump": beside_a_stump,
    "journal in parts": in_parts,
    "journal that empties": that_empties,
    "journal that grows": that_grows,
    "journal that brings a trigger": that_brings_a_trigger,
    "journal without a name": without_a_name,
    "journal with a wrong sum": with_a_wrong_sum,
    "journal with a long name": with_a_long_name,
    "journal of no bytes": empty,
    "journal of one byte": one_byte,
    "journal of zeros": zeros,
    "journal of garbage": garbage,
    "journal of too many records": counting_records(UNKNOWN, SECTOR),
    "journal of large sectors": counting_records(1, 65536),
    "journal of tiny sectors": counting_records(1, 32),
    "journal that is huge": huge,
    **{f"journal is a {kind}": planted(kind, "-journal") for kind in KINDS},
}
