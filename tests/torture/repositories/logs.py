"""Write-ahead logs and their indexes that a stranger leaves beside a database.

What SQLite sees is the database with its log: a sound file may be another one by its log.
"""

import os
import struct
from collections.abc import Callable

from tests.torture.repositories.clone import PAGE, Clone, Primitive, template
from tests.torture.repositories.journals import KINDS, planted
from tests.torture.repositories.schemas import NO_END, TRIGGERS

LITTLE, BIG = 0x377F0682, 0x377F0683  # the order of bytes in its sums
FORMAT = 3_007_000
SALTS = (0x11223344, 0x55667788)
HUGE_BYTES = 1 << 31
FAR_PAGE = 1 << 18  # a checkpoint that writes it makes a file of a gigabyte

Sum = tuple[int, int]
Frame = tuple[int, bytes, int]  # the page, its content, and the size of the database, or 0


def _sum(data: bytes, start: Sum, order: str) -> Sum:
    one, two = start
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for first, second in zip(words[::2], words[1::2], strict=True):
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    return one, two


def log(
    frames: list[Frame], *, magic: int = LITTLE, page_size: int = PAGE, salts: Sum = SALTS
) -> bytes:
    order = "<" if magic == LITTLE else ">"
    head = struct.pack(">IIIIII", magic, FORMAT, page_size, 0, *SALTS)
    total = _sum(head, (0, 0), order)
    parts = [head, struct.pack(">II", *total)]
    for number, page, size in frames:
        start = struct.pack(">II", number, size)
        total = _sum(start + page, total, order)
        parts += [start, struct.pack(">IIII", *salts, *total), page]
    return b"".join(parts)


def changes(before: bytes, after: bytes, page_size: int = PAGE) -> list[Frame]:
    """The frames that make one database another."""
    numbers = [
        number
        for number in range(len(after) // page_size)
        if after[number * page_size :][:page_size] != before[number * page_size :][:page_size]
    ]
    size = len(after) // page_size
    return [
        (number + 1, after[number * page_size :][:page_size], size if number == numbers[-1] else 0)
        for number in numbers
    ]


def bringing(*statements: str, wal: bool = True, **how: int) -> Primitive:
    """A sound file whose log changes it, as if a program had committed that and died."""

    def make(clone: Clone) -> None:
        before = clone.sound(wal=wal)
        with clone.sql() as conn:
            for statement in statements:
                conn.execute(statement)
        # SQLite made a log of its own and took it back; its header is to say so again.
        after = clone.logged() if wal else clone.database.read_bytes()
        clone.put(before)
        clone.beside("-wal").unlink(missing_ok=True)
        clone.beside("-shm").unlink(missing_ok=True)
        clone.beside("-wal").write_bytes(log(changes(before, after), **how))

    return make


def left(make_content: Callable[[Clone], bytes], *, wal: bool = True) -> Primitive:
    def make(clone: Clone) -> None:
        clone.sound(wal=wal)
        clone.beside("-wal").write_bytes(make_content(clone))

    return make


def _first_page(clone: Clone) -> bytes:
    return clone.database.read_bytes()[:PAGE]


def _pages(clone: Clone) -> int:
    return clone.database.stat().st_size // PAGE


def huge(clone: Clone) -> None:
    clone.sound(wal=True)
    clone.beside("-wal").write_bytes(log([(1, _first_page(clone), _pages(clone))]))
    os.truncate(clone.beside("-wal"), HUGE_BYTES)


def index(content: Callable[[Clone], bytes]) -> Primitive:
    def make(clone: Clone) -> None:
        clone.sound(wal=True)
        clone.beside("-wal").write_bytes(log([(1, _first_page(clone), _pages(clone))]))
        clone.beside("-shm").write_bytes(content(clone))

    return make


def huge_index(clone: Clone) -> None:
    index(lambda _: b"\0" * 32768)(clone)
    os.truncate(clone.beside("-shm"), HUGE_BYTES)


def of_the_original(clone: Clone) -> None:
    """The original's database, which its log makes one of ours with a trigger."""
    before = bytearray(template("original-9"))
    before[18:20] = b"\2\2"
    bringing(TRIGGERS["acts"], wal=True)(clone)
    after = clone.database.read_bytes()
    clone.put(bytes(before))
    clone.beside("-wal").write_bytes(log(changes(bytes(before), after)))


def whole(clone: Clone) -> None:
    """A file of one page, and all the rest in its log."""
    found = clone.sound(wal=True)
    clone.put(found[:PAGE])
    clone.beside("-wal").write_bytes(log(changes(b"", found)))


PRIMITIVES: dict[str, Primitive] = {
    "log that brings a trigger": bringing(TRIGGERS["acts"]),
    "log that brings a trigger, big-endian": bringing(TRIGGERS["acts"], magic=BIG),
    "log that brings a trigger, beside a file without one": bringing(TRIGGERS["acts"], wal=False),
    "log that brings a view": bringing("DROP TABLE state", f"CREATE VIEW state AS {NO_END}"),
    "log that brings a table": bringing("CREATE TABLE planted (a, b)"),
    "log that brings an index": bringing("CREATE INDEX planted ON runs (upper(goal))"),
    "log that brings a later schema": bringing("PRAGMA user_version = 9999"),
    "log that brings an older schema": bringing("PRAGMA user_version = 1002"),
    "log that brings another program's mark": bringing("PRAGMA application_id = 7"),
    "log that brings escapes": bringing(
        "UPDATE runs SET goal = char(27) || '[31mred' || char(155) || char(8238)"
    ),
    "log that is sound": bringing("UPDATE counters SET value = value + 1"),
    "log that empties": left(lambda clone: log([(1, b"\0" * PAGE, 1)])),
    "log that cuts": left(lambda clone: log([(1, _first_page(clone), 1)])),
    "log of a huge database": left(lambda clone: log([(1, _first_page(clone), 0x7FFFFFFF)])),
    "log that grows the file": left(
        lambda clone: log([(1, _first_page(clone), 0), (FAR_PAGE, b"x" * PAGE, FAR_PAGE)])
    ),
    "log of page 0": left(lambda clone: log([(0, b"x" * PAGE, 1)])),
    "log of a page out of reach": left(lambda clone: log([(0xFFFFFFFE, b"x" * PAGE, 1)])),
    "log with other salts": left(
        lambda clone: log([(1, b"x" * PAGE, _pages(clone))], salts=(1, 2))
    ),
    "log with a wrong sum": left(lambda clone: log([(1, b"x" * PAGE, 9)])[:-1] + b"y"),
    "log of other pages": left(lambda clone: log([(1, b"x" * 512, 9)], page_size=512)),
    "log of pages of no size": left(lambda clone: log([], page_size=3)),
    "log without an end": left(lambda clone: log([(1, _first_page(clone), 0)])),
    "log that was cut": left(lambda clone: log([(1, _first_page(clone), 9)])[:-100]),
    "log of a head": left(lambda clone: log([])),
    "log of garbage": left(lambda clone: clone.rng.randbytes(70_000)),
    "log of garbage, beside a file without one": left(
        lambda clone: clone.rng.randbytes(70_000), wal=False
    ),
    "log of one byte": left(lambda clone: b"7"),
    "log of damage": left(
        lambda clone: log([(n, clone.rng.randbytes(PAGE), 9) for n in range(1, 10)])
    ),
    "log with everything": whole,
    "log that makes the original's ours": of_the_original,
    "log that is huge": huge,
    **{f"log is a {kind}": planted(kind, "-wal") for kind in KINDS},
    "index of garbage": index(lambda clone: clone.rng.randbytes(32768)),
    "index of one byte": index(lambda clone: b"x"),
    "index of ones": index(lambda clone: b"\xff" * 32768),
    "index that is huge": huge_index,
    **{f"index is a {kind}": planted(kind, "-shm") for kind in KINDS},
}
