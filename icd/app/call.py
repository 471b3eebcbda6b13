"""A call: what a method is given, and what it answers."""

import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec

from icd.config import DEFAULTS, Settings
from icd.db.connection import Progress, untold
from icd.db.database import Database
from icd.db.paths import Where
from icd.values.processes import Writer

if TYPE_CHECKING:
    from icd.app.verb import Method
    from icd.app.write_cache import Recent

DEFAULT_DEADLINE_MS = 5000

RequestId = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


# What a change is about: the first words of a topic stand for all that begin with them.
Topic = tuple[str, ...]
STATE: Topic = ("state",)  # then the key, then the scope
EVENTS: Topic = ("events",)
WRITES: Topic = ("writes",)  # of any kind, also those that are neither rows nor events
ANYTHING: Topic = ()


def _said(description: str) -> msgspec.Meta:
    return msgspec.Meta(description=description)


class Params(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What every method of a database accepts beside its own parameters.

    The docstring of a method's own parameters describes its command, too.  Where a command prints
    or exits, and a method answers, `rpc` describes the method instead.
    """

    rpc: ClassVar[str] = ""
    db: Annotated[
        str | None, _said("Database file (default: the nearest one from cwd upwards).")
    ] = None
    cwd: Annotated[str | None, _said("Caller's directory, as an absolute path.")] = None
    session: Annotated[str | None, _said("Caller's session, recorded with its writes.")] = None
    request_id: Annotated[
        RequestId | None, _said("Request id; a retry with the same id gets the first outcome.")
    ] = None
    deadline_ms: Annotated[int, _said("Deadline of the caller, in milliseconds from now.")] = (
        DEFAULT_DEADLINE_MS
    )


class Context(msgspec.Struct, gc=False):
    """What a method may use.  `recent` is the daemon's memory; a direct call has none."""

    conn: sqlite3.Connection
    path: str
    now_ms: int
    monotonic: float
    writer: Writer
    request_id: str | None
    recent: "Recent | None"
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
    progress: Progress = untold


class Look(msgspec.Struct, gc=False):
    """What a watcher has found, and how to look next."""

    news: Any
    # Nothing that the watcher did not know.
    is_empty: bool
    following: "Params"
    # Look again after this long, even without a write: 0, there is more; None, no need to.
    patience_ms: int | None = None


class Ended(msgspec.Struct, omit_defaults=True, gc=False):
    """How a typed stream came to its end, and the sequence after which to go on."""

    reason: str
    seq: int | None = None


class Call(msgspec.Struct, gc=False):
    """A method about to be run for a caller."""

    method: "Method[Any, Any]"
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
    # Where its answer is put, in a daemon: an object of its own would cost every call.
    ticket: Any = None
    index: int = 0

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
