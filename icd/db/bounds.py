"""What every connection keeps to: a statement ends, and what a call reads has a size.

Invariants
    - a statement that runs at `stop_at` is stopped there, whatever it computes; but SQLite counts
      a whole table or index in one step, in which it does not look, for `count(*)` without a
      condition: all rows of a table are counted with `count(1)`;
    - rows are counted as they come: beyond `room` no further row of the same call is read;
    - a statement that ends a transaction is never stopped: SQLite looks at the clock once more when
      its work is done, and a COMMIT that took effect would be told as one that did not.

A handler that is set once and reads the moment from here costs nothing per call.
"""

import math
import sqlite3
import time
from collections.abc import Callable
from typing import Any

from icd.errors import ReplyTooLarge

# Steps of SQLite's machine between two looks at the clock: a tenth of a millisecond, if nothing but
# steps are done.  Each look needs Python's lock, for which a busy daemon may make it wait for five
# milliseconds; most calls take fewer steps than this, and never look.
STEPS_BETWEEN_LOOKS = 10_000
# What a row costs beside its texts, in the same unit as a character.
ROW_CHARACTERS = 64
# What one call may read: twice what a page of events holds, and far below what a daemon may use.
RESULT_CHARACTERS = 16 * 1024 * 1024


class Bounds:
    """Those of one connection.  `stop_at` is a moment of the clock that `monotonic` reads."""

    __slots__ = ("monotonic", "room", "stop_at", "taken")

    def __init__(self) -> None:
        self.monotonic: Callable[[], float] = time.monotonic
        self.stop_at = math.inf
        self.room: float = math.inf
        self.taken = 0  # characters that were read since `begin`

    def begin(self, stop_at: float, room: float, monotonic: Callable[[], float]) -> None:
        """Bound what follows, until `end`."""
        self.monotonic, self.stop_at, self.room, self.taken = monotonic, stop_at, room, 0

    def end(self) -> None:
        self.monotonic, self.stop_at, self.room = time.monotonic, math.inf, math.inf

    def is_over(self) -> bool:
        return self.monotonic() >= self.stop_at

    def count(self, _cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """The row as it is, unless it is one too many."""
        taken = self.taken + ROW_CHARACTERS
        for value in row:
            if value.__class__ is str or value.__class__ is bytes:
                taken += len(value)
        self.taken = taken
        if taken > self.room:
            raise ReplyTooLarge(f"the answer has more than {RESULT_CHARACTERS} characters")
        return row


class Connection(sqlite3.Connection):
    """A connection with bounds, none at first."""

    bounds: Bounds

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.bounds = put_on(self)
        self.row_factory = self.bounds.count


def put_on(conn: sqlite3.Connection) -> Bounds:
    """Have a connection look at the clock."""
    found = Bounds()
    conn.set_progress_handler(found.is_over, STEPS_BETWEEN_LOOKS)
    return found


def look_on(conn: Connection) -> None:
    """Look at the clock again, after another handler."""
    conn.set_progress_handler(conn.bounds.is_over, STEPS_BETWEEN_LOOKS)
