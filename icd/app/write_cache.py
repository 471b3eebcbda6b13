"""What the daemon remembers of the last writes, to spare the disk a repetition.

Only an unchanged payload by the same writer inside the window is skipped.  A session is one writer,
however many processes it starts; without a session, a process is.  The memory is dropped
whenever it could be behind the database: another program wrote, a batch failed, the file changed.
"""

from collections import OrderedDict
from typing import Any

from msgspec import Struct, structs

from icd.values.processes import Writer

REMEMBERED = 1024

# A row of state: a struct with key, scope_id, payload and expires_ms.
Row = Any


class _Write(Struct, frozen=True):
    row: Row  # without its payload, of which the fingerprint is enough
    payload: tuple[int, int]
    writer: Writer
    at: float


class Recent:
    """The last write of each (key, scope) that went through this daemon."""

    def __init__(self) -> None:
        self._writes: OrderedDict[tuple[str, str], _Write] = OrderedDict()

    def unchanged(
        self, key: str, scope_id: str, payload: str, writer: Writer, *, window: float, at: float
    ) -> Row:
        """The row that stands, if writing `payload` now would only repeat it; else None."""
        last = self._writes.get((key, scope_id))
        if last is None or last.payload != _fingerprint(payload) or not _same(last.writer, writer):
            return None
        return structs.replace(last.row, payload=payload) if at - last.at < window else None

    def remember(self, row: Row, writer: Writer, *, at: float) -> None:
        """Note a write, at a moment of the monotonic clock.  What expires is never noted."""
        self.forget(row.key, row.scope_id)
        if row.expires_ms is None:
            bare = structs.replace(row, payload="")
            write = _Write(bare, _fingerprint(row.payload), writer, at)
            self._writes[row.key, row.scope_id] = write
            if len(self._writes) > REMEMBERED:
                self._writes.popitem(last=False)

    def forget(self, key: str, scope_id: str) -> None:
        self._writes.pop((key, scope_id), None)

    def clear(self) -> None:
        self._writes.clear()


def _same(one: Writer, other: Writer) -> bool:
    if one.session or other.session:
        return one.session == other.session
    return one.pid == other.pid


def _fingerprint(payload: str) -> tuple[int, int]:
    """64 bits that no caller can aim at, because Python's hash is salted, and the length."""
    return hash(payload), len(payload)
