"""Files that are no sound databases: damaged, cut off, of other shapes, or something else."""

import os
import struct
from itertools import pairwise

from icd.db.database import CAREFUL_BYTES
from tests.torture.repositories.clone import OURS, PAGE, Clone, Primitive

FLIPS = 24
HUGE_BYTES = 1 << 31
INTERIOR, LEAF = 5, 13  # of a table
# A tree without end: so many levels, on each of which one page names the same child this often.
LEVELS, CHILDREN = 8, 200
PAGES_AT = 28  # where the header says how many there are
FIRST = 100  # where the first page's own header begins


def patched(at: int, data: bytes) -> Primitive:
    def make(clone: Clone) -> None:
        content = bytearray(clone.database.read_bytes())
        content[at : at + len(data)] = data
        clone.put(bytes(content))

    return make


def on_page_of(table: str, at: int, data: bytes) -> Primitive:
    """Damage in the root page of a table or an index."""

    def make(clone: Clone) -> None:
        with clone.sql() as conn:
            (root,) = conn.execute(
                "SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)
            ).fetchone()
        patched((root - 1) * PAGE + at, data)(clone)

    return make


def cut(size: int) -> Primitive:
    return lambda clone: clone.put(clone.database.read_bytes()[:size])


def extended(more: bytes) -> Primitive:
    return lambda clone: clone.put(clone.database.read_bytes() + more)


def only(content: bytes) -> Primitive:
    return lambda clone: clone.put(content)


def shaped(name: str = OURS, **shape: object) -> Primitive:
    def make(clone: Clone) -> None:
        clone.sound(name, **shape)

    return make


def flipped(number: int) -> Primitive:
    """Some bytes, anywhere behind the header: by chance, but by the same chance each time."""

    def make(clone: Clone) -> None:
        content = bytearray(clone.database.read_bytes())
        for _ in range(1 + number * 3):
            content[clone.rng.randrange(FIRST, len(content))] = clone.rng.randrange(256)
        clone.put(bytes(content))

    return make


def free_list_loop(clone: Clone) -> None:
    """A list of free pages that leads back to its begin; whoever needs a page walks along it."""
    with clone.sql() as conn:
        conn.execute("CREATE TABLE planted AS SELECT zeroblob(40000)")
    with clone.sql() as conn:
        conn.execute("DROP TABLE planted")
    content = bytearray(clone.database.read_bytes())
    trunk = int.from_bytes(content[32:36], "big")
    assert trunk, "no page is free"
    content[36:40] = struct.pack(">I", 1_000_000)
    content[(trunk - 1) * PAGE :][:8] = b""
    at = (trunk - 1) * PAGE
    content[at : at + 8] = struct.pack(">II", trunk, 0)
    clone.put(bytes(content))


def overflow_loop(clone: Clone) -> None:
    """A long payload whose last page leads back to its first."""
    mark = b"overflowing" * 2000
    with clone.sql() as conn:
        conn.execute(
            "INSERT INTO state VALUES ('dispatch', 'loop', ?, 9, 1, NULL, NULL, NULL, NULL)",
            (f'"{mark.decode()}"',),
        )
    content = bytearray(clone.database.read_bytes())
    pages = [
        number
        for number in range(1, len(content) // PAGE)
        if mark[:60] in content[number * PAGE + 4 : (number + 1) * PAGE]
        and content[number * PAGE] == 0
    ]
    assert pages, "nothing flows over"
    for number in pages:
        content[number * PAGE : number * PAGE + 4] = struct.pack(">I", pages[0] + 1)
    clone.put(bytes(content))


def tree_loop(clone: Clone) -> None:
    """A page of the log of events that is its own child."""
    with clone.sql() as conn:
        (root,) = conn.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'events'"
        ).fetchone()
    head = struct.pack(">BHHHBI", INTERIOR, 0, 0, PAGE, 0, root)
    patched((root - 1) * PAGE, head)(clone)


def endless(table: str) -> Primitive:
    """Our schema to the letter, and a table that no statement comes to the end of.

    The file is too large for a daemon to look at all of its pages first.
    """

    def make(clone: Clone) -> None:
        with clone.sql() as conn:
            (root,) = conn.execute(
                "SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)
            ).fetchone()
        content = bytearray(clone.database.read_bytes())
        content[PAGES_AT : PAGES_AT + 4] = struct.pack(">I", CAREFUL_BYTES // PAGE + 1)
        leaf = content[(root - 1) * PAGE : root * PAGE]
        assert leaf[0] == LEAF, "it has more than one page"
        assert leaf[3:5] != b"\0\0", "it has no rows"
        first = len(content) // PAGE + 1
        content += bytes(LEVELS * PAGE)
        pages = [root, *range(first, first + LEVELS)]
        for page, child in pairwise(pages):
            content[(page - 1) * PAGE : page * PAGE] = interior(child)
        content[-PAGE:] = leaf
        clone.put(bytes(content))
        os.truncate(clone.database, CAREFUL_BYTES + PAGE)

    return make


def interior(child: int) -> bytes:
    cell = struct.pack(">IB", child, 1)
    start = PAGE - len(cell) * CHILDREN
    head = struct.pack(">BHHHBI", INTERIOR, 0, CHILDREN, start, 0, child)
    places = struct.pack(f">{CHILDREN}H", *range(start, PAGE, len(cell)))
    return (head + places).ljust(start, b"\0") + cell * CHILDREN


def schema_loop(clone: Clone) -> None:
    """The first page, on which the schema stands, is its own child."""
    patched(FIRST, struct.pack(">BHHHBI", INTERIOR, 0, 0, PAGE, 0, 1))(clone)


def sparse(clone: Clone) -> None:
    os.truncate(clone.database, HUGE_BYTES)


def sparse_nothing(clone: Clone) -> None:
    clone.put(b"")
    os.truncate(clone.database, HUGE_BYTES)


PRIMITIVES: dict[str, Primitive] = {
    **{f"bytes changed, {number}": flipped(number) for number in range(FLIPS)},
    **{f"pages of {size}": shaped(page_size=size) for size in (512, 1024, 8192, 32768, 65536)},
    **{f"pages of {size} with a log": shaped(page_size=size, wal=True) for size in (512, 65536)},
    "text in UTF-16le": shaped(encoding="UTF-16le"),
    "text in UTF-16be": shaped(encoding="UTF-16be"),
    "auto_vacuum full": shaped(auto_vacuum=1),
    "auto_vacuum incremental": shaped(auto_vacuum=2),
    **{f"sound {name}": shaped(name) for name in ("ours-1001", "ours-1003", "ours-1004")},
    **{f"sound {name}": shaped(name) for name in ("original-1", "original-5", "original-9")},
    "sound": shaped(),
    "sound with a log": shaped(wal=True),
    "schema of the future": patched(60, struct.pack(">I", 9999)),
    "schema of no version": patched(60, struct.pack(">I", 0)),
    "schema of a negative version": patched(60, struct.pack(">i", -1)),
    "mark of no program": patched(68, b"\0\0\0\0"),
    "mark of another program": patched(68, b"evil"),
    "header without its name": patched(0, b"SQLite format 4\0"),
    "header of pages of no size": patched(16, b"\0\0"),
    "header of pages of 3 bytes": patched(16, b"\0\3"),
    "header of reserved bytes": patched(20, b"\xff"),
    "header of unknown writers": patched(18, b"\3\3"),
    "header of unknown readers": patched(18, b"\1\3"),
    "header of too many pages": patched(28, struct.pack(">I", 0x7FFFFFFF)),
    "header of no pages": patched(28, struct.pack(">I", 0)),
    "header of a free list out of reach": patched(32, struct.pack(">II", 0x7FFFFFFF, 7)),
    "header of an unknown schema format": patched(44, struct.pack(">I", 99)),
    "header of an unknown encoding": patched(56, struct.pack(">I", 9)),
    "header that claims to vacuum": patched(52, struct.pack(">II", 5, 1)),
    "header of a huge cache": patched(48, struct.pack(">I", 0x7FFFFFFF)),
    "first page without cells": patched(FIRST, bytes([LEAF, 0, 0, 0, 0])),
    "first page with too many cells": patched(FIRST, b"\x0d\0\0\xff\xff"),
    "first page of another kind": patched(FIRST, b"\x0a"),
    "first page of nothing": patched(FIRST, b"\0" * (PAGE - FIRST)),
    "pages in a loop, free": free_list_loop,
    "pages in a loop, of a value": overflow_loop,
    "pages in a loop, of a table": tree_loop,
    "pages in a loop, of the schema": schema_loop,
    **{f"pages without end of {table}": endless(table) for table in ("runs", "migrations")},
    **{
        f"damage in {table}": on_page_of(table, 0, b"\xff" * 200)
        for table in ("runs", "state", "events", "counters", "migrations", "dispatches")
    },
    **{
        f"cells of {table} out of bounds": on_page_of(table, 8, b"\xff\xf0\0\1\x10\0")
        for table in ("runs", "sentinels", "discoveries")
    },
    **{
        f"cells of {table} of huge size": on_page_of(table, PAGE - 60, b"\xff" * 40)
        for table in ("runs", "state", "leases")
    },
    **{f"cut to {size} bytes": cut(size) for size in (0, 1, 99, 100, 511, 512, 4095, 4096, 4097)},
    "cut in half": lambda clone: clone.put(
        clone.database.read_bytes()[: clone.database.stat().st_size // 2 + 7]
    ),
    "longer by a byte": extended(b"x"),
    "longer by a page": extended(b"x" * PAGE),
    "longer by two gigabytes": sparse,
    "of two empty gigabytes": sparse_nothing,
    "a text": only(b"this is no database\n" * 300),
    "a program": only(b"\x7fELF" + b"\0" * 8000),
    "a script": only(b"#!/bin/sh\ntouch ran\n" * 300),
    "random bytes": lambda clone: clone.put(clone.rng.randbytes(20_000)),
}
