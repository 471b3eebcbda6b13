"""What a method is, and what it is given."""

import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import msgspec

from icd.app.write_cache import Recent
from icd.config import DEFAULTS, Settings
from icd.db.database import Database
from icd.db.paths import Where
from icd.values.processes import Writer

DEFAULT_DEADLINE_MS = 5000

# Told how much is done, and of how much; for people who wait at a terminal.
Progress = Callable[[int, int], None]

RequestId = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


# What a change is about: the first words of a topic stand for all that begin with them.
Topic = tuple[str, ...]
STATE: Topic = ("state",)  # then the key, then the scope
EVENTS: Topic = ("events",)
ANYTHING: Topic = ()


class Clock:
    """The two clocks of the machine; tests bring their own."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


class Params(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What every method of a database accepts beside its own parameters."""

    db: str | None = None
    cwd: str | None = None
    session: str | None = None
    request_id: RequestId | None = None
    deadline_ms: int = DEFAULT_DEADLINE_MS


class Context(msgspec.Struct, gc=False):
    """What a method may use.  `recent` is the daemon's memory; a direct call has none."""

    conn: sqlite3.Connection
    path: str
    now_ms: int
    monotonic: float
    writer: Writer
    request_id: str | None
    recent: Recent | None
    warnings: list[str]
    deadline: float
    settings: Settings = DEFAULTS
    progress: Progress | None = None
    changed: bool = True


class Whole(msgspec.Struct, gc=False):
    """What a method of the whole database may use: under the lock, outside any transaction.

    It opens the database if it needs to, and stops what takes longer than the deadline.
    """

    database: Database
    now_ms: int
    deadline: float


class Look(msgspec.Struct, gc=False):
    """What somebody who watches has found, and how to look next."""

    news: Any
    # Nothing that the watcher did not know.
    is_empty: bool
    following: "Params"
    # Look again after this long, though nobody has written: 0, there is more; None, no need to.
    patience_ms: int | None = None


class Ended(msgspec.Struct, omit_defaults=True, gc=False):
    """How a typed stream came to its end, and the sequence after which to go on."""

    reason: str
    seq: int | None = None


class Method(msgspec.Struct, frozen=True):
    """One verb: how it is called, what it runs, what it answers."""

    name: str
    params: type[Params]
    result: Any
    # Given a Context, or a Whole.  None: answered by the daemon itself, without a database.
    run: Callable[[Any, Any], Any] | None
    # Judges the parameters before anything is locked or opened.
    check: Callable[[Any], None] | None = None
    writes: bool = False
    # A retried write is answered from `core.requests`; False where the verb keeps ids itself.
    keeps_effects: bool = True
    creates: bool = False
    # Its first changing statement decides everything: a failure leaves nothing to undo, so a
    # savepoint (a fifth of the cost of a claim) would buy nothing.
    atomic: bool = False
    # The rows of state, by key and scope, that a call may change; None: nobody can tell.
    touches: Callable[[Any], tuple[tuple[str, str], ...]] | None = None
    # A call may append to the log of events.
    appends: bool = False
    # For methods that are asked again and again: what concerns them; None: all of state.
    hears: Callable[[Any], Topic] | None = None
    # For a typed stream: the notification that brings what each `Look` of `run` has found.
    notifies: str = ""
    # Works on the database as a whole: alone, and given a Whole.
    whole: bool = False
    # Touches files that the caller names, so it runs in the caller's own process only: a daemon
    # would lend its reach to a caller in a sandbox.
    local: bool = False
    # Computes for longer than others may wait: the daemon answers it in several hops, and computes
    # beside the lane (see server/searches.py); a direct call runs it like any other.
    apart: bool = False
    # Loads what takes a while to load, if a call needs it: a process that is there for this call
    # alone does so before it takes the lock.
    warm_up: Callable[[Any], None] | None = None


def no_rows(_params: Params) -> tuple[tuple[str, str], ...]:
    """For methods that write, but never to state."""
    return ()


class Call(msgspec.Struct, gc=False):
    """A method about to be run for somebody."""

    method: Method
    params: Params
    where: Where
    writer: Writer
    deadline: float
    verbose: bool = False
    if_database: bool = False  # a missing one is answered by an exit status of its own
    is_command: bool = False  # of a command line, which prints warnings on stderr
    # Asked by the daemon for itself: the database counts as idle all the same.
    background: bool = False
    # The caller has an answer for a missing database, too: it is not counted as a failure.
    optional: bool = False
    # The peer has others that are answered first: it may be left for later while they are large.
    may_wait: bool = False
    trace: list[str] = []
    ran_at: float = 0.0  # when its method was begun, monotonic; 0 until then
    progress: Progress | None = None

    @property
    def request_id(self) -> str | None:
        return self.params.request_id


class Answer(msgspec.Struct):
    """What came of a call.  `moved`: the caller's database is another one by now; ask there.
    `later`: it was not executed, because its peer has enough to read; see `Call.may_wait`.

    Seen by the garbage collector: an error knows the frames that it passed, and these the answer.
    """

    result: Any = None
    error: Any = None
    warnings: Sequence[str] = ()
    trace: Sequence[str] = ()
    moved: bool = False
    later: bool = False
    size: int = 0  # characters that were read for it
