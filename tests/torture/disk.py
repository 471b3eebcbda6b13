"""What a disk may hold after power was lost, from a record of what was asked of it.

A write, a truncation or a name in a directory is certain to be there once it was synced.  Before
that, it may be there or not, by itself, and of a write some sectors may be.
"""

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

SECTOR = 512


@dataclass(frozen=True)
class Record:
    """See recorder.c."""

    kind: str
    offset: int
    path: str
    data: bytes = field(repr=False, default=b"")


def read(file: Path) -> Iterator[Record]:
    """A record that the kill cut off never happened."""
    with file.open("rb") as stream:
        while (head := stream.readline()).endswith(b"\n"):
            kind, offset, length, path = head.decode().rstrip("\n").split(" ", 3)
            data = stream.read(int(length))
            if len(data) == int(length):
                yield Record(kind, int(offset), path, data)


class Disk:
    """`files`: what it held before, all of it synced."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self._synced = {path: bytearray(content) for path, content in files.items()}
        self._certain = set(files)  # whose names are in their directory for good
        self._pending: dict[str, list[Record]] = {}

    def apply(self, record: Record) -> None:
        if record.kind in ("W", "T"):
            self._synced.setdefault(record.path, bytearray())
            self._pending.setdefault(record.path, []).append(record)
        elif record.kind == "S" and record.path in self._synced:
            for change in self._pending.pop(record.path, []):
                _change(self._synced[record.path], change)
        elif record.kind == "S":
            here = [path for path in self._synced if os.path.dirname(path) == record.path]
            self._certain.update(here)
        assert record.kind != "U" or record.path not in self._synced, f"{record} is not foreseen"

    def waiting(self, path: str) -> int:
        """Writes to a file that are not synced.

        A log that is cut short may wait: what it held is in the database by then.
        """
        return sum(change.kind == "W" for change in self._pending.get(path, []))

    def image(self, rng: random.Random) -> dict[str, bytes]:
        """The worst, the best, or anything in between."""
        luck = rng.choice((0.0, 0.5, 1.0))
        found = {}
        for path, synced in self._synced.items():
            if path in self._certain or rng.random() < luck:
                content = bytearray(synced)
                for change in self._pending.get(path, []):
                    if rng.random() < luck:
                        _change(content, change if luck == 1.0 else _torn(change, rng))
                found[path] = bytes(content)
        return found


def _torn(change: Record, rng: random.Random) -> Record:
    if change.kind != "W" or rng.random() < 0.7:
        return change
    kept = rng.randint(0, len(change.data) // SECTOR) * SECTOR
    return Record("W", change.offset, change.path, change.data[:kept])


def _change(content: bytearray, change: Record) -> None:
    if change.kind == "T":
        del content[change.offset :]
        content.extend(bytes(change.offset - len(content)))
    elif change.data:
        content.extend(bytes(max(0, change.offset - len(content))))
        content[change.offset : change.offset + len(change.data)] = change.data
