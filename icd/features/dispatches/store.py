"""Dispatches: an agent's process, what it was started for, and what came of it.

Invariants
    - a status changes along `NEXT` only, so what has ended stays so: the first end wins;
    - every change of status is an event with the run of the dispatch, and a sign of its life;
    - which run a dispatch belongs to is decided once, when it is created;
    - `version` counts the changes of a row.

A cancelled dispatch is over at once, though its process may need a while to die: how that ended,
and what it used until then, is noted when it is known.

Callers run these inside a transaction.
"""

import re
import sqlite3
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field, structs

from icd.db.rows import checked
from icd.errors import AgentTaken, DispatchNotFound, DispatchOver, DispatchRunning
from icd.features.events import store as events
from icd.features.events.store import Fact
from icd.features.runs import store as runs
from icd.features.runs.store import Run
from icd.features.state import store as state
from icd.values.processes import Process, Writer
from icd.values.validation import new_id
from icd.values.wire import INT64, Result, iso, iso_if

Outcome = Literal["completed", "failed", "timeout", "cancelled"]
Count = Annotated[int, Meta(ge=0, le=INT64 - 1)]

# Everything that a dispatch may become next; what has no successors is over.
OUTCOMES = frozenset({"completed", "failed", "timeout", "cancelled"})
NEXT: dict[str, frozenset[str]] = {
    "": frozenset({"spawned"}),
    "spawned": OUTCOMES | {"running"},
    "running": OUTCOMES,
    "completed": frozenset(),
    "failed": frozenset(),
    "timeout": frozenset(),
    "cancelled": frozenset(),
}

# What an agent says about itself in a word or a sentence: the rest is in its files.
TEXT_CHARACTERS = 4096

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class Dispatch(Result):
    """A row, and what the API shows of it; the last three fields are derived."""

    id: str
    status: str
    agent_type: str
    project_dir: str
    turns: int
    commands: int
    messages: int
    input_tokens: int = field(name="in_tokens")
    output_tokens: int = field(name="out_tokens")
    created_at: int
    version: int
    run_id: str | None = None
    scope_id: str | None = None
    parent_id: str | None = None
    name: str | None = None
    model: str | None = None
    sandbox: str | None = None
    prompt_file: str | None = None
    prompt_hash: str | None = None
    output_file: str | None = None
    verdict_file: str | None = None
    timeout_ms: int | None = None
    runner_pid: int | None = None
    runner_start: int | None = None
    pid: int | None = None
    pid_start: int | None = None
    boot: str | None = None
    pidns: str | None = None
    exit_code: int | None = None
    verdict_status: str | None = None
    verdict_summary: str | None = None
    error_message: str | None = None
    cache_hits: int | None = None
    session: str | None = None
    started_at: int | None = None
    completed_at: int | None = None
    created_at_iso: str = ""
    started_at_iso: str | None = None
    completed_at_iso: str | None = None

    def __post_init__(self) -> None:
        self.created_at_iso = iso(self.created_at)
        self.started_at_iso = iso_if(self.started_at)
        self.completed_at_iso = iso_if(self.completed_at)

    @property
    def is_over(self) -> bool:
        return not NEXT.get(self.status)  # a word that is not ours leads nowhere

    @property
    def runner(self) -> Process | None:
        """The process that waits for the agent; before that is known, the one about to start it."""
        return self._process(self.runner_pid, self.runner_start)

    @property
    def agent(self) -> Process | None:
        return self._process(self.pid, self.pid_start)

    def _process(self, pid: int | None, start: int | None) -> Process | None:
        return None if pid is None else Process(pid, start or 0, self.boot or "", self.pidns or "")


class End(Struct, frozen=True, kw_only=True):
    """How a dispatch ended: what its runner records, and what it leaves in its spool file.

    Counts that are left out are not known, and leave what is known as it is.
    """

    id: str
    status: Outcome
    exit_code: Annotated[int, Meta(ge=-INT64, le=INT64 - 1)] | None = None
    verdict_status: str | None = None
    verdict_summary: str | None = None
    error_message: str | None = None
    turns: Count | None = None
    commands: Count | None = None
    messages: Count | None = None
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_hits: Count | None = None
    ended_ms: Count | None = None


_COLUMNS = Dispatch.__struct_fields__[:-3]
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM dispatches"  # noqa: S608 -- a struct names them
_FIND = f"{_SELECT} WHERE id = ?"
_NEWEST = "ORDER BY created_ms DESC, rowid DESC LIMIT :limit"
_LIST = f"{_SELECT} {_NEWEST}"
_LIST_ACTIVE = f"{_SELECT} WHERE status IN ('spawned', 'running') {_NEWEST}"
_LIST_RUN = f"""
{_SELECT} WHERE run_id = :run_id AND (:active = 0 OR status IN ('spawned', 'running'))
  AND (scope_id || '' = :scope_id OR :scope_id IS NULL)
{_NEWEST}
"""
_LIST_SCOPE = f"""
{_SELECT} WHERE scope_id = :scope_id AND (:active = 0 OR status IN ('spawned', 'running'))
{_NEWEST}
"""
# `created_ms` orders and ages rows, and is not shown.
_CREATE = f"""
INSERT INTO dispatches ({", ".join(_COLUMNS)}, created_ms) VALUES ({"?, " * len(_COLUMNS)}?)
"""  # noqa: S608
_RAISE = "wait until one of them ends, or raise the limit with 'icctl config set'"
_ALIVE = "SELECT count(*) FROM dispatches WHERE status IN ('spawned', 'running')"
_ALIVE_OF = f"{_ALIVE} AND run_id = ?"
# How many stand above a dispatch; no more are counted than there may be.
_DEPTH = """
WITH RECURSIVE above (id, depth) AS (
    SELECT id, 0 FROM dispatches WHERE id = ?1
    UNION ALL
    SELECT d.parent_id, above.depth + 1 FROM above JOIN dispatches AS d ON d.id = above.id
    WHERE d.parent_id IS NOT NULL AND above.depth < ?2
)
SELECT coalesce(max(depth), 0) FROM above
"""
_CLAIM_AGENT = """
UPDATE run_agents SET dispatch_id = ?1, updated_at = ?2
WHERE id = ?3 AND status = 'active'
  AND (dispatch_id = ?4 OR (dispatch_id IS NULL AND ?4 IS NULL))
"""
_START = """
UPDATE dispatches
SET status = 'running', runner_pid = nullif(?, 0), runner_start = nullif(?, 0),
    pid = ?, pid_start = nullif(?, 0), boot = nullif(?, ''), pidns = nullif(?, ''),
    started_at = ?, version = version + 1
WHERE id = ?
"""
_END = """
UPDATE dispatches
SET status = :status, exit_code = :exit_code, verdict_status = :verdict_status,
    verdict_summary = :verdict_summary, error_message = coalesce(error_message, :error_message),
    turns = max(turns, :turns), commands = max(commands, :commands),
    messages = max(messages, :messages), input_tokens = max(input_tokens, :input_tokens),
    output_tokens = max(output_tokens, :output_tokens),
    cache_hits = coalesce(max(cache_hits, :cache_hits), cache_hits, :cache_hits),
    completed_at = coalesce(completed_at, :completed_at), version = version + 1
WHERE id = :id
"""
_TOKENS = """
UPDATE dispatches
SET input_tokens = coalesce(?, input_tokens), output_tokens = coalesce(?, output_tokens),
    cache_hits = coalesce(?, cache_hits), version = version + 1
WHERE id = ?
"""
# What an active run has used, and what was said of its work, must not change by tidying up.
_PRUNE = """
DELETE FROM dispatches
WHERE created_ms <= ? AND status NOT IN ('spawned', 'running')
  AND (run_id IS NULL OR run_id NOT IN (SELECT id FROM runs WHERE status = 'active'))
"""


def require(conn: sqlite3.Connection, dispatch_id: str) -> Dispatch:
    row = conn.execute(_FIND, (dispatch_id,)).fetchone()
    if row is None:
        raise DispatchNotFound(f"not found: {dispatch_id}")
    return checked(Dispatch, row)


def live(conn: sqlite3.Connection) -> list[Dispatch]:
    """All that have not ended, the oldest first."""
    return every(conn, active=True, limit=INT64 - 1)[::-1]


def every(
    conn: sqlite3.Connection,
    *,
    active: bool = False,
    scope_id: str | None = None,
    run_id: str | None = None,
    limit: int,
) -> list[Dispatch]:
    """The dispatches that fit, the newest first."""
    statement = _LIST_ACTIVE if active else _LIST
    if run_id is not None:
        statement = _LIST_RUN
    elif scope_id is not None:
        statement = _LIST_SCOPE
    values = {"active": active, "scope_id": scope_id, "run_id": run_id, "limit": limit}
    return [checked(Dispatch, row) for row in conn.execute(statement, values)]


def create(
    conn: sqlite3.Connection,
    *,
    run_id: str | None = None,
    scope_id: str | None = None,
    runner: Process | None = None,
    actor: Writer,
    now_ms: int,
    **given: Any,
) -> Dispatch:
    """Note that a process is about to be started, by `runner`; nothing runs yet."""
    run = runs.require(conn, run_id) if run_id is not None else None
    if run is None and scope_id:
        run = runs.meant(conn, scope_id)
    _require_room(conn, run, given.get("parent_id"), now_ms=now_ms)
    starter = runner or Process(0)
    new = Dispatch(
        id=new_id(),
        status="spawned",
        turns=0,
        commands=0,
        messages=0,
        input_tokens=0,
        output_tokens=0,
        created_at=now_ms // 1000,
        version=1,
        run_id=run.id if run else None,
        scope_id=scope_id,
        runner_pid=starter.pid or None,
        runner_start=starter.start or None,
        boot=starter.boot or None,
        pidns=starter.pidns or None,
        session=actor.session,
        **given,
    )
    conn.execute(_CREATE, (*structs.astuple(new)[: len(_COLUMNS)], now_ms))
    return _told(conn, new.id, "", actor=actor, now_ms=now_ms)


def _require_room(
    conn: sqlite3.Connection, run: Run | None, parent_id: str | None, *, now_ms: int
) -> None:
    """Refuse what is more than a run or the project may have at once, or starts too deep.

    A dispatch is an agent at work: the limit of either counts.
    """
    if run is not None:
        most = min(
            (each for each in (run.max_dispatches, run.max_agents) if each is not None),
            default=None,
        )
        if most is not None:
            (count,) = conn.execute(_ALIVE_OF, (run.id,)).fetchone()
            runs.require_room(f"run {run.id}", "dispatches alive", most, count)
    everywhere = state.kernel_limit(conn, "global_max_dispatches", now_ms=now_ms)
    if everywhere is not None:
        (count,) = conn.execute(_ALIVE).fetchone()
        runs.require_room("the project", "dispatches alive", everywhere, count, hint=_RAISE)
    deepest = (
        None if parent_id is None else state.kernel_limit(conn, "max_spawn_depth", now_ms=now_ms)
    )
    if deepest is not None:
        (depth,) = conn.execute(_DEPTH, (parent_id, deepest + 1)).fetchone()
        runs.require_room(
            f"dispatch {parent_id}", "dispatches above it", deepest, depth, hint=_RAISE
        )


def claim_agent(
    conn: sqlite3.Connection,
    agent_id: str,
    dispatch: Dispatch,
    *,
    instead_of: str | None,
    now_ms: int,
) -> None:
    """Give the dispatch to an active agent of a run that has `instead_of` by now; only one can."""
    claim = (dispatch.id, now_ms // 1000, agent_id, instead_of)
    if not conn.execute(_CLAIM_AGENT, claim).rowcount:
        raise AgentTaken(f"agent {agent_id} has ended, or another process has just started it")


def start(
    conn: sqlite3.Connection,
    dispatch_id: str,
    *,
    agent: Process,
    runner: Process | None,
    actor: Writer,
    now_ms: int,
) -> Dispatch:
    """Record that its process runs; again, nothing changes.  A starter that is refused ends it."""
    was = require(conn, dispatch_id)
    if was.is_over:
        raise DispatchOver(f"dispatch {dispatch_id} is already {was.status}")
    if was.status == "running":
        if (was.pid, was.pid_start or 0) != (agent.pid, agent.start):
            raise DispatchRunning(
                f"dispatch {dispatch_id} is already running, as process {was.pid}"
            )
        return was
    waits = runner or Process(0)
    known = (waits.pid, waits.start, *structs.astuple(agent))
    conn.execute(_START, (*known, now_ms // 1000, dispatch_id))
    return _told(conn, dispatch_id, was.status, actor=actor, now_ms=now_ms)


def end(conn: sqlite3.Connection, how: End, *, actor: Writer, now_ms: int) -> tuple[Dispatch, bool]:
    """Record an end; whether it was the first.  Of a cancelled one it completes what is known."""
    was = require(conn, how.id)
    is_first = not was.is_over
    if not is_first and (was.status != "cancelled" or was.exit_code is not None):
        return was, False
    ended_ms = min(how.ended_ms or now_ms, now_ms)
    values = structs.asdict(how) | {
        "status": how.status if is_first else was.status,
        "completed_at": max(ended_ms // 1000, was.created_at),
        "verdict_status": _line(how.verdict_status),
        "verdict_summary": _line(how.verdict_summary),
        "error_message": _line(how.error_message),
    }
    for count in ("turns", "commands", "messages", "input_tokens", "output_tokens"):
        values[count] = values[count] or 0
    del values["ended_ms"]
    conn.execute(_END, values)
    if not is_first:
        return require(conn, how.id), False
    reason = values["error_message"] or ""
    now = _told(conn, how.id, was.status, reason=reason, actor=actor, now_ms=now_ms)
    return now, True


def cancel(
    conn: sqlite3.Connection, dispatch_id: str, *, reason: str, actor: Writer, now_ms: int
) -> Dispatch:
    """Record that it is over from now on; the caller ends the process, if there is one."""
    was = require(conn, dispatch_id)
    if was.is_over:
        raise DispatchOver(f"dispatch {dispatch_id} is already {was.status}")
    ended = End(id=dispatch_id, status="cancelled", error_message=reason or None)
    return end(conn, ended, actor=actor, now_ms=now_ms)[0]


def cancel_of_run(
    conn: sqlite3.Connection, run: Run, *, reason: str, actor: Writer, now_ms: int
) -> int:
    """Cancel all that have not ended, the oldest first."""
    found = every(conn, active=True, run_id=run.id, limit=INT64 - 1)[::-1]
    for each in found:
        cancel(conn, each.id, reason=reason, actor=actor, now_ms=now_ms)
    return len(found)


def set_tokens(
    conn: sqlite3.Connection,
    dispatch_id: str,
    *,
    input_tokens: int | None = None,
    output_tokens: int | None = None,
    cache_hits: int | None = None,
    now_ms: int,
) -> Dispatch:
    """Set what is given, also of one that has ended: some are counted afterwards."""
    conn.execute(_TOKENS, (input_tokens, output_tokens, cache_hits, dispatch_id))
    found = require(conn, dispatch_id)
    if found.run_id is not None:
        runs.touch(conn, found.run_id, now_ms=now_ms)
    return found


def prune(conn: sqlite3.Connection, *, older_than_ms: int, now_ms: int) -> int:
    """Forget what has ended and was created at least that long ago; not of runs under way."""
    return conn.execute(_PRUNE, (now_ms - older_than_ms,)).rowcount


def _told(
    conn: sqlite3.Connection,
    dispatch_id: str,
    was: str,
    *,
    reason: str = "",
    actor: Writer,
    now_ms: int,
) -> Dispatch:
    """Tell of a dispatch whose status has just changed, in the log of events."""
    now = require(conn, dispatch_id)
    assert now.status in NEXT[was], f"{was} → {now.status}"
    fact = Fact(
        source="dispatch",
        type="status_change",
        run_id=now.run_id or "",
        subject_id=now.id,
        from_state=was,
        to_state=now.status,
        reason=reason,
        project_dir=now.project_dir,
    )
    events.append(conn, fact, actor=actor, now_ms=now_ms)
    if now.run_id is not None:
        runs.touch(conn, now.run_id, now_ms=now_ms)
    return now


def _line(text: str | None) -> str | None:
    """What is shown in a line; an end is recorded whatever the agent has to say."""
    if text is None:
        return None
    return " ".join(_CONTROL.sub(" ", text).split())[:TEXT_CHARACTERS] or None
