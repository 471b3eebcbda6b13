"""What can be told of a dispatch from outside, when whoever should tell it may be gone.

Looking at processes and files is done before, by whoever asks; here is what follows from it.  What
was seen counts only if the row has not changed since: a runner that recorded the end and left is
not a runner that was killed.

Callers run these inside a transaction.
"""

import sqlite3

from msgspec import Struct

from icd.features.dispatches import store as dispatches
from icd.features.dispatches import usage
from icd.features.dispatches.store import Count, Dispatch, End
from icd.values.processes import Liveness, Process, Writer

# The exit status of a process that nobody saw end.
UNSEEN = -1
# Whoever creates a dispatch starts its process at once, and if it is killed, the runner says so.
# That takes as long as the database is locked: an agent that runs must not be given up before.
START_MS = 300_000

# Who may be there can still tell.
HOPE = ("alive", "unknown")

LOST = "its process is gone, and nobody recorded how it ended"
NEVER_STARTED = "whoever was about to start it is gone, and nothing was started"


class Subject(Struct, frozen=True, kw_only=True):
    """What to look at."""

    id: str
    version: int
    runner: Process | None
    agent: Process | None


class Progress(Struct, frozen=True):
    """How far a living agent says that it is."""

    turns: Count = 0
    commands: Count = 0
    messages: Count = 0


class Seen(Struct, frozen=True, kw_only=True):
    """What somebody saw of a dispatch from outside, and of which version of it."""

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


def subject(found: Dispatch) -> Subject:
    return Subject(id=found.id, version=found.version, runner=found.runner, agent=found.agent)


def live(conn: sqlite3.Connection) -> list[Subject]:
    """Everything that has not ended."""
    return [subject(found) for found in dispatches.live(conn)]


def observe(
    conn: sqlite3.Connection, dispatch_id: str, seen: Seen, *, actor: Writer, now_ms: int
) -> Dispatch:
    """Draw the conclusions from what was seen from outside; usually there are none."""
    was = dispatches.require(conn, dispatch_id)
    if was.is_over or seen.version != was.version:
        return was
    found = conclusion(was, seen, now_ms=now_ms)
    if found is not None:
        return dispatches.end(conn, found, actor=actor, now_ms=now_ms)[0]
    if seen.progress is None:
        return was
    said = seen.progress
    return usage.set_progress(
        conn, dispatch_id, turns=said.turns, commands=said.commands, messages=said.messages
    )


def conclusion(was: Dispatch, seen: Seen, *, now_ms: int) -> End | None:
    """The end that must have been, by what was seen; None while it may still be told.

    As long as a runner may live, it is the one to tell.  Without one, an agent may go on.
    """
    if seen.runner in HOPE:
        return None
    if seen.end is not None and seen.end.id == was.id:
        return seen.end
    if seen.agent in HOPE:
        return None
    if was.pid is None:  # it may be on its way to us
        is_late = now_ms - was.created_ms >= START_MS
        return _lost(was, NEVER_STARTED) if is_late else None
    return _lost(was, LOST)


def _lost(was: Dispatch, why: str) -> End:
    return End(id=was.id, status="failed", exit_code=UNSEEN, error_message=why)
