"""What is to be done when a run enters a phase, as its creator says.

An action is a note: a command's name, its arguments as a JSON array, and who may run it.  An
advance answers with those of the new phase, with what is known filled in; nothing here runs one,
and no one must: a row is never a permission.

Invariants
    - a run has at most one action with the same command in a phase;
    - what is filled in is the text of one string of the arguments, never more: it is escaped, and
      is not looked at again; what is not known stays as it was written, and so do arguments that
      would become larger than any that can be stored.

Callers run these inside a transaction.
"""

import json
import re
import sqlite3
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, structs

from icd.db.connection import Bounds
from icd.db.rows import checked, document, put, select, values
from icd.errors import ActionNotFound, DuplicateAction, IcError, InvalidPayload
from icd.features.runs import store as runs
from icd.features.runs.store import Artifact, Run
from icd.values import payloads
from icd.values.validation import check_name, shown
from icd.values.wire import Result

TYPE, MODE = "command", "interactive"
# What has no end of its own in a string: no quote, no escape.
_VARIABLE = re.compile(r"\$\{(?:run_id|project_dir|artifact:[^}\"\\]+)\}")


class Action(Result):
    """`args` is the JSON array as it was given; it is not there if none was."""

    id: int
    run_id: str
    phase: str
    action_type: str
    command: str
    mode: str
    priority: int
    created_at: int
    updated_at: int
    args: Raw | UnsetType = UNSET


class Row(Struct):
    """A row of the table."""

    run_id: str
    phase: str
    command: str
    id: int
    action_type: str
    args: str | None
    mode: str
    priority: int
    created_at: int
    updated_at: int
    updated_ms: int


class Spec(Struct):
    """An action in the argument of `run create`; `args` may be the array, or a string of it."""

    command: str
    args: Raw | None = None
    mode: str = MODE
    type: str = TYPE
    priority: int = 0


_NEXT = "UPDATE counters SET value = value + 1 WHERE name = 'run_actions' RETURNING value"
_KEY = "WHERE run_id = ? AND phase = ? AND command = ?"
_FIND = select(Row, "run_actions", _KEY)
_OF_RUN = select(
    Row,
    "run_actions",
    "WHERE run_id = ?1 AND (phase = ?2 OR ?2 IS NULL) ORDER BY phase, priority, id",
)
_PUT = put(Row, "run_actions", key=("run_id", "phase", "command"))
_DELETE = f"DELETE FROM run_actions {_KEY}"  # noqa: S608 -- a constant
_ARTIFACTS = select(
    Artifact, "run_artifacts", "WHERE run_id = ? AND status = 'active' ORDER BY created_at, rowid"
)


def add(
    conn: sqlite3.Connection, run_id: str, phase: str, spec: Spec, args: str | None, *, now_ms: int
) -> int:
    """Note an action; the answer is its number."""
    runs.require(conn, run_id)
    if conn.execute(_FIND, (run_id, phase, spec.command)).fetchone():
        raise DuplicateAction(f"run {run_id} has {shown(spec.command)} in {shown(phase)} already")
    (number,) = conn.execute(_NEXT).fetchone()
    now = now_ms // 1000
    row = Row(
        run_id,
        phase,
        spec.command,
        number,
        spec.type,
        args,
        spec.mode,
        spec.priority,
        now,
        now,
        now_ms,
    )
    conn.execute(_PUT, values(row))
    runs.touch(conn, run_id, now_ms=now_ms)
    return int(number)


def add_all(conn: sqlite3.Connection, run_id: str, text: str | None, *, now_ms: int) -> None:
    """Note those of a new run, as it was created with them."""
    for phase, spec in parse(text or "{}"):
        add(conn, run_id, phase, spec, arguments(spec.args), now_ms=now_ms)


def of_run(conn: sqlite3.Connection, run_id: str, phase: str | None = None) -> list[Action]:
    """By phase, priority and number; of an unknown run, none."""
    return [_shown(row) for row in _rows(conn, run_id, phase)]


def resolved(conn: sqlite3.Connection, run: Run, phase: str) -> list[Action]:
    """Those of a phase, with what is known filled in."""
    rows = list(_rows(conn, run.id, phase))
    if any(_VARIABLE.search(row.args or "") for row in rows):
        known = _known(conn, run)
        rows = [structs.replace(row, args=row.args and _filled(row.args, known)) for row in rows]
        _count(conn, rows)
    return [_shown(row) for row in rows]


def update(
    conn: sqlite3.Connection,
    run_id: str,
    phase: str,
    command: str,
    *,
    args: str | None,
    mode: str | None,
    priority: int | None,
    now_ms: int,
) -> Action:
    """Change an action; what is None stays as it is."""
    found = conn.execute(_FIND, (run_id, phase, command)).fetchone()
    if found is None:
        raise _missing(run_id, phase, command)
    row = checked(Row, found)
    row.args = row.args if args is None else args
    row.mode = row.mode if mode is None else mode
    row.priority = row.priority if priority is None else priority
    row.updated_at, row.updated_ms = now_ms // 1000, now_ms
    conn.execute(_PUT, values(row))
    runs.touch(conn, run_id, now_ms=now_ms)
    return _shown(row)


def delete(conn: sqlite3.Connection, run_id: str, phase: str, command: str, *, now_ms: int) -> None:
    if not conn.execute(_DELETE, (run_id, phase, command)).rowcount:
        raise _missing(run_id, phase, command)
    runs.touch(conn, run_id, now_ms=now_ms)


def _missing(run_id: str, phase: str, command: str) -> IcError:
    return ActionNotFound(f"run {run_id} has no {shown(command)} in {shown(phase)}")


def _rows(conn: sqlite3.Connection, run_id: str, phase: str | None) -> Iterator[Row]:
    return (checked(Row, row) for row in conn.execute(_OF_RUN, (run_id, phase)).fetchall())


def _shown(row: Row) -> Action:
    return Action(
        row.id,
        row.run_id,
        row.phase,
        row.action_type,
        row.command,
        row.mode,
        row.priority,
        row.created_at,
        row.updated_at,
        UNSET if row.args is None else document(row.args),
    )


# --- what is filled in ----------------------------------------------------------------------------


def _known(conn: sqlite3.Connection, run: Run) -> dict[str, str]:
    """What stands for each variable, as it stands between the quotes of a JSON string."""
    rows = (checked(Artifact, row) for row in conn.execute(_ARTIFACTS, (run.id,)))
    newest = {f"${{artifact:{made.type}}}": made.path for made in rows}
    known = newest | {"${run_id}": run.id, "${project_dir}": run.project_dir}
    return {name: json.dumps(text, ensure_ascii=False)[1:-1] for name, text in known.items()}


def _filled(args: str, known: dict[str, str]) -> str:
    """A few characters of a row may stand for a path of some thousands: not without end."""
    found = _VARIABLE.findall(args)
    grown = len(args) + sum(len(known.get(name, name)) - len(name) for name in found)
    if grown > payloads.PAYLOAD_BYTES:
        return args
    return _VARIABLE.sub(lambda name: known.get(name[0], name[0]), args)


def _count(conn: sqlite3.Connection, rows: list[Row]) -> None:
    """What is filled in is part of the answer, and that has an end on connections of ours."""
    bounds: Bounds | None = getattr(conn, "bounds", None)
    if bounds is not None:
        bounds.take(sum(len(row.args or "") for row in rows))


# --- what `run create` is given -------------------------------------------------------------------


def parse(text: str) -> list[tuple[str, Spec]]:
    """The actions of an object of phases; what has no command is no action, and is kept as data."""
    try:
        phases = msgspec.json.decode(text, type=dict[str, Raw])
    except msgspec.DecodeError:  # texts and numbers beyond any type of ours
        return []
    return [(phase, spec) for phase, value in phases.items() for spec in _specs(phase, value)]


def _specs(phase: str, value: Raw) -> Iterator[Spec]:
    try:
        given: Any = msgspec.json.decode(value)
    except msgspec.DecodeError:
        return
    for each in given if isinstance(given, list) else [given]:
        if isinstance(each, dict) and "command" in each:
            yield _spec(phase, each)


def _spec(phase: str, given: dict[str, Any]) -> Spec:
    try:
        found = msgspec.convert(given | {"args": None}, Spec)
    except msgspec.ValidationError as exc:
        raise InvalidPayload(f"the action of {shown(phase)}: {exc}", hint="") from exc
    for name in (phase, found.command, found.mode, found.type):
        check_name(name)
    args = given.get("args")
    if isinstance(args, str) and args:
        found.args = Raw(args.encode())
    elif args:
        found.args = Raw(msgspec.json.encode(args))
    arguments(found.args)
    return found


def arguments(raw: Raw | None) -> str | None:
    return None if raw is None else check_args(bytes(raw).decode())


def check_args(text: str) -> str:
    """Arguments as they are stored."""
    args = payloads.check(text.encode())
    if not args.startswith("["):
        raise InvalidPayload(
            "the arguments are not a JSON array", hint="""send an array, such as '["--fast"]'"""
        )
    return args
