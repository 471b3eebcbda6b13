"""Sessions of agents, what each of them works on, and the tokens that they used.

Invariants
    - a session has one row in a project; to start it again continues it, and clears its end;
    - an attribution forgets nothing: what a later one leaves out stays, except the phase of
      another run;
    - tokens only grow;
    - every start, end and attribution is an event.

Callers run these inside a transaction.
"""

import sqlite3

import msgspec

from icd.db.rows import checked, put, select, values
from icd.errors import UnknownSession
from icd.features.events import store as events
from icd.features.events.store import Fact
from icd.values.processes import Writer
from icd.values.wire import INT64, Result

SOURCE = "session"


class Session(Result):
    """`ended_at` is null while it goes on."""

    session_id: str
    project_dir: str
    id: int
    agent_type: str
    model: str | None
    metadata: str | None
    started_at: int
    ended_at: int | None
    input_tokens: int
    output_tokens: int
    cache_creation_tokens: int
    cache_read_tokens: int


class Attribution(Result):
    """What a session works on, as far as was told."""

    session_id: str
    project_dir: str
    bead_id: str | None
    run_id: str | None
    phase: str | None
    updated_at: int


_FIND = select(Session, "sessions", "WHERE session_id = ? AND project_dir = ?")
_NEWEST = select(
    Session,
    "sessions",
    """
WHERE (project_dir = ?1 OR ?1 IS NULL) AND (session_id = ?2 OR ?2 IS NULL)
  AND started_at >= ?3 AND (?4 = 0 OR ended_at IS NULL)
ORDER BY started_at DESC, id DESC LIMIT ?5
""",
)
_NEXT = "UPDATE counters SET value = value + 1 WHERE name = 'sessions' RETURNING value"
PUT = put(Session, "sessions", key=("session_id", "project_dir"))
_END = """
UPDATE sessions SET ended_at = ? WHERE session_id = ? AND ended_at IS NULL RETURNING project_dir
"""
# A sum that does not fit stays at the largest number: tokens are statistics, and must not fail.
_COUNT = """
UPDATE sessions SET
    input_tokens = input_tokens + min(?, {most} - input_tokens),
    output_tokens = output_tokens + min(?, {most} - output_tokens),
    cache_creation_tokens = cache_creation_tokens + min(?, {most} - cache_creation_tokens),
    cache_read_tokens = cache_read_tokens + min(?, {most} - cache_read_tokens)
WHERE session_id = ? AND project_dir = ?
""".format(most=INT64 - 1)
_CURRENT = select(Attribution, "attributions", "WHERE session_id = ? AND project_dir = ?")
PUT_ATTRIBUTION = put(Attribution, "attributions", key=("session_id", "project_dir"))


def start(
    conn: sqlite3.Connection,
    session_id: str,
    project_dir: str,
    *,
    agent_type: str,
    model: str | None,
    metadata: str | None,
    actor: Writer,
    now_ms: int,
) -> Session:
    """What is not told of a session that is known stays as it was."""
    row = conn.execute(_FIND, (session_id, project_dir)).fetchone()
    if row is None:
        (number,) = conn.execute(_NEXT).fetchone()
        kind = agent_type or "claude-code"
        session = Session(
            session_id, project_dir, number, kind, model, metadata, now_ms // 1000, None, 0, 0, 0, 0
        )
    else:
        before = checked(Session, row)
        session = msgspec.structs.replace(
            before,
            agent_type=agent_type or before.agent_type,
            model=model or before.model,
            metadata=metadata or before.metadata,
            ended_at=None,
        )
    conn.execute(PUT, values(session))
    said = {"agent_type": session.agent_type, "model": session.model}
    _tell(conn, "started", session_id, project_dir, said, actor=actor, now_ms=now_ms)
    return session


def attribute(
    conn: sqlite3.Connection,
    session_id: str,
    project_dir: str,
    *,
    bead_id: str | None,
    run_id: str | None,
    phase: str | None,
    actor: Writer,
    now_ms: int,
) -> tuple[int, Attribution]:
    """Note what the session works on; also returns the number of the event."""
    before = current(conn, session_id, project_dir)
    if before is not None:
        is_same_run = run_id in (None, before.run_id)
        phase = phase or (before.phase if is_same_run else None)
        bead_id, run_id = bead_id or before.bead_id, run_id or before.run_id
    told = Attribution(session_id, project_dir, bead_id, run_id, phase, now_ms // 1000)
    conn.execute(PUT_ATTRIBUTION, values(told))
    said = {"bead_id": bead_id, "run_id": run_id, "phase": phase}
    seq = _tell(conn, "attributed", session_id, project_dir, said, actor=actor, now_ms=now_ms)
    return seq, told


def current(conn: sqlite3.Connection, session_id: str, project_dir: str) -> Attribution | None:
    row = conn.execute(_CURRENT, (session_id, project_dir)).fetchone()
    return checked(Attribution, row) if row else None


def end(conn: sqlite3.Connection, session_id: str, *, actor: Writer, now_ms: int) -> int:
    """End the session in every project; how many there were."""
    ended = conn.execute(_END, (now_ms // 1000, session_id)).fetchall()
    if not ended:
        raise UnknownSession(f"no session {session_id} is active")
    for (project_dir,) in ended:
        _tell(conn, "ended", session_id, project_dir, {}, actor=actor, now_ms=now_ms)
    return len(ended)


def add_tokens(
    conn: sqlite3.Connection, session_id: str, project_dir: str, counts: tuple[int, int, int, int]
) -> None:
    if not conn.execute(_COUNT, (*counts, session_id, project_dir)).rowcount:
        raise UnknownSession(f"there is no session {session_id} in {project_dir}")


def newest(
    conn: sqlite3.Connection,
    *,
    project_dir: str | None,
    session_id: str | None,
    since: int,
    active_only: bool,
    limit: int,
) -> list[Session]:
    """Those that started last come first."""
    given = project_dir, session_id, since, active_only, limit
    return [checked(Session, row) for row in conn.execute(_NEWEST, given)]


def _tell(
    conn: sqlite3.Connection,
    change: str,
    session_id: str,
    project_dir: str,
    said: dict[str, str | None],
    *,
    actor: Writer,
    now_ms: int,
) -> int:
    told = {name: value for name, value in said.items() if value is not None}
    fact = Fact(
        SOURCE,
        change,
        run_id=said.get("run_id") or "",
        subject_id=session_id,
        payload=msgspec.json.encode(told).decode(),
        project_dir=project_dir,
    )
    return events.append(conn, fact, actor=actor, now_ms=now_ms)
