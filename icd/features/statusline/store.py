"""What a statusline shows about one session, read in one go.

Rows of the keys that the mirror carries, `dispatch`, `bead`, `lane`, `coordination`, `pressure`
and `budget`, and the run that is being worked on.  The payloads of rows are other people's: any
JSON may stand where a string or a number is expected.  What cannot be used is None; nothing here
fails because of a payload.

Callers run this inside a transaction.
"""

import json
import math
import re
import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import UNSET, Struct, UnsetType

T = TypeVar("T")

# Every text is cut to this length: a line is short, and a payload may hold a megabyte.
TEXT_CHARACTERS = 200
# Larger payloads are not looked into: they would keep others waiting, and are no statusline's.
PAYLOAD_CHARACTERS = 65_536
# Dispatches and coordination signals that are looked into, the newest of each.
SIGNALS = 200

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
_INT64 = 2**63


class Dispatch(Struct, frozen=True):
    """`alive`: whether the process of `pid` is there; None if no pid is known."""

    scope_id: str
    name: str | None
    activity: str | None
    workdir: str | None
    started: int | float | None
    turns: int | float | None
    commands: int | float | None
    messages: int | float | None
    pid: int | None
    alive: bool | None
    age: int


class Bead(Struct, frozen=True):
    id: str | None
    phase: str | None
    reason: str | None
    age: int


class Lane(Struct, frozen=True):
    name: str | None
    age: int


class Coordination(Struct, frozen=True):
    """`text` is one agent's signal; `count` is how many agents have one."""

    text: str | None
    icon: str | None
    priority: int | float | None
    count: int
    age: int | None


class Pressure(Struct, frozen=True):
    level: str | None
    pressure: int | float | None
    est_tokens: int | float | None
    age: int


class Budget(Struct, frozen=True):
    pct_consumed: int | float | None
    total_tokens: int | float | None
    age: int


class Run(Struct, frozen=True):
    """`age`: seconds since its last sign of life."""

    id: str
    phase: str
    goal: str | None
    age: int


class Statusline(Struct, frozen=True):
    """None: nothing is known.  `reservations`: how many the session holds, if any."""

    session: str
    dispatch: Dispatch | None = None
    bead: Bead | None = None
    lane: Lane | None = None
    coordination: Coordination | None = None
    pressure: Pressure | None = None
    budget: Budget | None = None
    run: Run | None = None
    reservations: int | UnsetType = UNSET


class _Signal(Struct):
    """A row whose payload has been looked into: `fields` of an object, or a lone `value`."""

    scope_id: str
    fields: dict[str, Any]
    value: Any
    age: int

    def text(self, name: str, *, lone: bool = False) -> str | None:
        return as_text(self.value if lone and not self.fields else self.fields.get(name))

    def number(self, name: str) -> int | float | None:
        return as_number(self.fields.get(name))


_OF_SESSION = """
SELECT key, scope_id, substr(payload, 1, ?3), updated_at FROM state
WHERE key IN ('dispatch', 'bead', 'lane', 'pressure', 'budget') AND scope_id = ?1
      AND (expires_ms IS NULL OR expires_ms > ?2)
"""
# Written under a pid instead of a session, by this session or by an unknown one.
_BY_PID = """
SELECT scope_id, substr(payload, 1, ?3), updated_at FROM state
WHERE key = 'dispatch' AND scope_id >= '0' AND scope_id < ':' AND ltrim(scope_id, '0123456789') = ''
      AND (writer_session IS NULL OR writer_session = ?1)
      AND (expires_ms IS NULL OR expires_ms > ?2)
ORDER BY version DESC LIMIT ?4
"""
_COUNT = """
SELECT count(*) FROM state
WHERE key = 'coordination' AND (expires_ms IS NULL OR expires_ms > ?)
"""
# The scope is `<project>-<agent>`; a database holds one project.
_COORDINATION = """
SELECT scope_id, substr(payload, 1, ?3), updated_at FROM state
WHERE key = 'coordination' AND (expires_ms IS NULL OR expires_ms > ?2)
      AND (scope_id = ?1 OR ?1 IS NULL
           OR substr(scope_id, length(scope_id) - length(?1)) = '-' || ?1)
ORDER BY version DESC LIMIT ?4
"""
_ANY_RUN = "SELECT 1 FROM runs WHERE status = 'active' LIMIT 1"
# The session's own first; else it is another session's work on the same project.
_RUN = """
SELECT id, phase, substr(goal, 1, ?3), updated_at FROM runs
WHERE status = 'active' AND project_dir = ?1
ORDER BY CASE WHEN session = ?2 THEN 0 ELSE 1 END, created_ms DESC, rowid DESC LIMIT 1
"""
_RESERVED = """
SELECT count(*) FROM reservations
WHERE owner = ? AND (expires_ms IS NULL OR expires_ms > ?)
"""
_CUT = PAYLOAD_CHARACTERS + 1  # enough to see that it is larger


def read(
    conn: sqlite3.Connection,
    session: str,
    *,
    agent: str | None,
    project: Callable[[], str],
    is_alive: Callable[[int], bool],
    now_ms: int,
) -> Statusline:
    rows = conn.execute(_OF_SESSION, (session, now_ms, _CUT)) if session else ()
    found = {row[0]: _look_into(*row[1:], now_ms=now_ms) for row in rows}
    return Statusline(
        session=session,
        dispatch=_dispatch(conn, session, found.get("dispatch"), is_alive, now_ms=now_ms),
        bead=_made(_bead, found.get("bead")),
        lane=_made(_lane, found.get("lane")),
        coordination=_coordination(conn, agent, now_ms=now_ms),
        pressure=_made(_pressure, found.get("pressure")),
        budget=_made(_budget, found.get("budget")),
        run=_run(conn, session, project, now_ms=now_ms),
        reservations=_reserved(conn, session, now_ms=now_ms) if session else UNSET,
    )


def _reserved(conn: sqlite3.Connection, session: str, *, now_ms: int) -> int | UnsetType:
    (count,) = conn.execute(_RESERVED, (session, now_ms)).fetchone()
    return int(count) or UNSET


def _made(make: Callable[[_Signal], T], row: _Signal | None) -> T | None:
    return None if row is None else make(row)


def _bead(row: _Signal) -> Bead:
    return Bead(row.text("id", lone=True), row.text("phase"), row.text("reason"), row.age)


def _lane(row: _Signal) -> Lane:
    return Lane(row.text("lane", lone=True), row.age)


def _pressure(row: _Signal) -> Pressure:
    level = row.text("level", lone=True)
    return Pressure(level, row.number("pressure"), row.number("est_tokens"), row.age)


def _budget(row: _Signal) -> Budget:
    return Budget(row.number("pct_consumed"), row.number("total_tokens"), row.age)


def _dispatch(
    conn: sqlite3.Connection,
    session: str,
    own: _Signal | None,
    is_alive: Callable[[int], bool],
    *,
    now_ms: int,
) -> Dispatch | None:
    """The session's own, unless its process is gone and another one's is alive."""
    shown = None if own is None else _shown(own, is_alive)
    if shown is None or shown.alive is False:
        for row in conn.execute(_BY_PID, (session, now_ms, _CUT, SIGNALS)):
            other = _shown(_look_into(*row, now_ms=now_ms), is_alive)
            if other.alive:
                return other
    return shown


def _shown(row: _Signal, is_alive: Callable[[int], bool]) -> Dispatch:
    pid = _pid(row)
    return Dispatch(
        scope_id=row.scope_id,
        name=row.text("name", lone=True),
        activity=row.text("activity"),
        workdir=row.text("workdir"),
        started=row.number("started"),
        turns=row.number("turns"),
        commands=row.number("commands"),
        messages=row.number("messages"),
        pid=pid,
        alive=None if pid is None else is_alive(pid),
        age=row.age,
    )


def _pid(row: _Signal) -> int | None:
    given = row.fields.get("pid", row.scope_id)
    if isinstance(given, str) and re.fullmatch("[0-9]{1,10}", given):
        given = int(given)
    return given if isinstance(given, int) and not isinstance(given, bool) and given > 0 else None


def _coordination(
    conn: sqlite3.Connection, agent: str | None, *, now_ms: int
) -> Coordination | None:
    """The agent's own; without an agent the most urgent, and of these the newest."""
    (count,) = conn.execute(_COUNT, (now_ms,)).fetchone()
    if not count:
        return None
    rows = conn.execute(_COORDINATION, (agent, now_ms, _CUT, SIGNALS))
    best = max((_look_into(*row, now_ms=now_ms) for row in rows), key=_urgency, default=None)
    if best is None:
        return Coordination(None, None, None, count, None)
    text, icon = best.text("text", lone=True), best.text("icon")
    return Coordination(text, icon, best.number("priority"), count, best.age)


def _run(
    conn: sqlite3.Connection, session: str, project: Callable[[], str], *, now_ms: int
) -> Run | None:
    if conn.execute(_ANY_RUN).fetchone() is None:
        return None  # which project it is, the file system tells: that takes longer than the rest
    row = conn.execute(_RUN, (project(), session, _CUT)).fetchone()
    if row is None:
        return None
    run_id, phase, goal, updated_at = row
    age = max(0, now_ms // 1000 - updated_at)
    return Run(as_text(run_id) or "", as_text(phase) or "", as_text(goal), age)


def _urgency(row: _Signal) -> float:
    """The first of equals is the newest."""
    return row.number("priority") or 0


def _look_into(scope_id: str, payload: str, updated_at: int, *, now_ms: int) -> _Signal:
    age = max(0, now_ms // 1000 - updated_at)
    try:
        value = json.loads(payload) if len(payload) <= PAYLOAD_CHARACTERS else None
    except (ValueError, RecursionError):
        value = None
    return _Signal(scope_id, value if isinstance(value, dict) else {}, value, age)


def as_text(value: object) -> str | None:
    """Text on one line; JSON's lone surrogates are no text at all."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = as_number(value)
        return None if value is None else str(value)
    if not isinstance(value, str):
        return None
    cut = _CONTROL.sub(" ", value[: TEXT_CHARACTERS * 2]).strip()[:TEXT_CHARACTERS]
    return cut.encode("utf-8", "replace").decode() or None


def as_number(value: object) -> int | float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if isinstance(value, int):
        return value if -_INT64 <= value < _INT64 else None
    return value if math.isfinite(value) else None
