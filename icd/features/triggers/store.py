"""Which event goes to which hook next, and how far each hook has come.

Invariants
    - a hook gets the events that concern it in the order of the log, each once;
    - what is being delivered is noted before the hook starts, so that after a crash the same event
      is delivered again, and marked;
    - a hook that has no position yet starts with the next event: the past is not replayed;
    - events of the source `hook` go to no hook, so that a failure is not the cause of the next.

Callers run these inside a transaction; nothing here begins or commits one.  One process
delivers at a time: two would take each other for a crash.
"""

import sqlite3
from collections.abc import Sequence

import msgspec

from icd.features.events import store as events
from icd.values.processes import Writer

# The source whose events a hook gets; None: all of them.  In the order in which hooks get an event.
SOURCES: dict[str, str | None] = {
    "on-phase-advance": "phase",
    "on-dispatch-change": "dispatch",
    "on-discovery": "discovery",
    "on-event": None,
}
NAMES = tuple(SOURCES)
FAILURES = "hook"  # the source of the events that tell how hooks failed
HOOK = "INTERCORE_HOOK"  # in a hook's environment; also tells a direct call there where it is


class Delivery(msgspec.Struct, frozen=True):
    """An event on its way to a hook; `event` is its JSON."""

    hook: str
    seq: int
    source: str
    type: str
    run_id: str
    event: str
    redelivery: bool = False


class Done(msgspec.Struct, frozen=True):
    """A hook has had an event; `problem` says what went wrong, `status` as subprocess has it."""

    hook: str
    seq: int
    run_id: str = ""
    problem: str = ""
    status: int | None = 0


_POSITION = "SELECT seq, started FROM hook_positions WHERE hook = ?"
_BEGIN = """
INSERT INTO hook_positions (hook, seq, started) VALUES (?, ?, 0)
ON CONFLICT (hook) DO UPDATE SET seq = excluded.seq, started = 0
"""
_END = "DELETE FROM hook_positions WHERE hook = ?"
_ALL = "SELECT hook FROM hook_positions"
_START = "UPDATE hook_positions SET started = ? WHERE hook = ?"
# Only what was noted as started: after a restore the number may be another event's.
_DONE = "UPDATE hook_positions SET seq = started, started = 0 WHERE hook = ? AND started = ?"
NEXT = "SELECT seq FROM events WHERE seq > ? AND source <> 'hook' ORDER BY seq LIMIT 1"
NEXT_OF_SOURCE = "SELECT seq FROM events WHERE source = ? AND seq > ? ORDER BY seq LIMIT 1"


# Line breaks stand only between the tokens of a stored payload, the others only inside strings.
_ONE_LINE = str.maketrans({"\n": " ", "\r": " ", "<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def begin(conn: sqlite3.Connection, hooks: Sequence[str]) -> int:
    """Have the hooks start with the next event; the last one that they do not get is returned."""
    head = events.head(conn)
    conn.executemany(_BEGIN, [(hook, head) for hook in hooks])
    return head


def end(conn: sqlite3.Connection, hooks: Sequence[str]) -> None:
    """Forget how far the hooks have come: they are owed nothing any more."""
    conn.executemany(_END, [(hook,) for hook in hooks])


def floor(conn: sqlite3.Connection) -> int | None:
    """The last event that no hook needs any more; None: they have had everything.

    Also what is not being delivered: the daemon may have stopped in the middle.
    """
    found = _next(conn, [hook for (hook,) in conn.execute(_ALL) if hook in SOURCES])
    return None if found is None else found[0] - 1


def is_pending(conn: sqlite3.Connection, hooks: Sequence[str]) -> bool:
    """Whether there is something to deliver, or to begin."""
    positions = [_position(conn, hook) for hook in hooks]
    return None in positions or _next(conn, hooks) is not None


def start_next(conn: sqlite3.Connection, hooks: Sequence[str]) -> Delivery | None:
    """Note that the next delivery to one of the hooks starts; None: they have had everything."""
    begin(conn, [hook for hook in hooks if _position(conn, hook) is None])
    found = _next(conn, hooks)
    if found is None:
        return None
    seq, hook = found
    position = _position(conn, hook)
    redelivery = position is not None and position[1] == seq
    conn.execute(_START, (seq, hook))
    (event,) = events.read(conn, since=seq - 1, limit=1)
    return Delivery(
        hook,
        seq,
        event.source,
        event.type,
        event.run_id,
        _json(event, redelivery=redelivery),
        redelivery,
    )


def finish(conn: sqlite3.Connection, done: Done, *, actor: Writer, now_ms: int) -> None:
    """Note that a delivery is over; a failure is an event of its own."""
    conn.execute(_DONE, (done.hook, done.seq))
    if done.problem:
        about = {"hook": done.hook, "seq": done.seq, "status": done.status}
        fact = events.Fact(
            FAILURES,
            "failed",
            run_id=done.run_id,
            subject_id=done.hook,
            reason=f"{done.hook} {done.problem}",
            payload=msgspec.json.encode(about).decode(),
        )
        events.append(conn, fact, actor=actor, now_ms=now_ms)


def _position(conn: sqlite3.Connection, hook: str) -> tuple[int, int] | None:
    row: tuple[int, int] | None = conn.execute(_POSITION, (hook,)).fetchone()
    return row


def _next(conn: sqlite3.Connection, hooks: Sequence[str]) -> tuple[int, str] | None:
    """The first event that one of the hooks has not had; of several hooks, the first."""
    found = [
        (seq, NAMES.index(hook), hook)
        for hook in hooks
        if (seq := _next_of(conn, hook)) is not None
    ]
    if not found:
        return None
    seq, _order, hook = min(found)
    return seq, hook


def _next_of(conn: sqlite3.Connection, hook: str) -> int | None:
    since, _started = _position(conn, hook) or (events.head(conn), 0)
    source = SOURCES[hook]
    if source is None:
        row = conn.execute(NEXT, (since,)).fetchone()
    else:
        row = conn.execute(NEXT_OF_SOURCE, (source, since)).fetchone()
    return int(row[0]) if row else None


def _json(event: events.Event, *, redelivery: bool) -> str:
    """The line of `events tail`, and at its end whether it may have been delivered before."""
    line = msgspec.json.encode(event).decode().translate(_ONE_LINE)
    return f'{line[:-1]},"redelivery":true}}' if redelivery else line
