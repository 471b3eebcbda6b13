"""What can be told of a dispatch from outside, when the runner that should tell it may be gone.

`look` sees its processes and the files that it leaves; `observe` draws the conclusions in the
database, inside a transaction.  What was seen counts only if the row has not changed since: a
runner that recorded the end and left is not a runner that was killed.

Only what is certain counts: a process of another namespace, or a file that cannot be read at the
moment, is unknown.  Files are those of fixed places, regular, our own, and not too large; anything
else that lies there is not there.
"""

import os
import re
import sqlite3
from contextlib import suppress

import msgspec
from msgspec import Struct

from icd.features.dispatches import store
from icd.features.dispatches.runner import output_files
from icd.features.dispatches.runner.record import SPOOL
from icd.features.dispatches.store import Count, Dispatch, End
from icd.values.processes import Liveness, Process, Writer, liveness

# The exit status of a process whose end was not seen.
UNSEEN = -1
# A process is started as soon as its dispatch is created, and if the starter is killed, the runner
# says so.  That takes as long as the database is locked: do not give up a running agent before.
START_MS = 300_000
# An end has a few numbers and sentences, which are cut when they are stored.
SPOOL_BYTES = 1024 * 1024

# A process that may be there can still tell.
HOPE = ("alive", "unknown")

LOST = "its process is gone; its exit status is unknown"
NEVER_STARTED = "its runner is gone; nothing was started"

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")  # those of the original may be anything
_AGE = "SELECT ? - created_ms FROM dispatches WHERE id = ?"
_PROGRESS = """
UPDATE dispatches SET turns = ?1, commands = ?2, messages = ?3, version = version + 1
WHERE id = ?4 AND (turns, commands, messages) <> (?1, ?2, ?3)
"""


class Progress(Struct, frozen=True):
    """How far a living agent says that it is."""

    turns: Count = 0
    commands: Count = 0
    messages: Count = 0


class Seen(Struct, frozen=True, kw_only=True):
    """What a caller saw of a dispatch from outside, and of which version of it."""

    version: int
    runner: Liveness | None = None  # None: there is none to look at
    agent: Liveness | None = None
    end: End | None = None  # in its spool file
    progress: Progress | None = None

    @property
    def is_news(self) -> bool:
        """Something may follow from it; else all is well, or nothing can be told."""
        is_telling = self.end is not None or self.agent not in HOPE
        return self.progress is not None or (self.runner not in HOPE and is_telling)


# --- seen, by a process that is allowed to look ---------------------------------------------------


def look(found: Dispatch, database: str, *, progress: bool = False) -> Seen:
    """Look at the processes first: what a dead runner has to say, it has said by then."""
    runner, agent = _liveness(found.runner), _liveness(found.agent)
    end = None
    if runner not in HOPE:
        try:
            end = _spooled(found.id, database)
        except OSError:
            runner = "unknown"  # it may be there, so nothing follows yet
    counted = output_files.progress(found.pid or 0) if progress and agent == "alive" else None
    return Seen(
        version=found.version,
        runner=runner,
        agent=agent,
        end=end,
        progress=Progress(**counted) if counted else None,
    )


def forget(dispatch_id: str, database: str) -> None:
    """Remove the spool file of an end that was taken over; left there, it does no harm."""
    with suppress(OSError):
        directory = _spool(database)
        try:
            os.unlink(f"{dispatch_id}.json", dir_fd=directory)
        finally:
            os.close(directory)


def _liveness(process: Process | None) -> Liveness | None:
    return None if process is None else liveness(process)


def _spooled(dispatch_id: str, database: str) -> End | None:
    """What the runner left; None if there is nothing that it could have left."""
    if not _ID.fullmatch(dispatch_id):
        return None
    try:
        directory = _spool(database)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        data = output_files.read(f"{dispatch_id}.json", SPOOL_BYTES + 1, dir_fd=directory)
    finally:
        os.close(directory)
    try:
        end = msgspec.json.decode(data, type=End)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return end if end.id == dispatch_id and len(data) <= SPOOL_BYTES else None


def _spool(database: str) -> int:
    path = os.path.join(os.path.dirname(database), SPOOL)
    return os.open(path, output_files.READ_FLAGS | os.O_DIRECTORY)


# --- what follows, in a transaction ---------------------------------------------------------------


def observe(
    conn: sqlite3.Connection, dispatch_id: str, seen: Seen, *, actor: Writer, now_ms: int
) -> Dispatch:
    """Draw the conclusions from what was seen from outside; usually there are none."""
    was = store.require(conn, dispatch_id)
    if was.is_over or seen.version != was.version:
        return was
    end = _conclusion(conn, was, seen, now_ms=now_ms)
    if end is not None:
        return store.end(conn, end, actor=actor, now_ms=now_ms)[0]
    if seen.progress is None:
        return was
    conn.execute(_PROGRESS, (*msgspec.structs.astuple(seen.progress), dispatch_id))
    return store.require(conn, dispatch_id)


def _conclusion(conn: sqlite3.Connection, was: Dispatch, seen: Seen, *, now_ms: int) -> End | None:
    """The end that must have been, by what was seen; None while it may still be told.

    As long as a runner may live, it is the one to tell.  Without one, an agent may go on.
    """
    if seen.runner in HOPE:
        return None
    if seen.end is not None and seen.end.id == was.id:
        return seen.end
    if seen.agent in HOPE:
        return None
    if was.pid is not None:
        return _lost(was, LOST)
    (age_ms,) = conn.execute(_AGE, (now_ms, was.id)).fetchone()
    return _lost(was, NEVER_STARTED) if age_ms >= START_MS else None  # it may be on its way to us


def _lost(was: Dispatch, why: str) -> End:
    return End(id=was.id, status="failed", exit_code=UNSEEN, error_message=why)
