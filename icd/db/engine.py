"""What the rest of intercore asks of the place where a project's rows are kept.

Two protocols of a connection, in the shape of Python's own `sqlite3`, so that a store is a plain
function of SQL for whatever engine there is; and `Engine`, one project's database as a host holds
it.  Nothing above this package knows which engine it has.

Promises of every engine
    - writers of one project are serial: between `begin(write=True)` and the end of the transaction
      no other writer, here or elsewhere, is in one;
    - a reader sees what some writer left, whole;
    - `begin` tells the time: a moment that is read once the transaction has its turn, from the
      clock that all hosts of this project share;
    - `commit` returns after the transaction is durable; `UnknownOutcome`: it may be or not, and
      nothing of it may be run again; any other exception: nothing of it happened;
    - what an engine cannot do is an error from icd/errors.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from icd.config import Settings
    from icd.db.connection import Bounds
    from icd.db.connection import Connection as OfStores
    from icd.db.database import Database, Debt
    from icd.errors import IcError

Row = tuple[Any, ...]
Values = Sequence[Any] | Mapping[str, Any]


class Cursor(Protocol):
    """What a statement found or did."""

    @property
    def rowcount(self) -> int: ...
    # The number that an INSERT into a table with an ascending number gave its row.
    @property
    def lastrowid(self) -> int | None: ...
    def fetchone(self) -> Any: ...
    def fetchmany(self, size: int | None = 1, /) -> list[Any]: ...
    def fetchall(self) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """Placeholders are `?`, `?1` or `:name`; outside a transaction each statement commits."""

    bounds: Bounds

    @property
    def in_transaction(self) -> bool: ...
    def execute(self, sql: str, parameters: Values = (), /) -> Cursor: ...
    def executemany(self, sql: str, parameters: Iterable[Values], /) -> Cursor: ...
    def set_trace_callback(self, trace: Callable[[str], object] | None, /) -> None: ...


class Engine(Protocol):
    """One project's database, in one host.  Every method but `hold` is called within `hold`."""

    path: str  # that names the project on this machine, whatever lies there
    settings: Settings
    # After so much work a batch is committed, so that others get their turn.
    batch_seconds: float
    # Whether all hosts have this machine's monotonic clock, beside the time that `begin` tells.
    steady: bool
    stop_at: float  # statements that open it are stopped then, monotonic
    reopened: int
    notes: list[str]
    debt: Debt | None
    incidents: list[str]
    identity: tuple[int, int] | None

    @property
    def is_open(self) -> bool: ...
    # How often we noticed writes that are not ours.
    @property
    def foreign(self) -> int: ...
    # A descriptor that can be read when others wrote; None: there is none.
    @property
    def signal(self) -> int | None: ...
    # How long the turn of the last transaction was waited for.
    @property
    def waited_ms(self) -> float: ...
    def hold(self, deadline: float, *, create: bool = False) -> AbstractContextManager[None]: ...
    # The type is the one that the stores declare.
    def connection(self, *, create: bool = False) -> OfStores: ...
    def begin(self, *, write: bool, deadline: float, now_ms: Callable[[], int]) -> int: ...
    def commit(self, *, tells: bool) -> None: ...
    def roll_back(self) -> None: ...
    def others_wrote(self) -> bool: ...
    def is_left_alone(self) -> bool: ...
    def look(self) -> None: ...
    # The time of the clock that `begin` reads.
    def time_ms(self, now_ms: Callable[[], int]) -> int: ...
    def tidy(self) -> None: ...
    # Bytes of what is kept, and of the log that is to be emptied; 0 where that is not known.
    def sizes(self) -> tuple[int, int]: ...
    # The same as files, for those who copy, check or replace files; an error if there are none.
    def files(self) -> Database: ...
    def told(self) -> list[str]: ...
    def owe(self, told: IcError) -> None: ...
    def take_incidents(self) -> list[str]: ...
    def close(self) -> None: ...
    # Let go of what outlives `close`.
    def leave(self) -> None: ...
