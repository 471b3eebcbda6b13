"""Sessions, lanes and actions of the original Go program, schema v13 and later, and its other logs.

They come only with a database that is taken over on request (adopt.py).  Where it allowed what we
do not, a row stays behind, and is told:
    - a session or a lane without a name, a second one with the same, or a lane of an unknown kind;
    - a member of a lane that is not there, an action of a run that is not there;
    - metadata that is not a JSON object, arguments that are not a JSON array.

Of the attributions of a session the events are kept, each of them; what they come to is folded as
our own: a later one forgets nothing, except the phase of another run.

Reservations are brought by icd/features/coordination/adoption.py, which knows patterns.
"""

import json
import os
import sqlite3
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from icd.db import paths
from icd.db.original.runs import project
from icd.db.original.tables import Row, every, put, rows

# Those whose names ours have.
TABLES = ("sessions", "lanes", "lane_members")

# --- events ---------------------------------------------------------------------------------------


class Log(Struct, frozen=True):
    """A table of events: its source, and which columns say what.  `json` columns hold JSON."""

    source: str
    type: str
    subject: str
    payload: tuple[str, ...]
    json: tuple[str, ...] = ()
    renamed: dict[str, str] = {}
    default_type: str = "recorded"


LOGS = {
    "coordination_events": Log(
        "coordination", "event_type", "lock_id", ("owner", "pattern", "scope")
    ),
    "review_events": Log(
        "review",
        "event_type",
        "finding_id",
        (
            *("finding_id", "agents_json", "resolution", "chosen_severity", "impact"),
            "dismissal_reason",
        ),
        json=("agents_json",),
        renamed={"agents_json": "agents"},
        default_type="disagreement_resolved",
    ),
    "lane_events": Log("lane", "event_type", "lane_id", ()),
    "agency_events": Log(
        "agency",
        "event_type",
        "cycle_id",
        ("agency_name", "cycle_id", "stage", "context_json", "idempotency_key"),
        json=("context_json",),
        renamed={"context_json": "context"},
    ),
    "intent_events": Log(
        "intent",
        "intent_type",
        "bead_id",
        ("intent_type", "bead_id", "idempotency_key", "success", "error_detail"),
    ),
    "session_attributions": Log(
        "session", "", "session_id", ("bead_id", "run_id", "phase"), default_type="attributed"
    ),
}


def logged(conn: sqlite3.Connection) -> Iterator[tuple[Any, ...]]:
    """The events of all of them, as `tables.bring_events` takes them."""
    for table, log in LOGS.items():
        for row in rows(conn, table):
            yield _event(log, row)


def _event(log: Log, row: Row) -> tuple[Any, ...]:
    at = row.seconds("created_at")
    kind = row.word(log.type, log.default_type).removeprefix(f"{log.source}.")
    # A lane's payload is one already, and the others' are made of their columns.
    payload = _said(log, row) if log.payload else row.json("payload", "{}")
    return (
        log.source,
        row.number("id"),
        kind,
        row.word("run_id"),
        row.word(log.subject),
        "",
        "",
        row.text("reason"),
        payload,
        row.word("session_id") or None,
        row.text("project_dir") or None,
        at,
        at * 1000,
    )


def _said(log: Log, row: Row) -> str:
    told = {
        log.renamed.get(name, name): _value(row.json(name, "{}"))
        if name in log.json
        else row.text(name)
        for name in log.payload
        if row.text(name)
    }
    return json.dumps(told)


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:  # a number beyond all that Python reads
        return text


# --- sessions -------------------------------------------------------------------------------------

_TOKENS = ("input_tokens", "output_tokens", "cache_creation_tokens", "cache_read_tokens")
_PUT_NUMBER = "UPDATE counters SET value = ? WHERE name = ?"
_ONCE = "ON CONFLICT DO NOTHING"


def bring_sessions(conn: sqlite3.Connection, path: str) -> None:
    """Copy what was set aside, then drop it."""
    root = paths.project_root(os.path.dirname(os.path.dirname(path)))
    number = 0
    for row in rows(conn, "original_sessions"):
        session = _session(row, root, number + 1)
        if session["session_id"]:
            number += put(conn, "sessions", session, _ONCE)
    conn.execute(_PUT_NUMBER, (number, "sessions"))
    for found in _folded(conn, root):
        put(conn, "attributions", found)
    _drop(conn, "original_sessions", "session_attributions")


def _session(row: Row, root: str, number: int) -> dict[str, object]:
    return {
        "session_id": row.word("session_id"),
        "project_dir": project(row, root),
        "id": number,
        "agent_type": row.word("agent_type", "claude-code"),
        "model": row.word("model") or None,
        "metadata": row.json("metadata", "") or None,
        "started_at": row.seconds("started_at"),
        "ended_at": row.seconds("ended_at") or None,
        **{name: row.number(name) for name in _TOKENS},
    }


def _folded(conn: sqlite3.Connection, root: str) -> list[dict[str, object]]:
    """What all attributions of each session come to."""
    found: dict[tuple[str, str], dict[str, object]] = {}
    for row in rows(conn, "session_attributions"):
        key = row.word("session_id"), project(row, root)
        before = found.get(key, {})
        run = row.word("run_id") or before.get("run_id")
        kept = before.get("phase") if run == before.get("run_id") else None
        if key[0]:
            found[key] = {
                "session_id": key[0],
                "project_dir": key[1],
                "bead_id": row.word("bead_id") or before.get("bead_id"),
                "run_id": run,
                "phase": row.word("phase") or kept,
                "updated_at": row.seconds("created_at"),
            }
    return list(found.values())


# --- lanes and actions ----------------------------------------------------------------------------

_TYPES, _STATUSES = {"standing", "arc"}, {"active", "closed", "archived"}


def bring_lanes(conn: sqlite3.Connection) -> None:
    """Copy what was set aside, and actions, then drop them, and the logs, which are in ours."""
    for row in rows(conn, "original_lanes"):
        lane = _lane(row)
        if lane is not None:
            put(conn, "lanes", lane, _ONCE)
    lanes = {lane for (lane,) in conn.execute("SELECT id FROM lanes")}
    for row in every(conn, "original_lane_members"):
        if row.word("lane_id") in lanes and row.word("bead_id"):
            put(conn, "lane_members", _member(row), _ONCE)
    _bring_actions(conn)
    _drop(conn, "original_lane_members", "original_lanes", "phase_actions", *LOGS)


def _lane(row: Row) -> dict[str, object] | None:
    kind, status = row.text("lane_type", "standing"), row.text("status", "active")
    metadata, updated = row.text("metadata", "{}").strip(), row.seconds("updated_at")
    if not row.word("name") or kind not in _TYPES or status not in _STATUSES:
        return None
    if not _is(dict, metadata):
        return None
    return {
        "id": row.word("id"),
        "name": row.word("name"),
        "lane_type": kind,
        "status": status,
        "description": row.text("description"),
        "intent": row.text("intent"),
        "metadata": metadata,
        "created_at": row.seconds("created_at"),
        "updated_at": updated,
        "updated_ms": updated * 1000,
        "closed_at": row.seconds("closed_at") or None,
    }


def _member(row: Row) -> dict[str, object]:
    added = row.seconds("added_at")
    return {
        "lane_id": row.word("lane_id"),
        "bead_id": row.word("bead_id"),
        "added_at": added,
        "removed_at": None,
        "changed_ms": added * 1000,
    }


# What a command of ours takes.
_MOST = 1_000_000


def _bring_actions(conn: sqlite3.Connection) -> None:
    """They get new numbers, in the order of their old ones."""
    runs = {run for (run,) in conn.execute("SELECT id FROM runs")}
    number = 0
    for row in rows(conn, "phase_actions"):
        args = row.text("args").strip() or None
        words = [row.word(name) for name in ("phase", "command")]
        if row.word("run_id") in runs and all(words) and (args is None or _is(list, args)):
            number += put(conn, "run_actions", _action(row, number + 1, args), _ONCE)
    conn.execute(_PUT_NUMBER, (number, "run_actions"))


def _action(row: Row, number: int, args: str | None) -> dict[str, object]:
    created = row.seconds("created_at")
    updated = row.seconds("updated_at", created)
    return {
        "run_id": row.word("run_id"),
        "phase": row.word("phase"),
        "command": row.word("command"),
        "id": number,
        "action_type": row.word("action_type", "command"),
        "args": args,
        "mode": row.word("mode", "interactive"),
        "priority": row.number("priority", least=-_MOST, most=_MOST),
        "created_at": created,
        "updated_at": updated,
        "updated_ms": updated * 1000,
    }


def _is(kind: type, text: str) -> bool:
    try:
        return isinstance(json.loads(text), kind)
    except (ValueError, RecursionError):
        return False


def _drop(conn: sqlite3.Connection, *tables: str) -> None:
    for table in tables:
        conn.execute(f"DROP TABLE IF EXISTS {table}")
