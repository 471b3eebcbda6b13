"""import: take in the lines of an export.

Invariants
    - taking in the same lines twice changes nothing the second time;
    - of two rows of one name the later one wins, of two as late the one that is there; a sentinel
      that was claimed once and for all wins over any other claim;
    - of two leases the one with the later token wins, else the one that was renewed later;
    - a row that has expired is not taken in, nor is a reservation that is in the way of one here;
    - a version never repeats: rows of state and discoveries get new ones, above those of both
      databases; so do the fencing tokens of leases that are acquired afterwards;
    - an event keeps its number and is taken in only beyond the end of the log: what consumers have
      read stays as they have read it.

Runs
    - of two runs of one id, the one with the later sign of life wins, and with it the phases that
      it passes over: a skip that was taken back does not return;
    - an active run whose claim is held by another active run here is taken in as abandoned;
    - of two agents of one id, the later change wins; of two artifacts, the one that was rolled
      back: that is never undone; of two dispatches, the one that changed more often;
    - a dispatch that was alive over there stays as it is: the next poll finds out;
    - of two actions of one run, phase and command, the later change wins;
    - what belongs to a run that is not there is refused.

Sessions and lanes
    - of two accounts of a session the one that counted more tokens wins, but no count gets smaller;
    - a lane whose name is here under another id is the same lane: its members are taken in there;
    - of two lanes, and of two words about an issue in one, the later change wins.

Discoveries
    - of two of one id, the one that is further in its life wins, else the one that is here;
      versions count the changes of a single database and say nothing about another's;
    - one that is here under another id is the same find: it stays, and what belongs to the other
      is left out; so does one whose id is here for another find;
    - texts are taken in as they are: scanners submit what they see, and so it is in an export;
    - an embedding is taken in where there is none, if it has the dimension of its source here;
    - feedback is added until the very same is here as often as in the file;
    - of two profiles the later one wins, under a version that neither had.

All of it happens in one transaction, and in the order of the tables that `export` keeps.
"""

import sqlite3
from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from msgspec import structs

from icd import __version__
from icd.db import migrate, schema
from icd.db.rows import put
from icd.errors import (
    DimensionMismatch,
    InvalidChain,
    InvalidGates,
    SchemaTooNew,
    UnreadableInput,
)
from icd.features.coordination import store as reservations
from icd.features.database import export
from icd.features.database.export import End, Header
from icd.features.discoveries import profile as profiles
from icd.features.discoveries import vectors
from icd.features.events import store as events
from icd.features.gates import store as gates
from icd.features.runs import actions, phases
from icd.features.state import store as state
from icd.values import payloads
from icd.values.validation import check_key, check_name, check_owner, check_scope, shown

# What has been decided is not undone by a file in which it has not.
_LIFE = ("new", "scored", "proposed", "promoted", "dismissed")

_COUNT = """
INSERT INTO counters (name, value) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET value = max(counters.value, excluded.value)
"""
_NEXT = "UPDATE counters SET value = value + 1 WHERE name = ? RETURNING value"
_RUN = "SELECT 1 FROM runs WHERE id = ?"
_OF_RUN = {"run_skips", "run_agents", "run_artifacts", "run_actions"}
_HOLDER = """
SELECT 1 FROM runs WHERE project_dir = ? AND scope_id = ? AND status = 'active' AND id != ?
"""
_FORGET_SKIPS = "DELETE FROM run_skips WHERE run_id = ?"
_FOUND = "SELECT 1 FROM discoveries WHERE id = ?"
_SAME = """
SELECT id, source, source_id, status FROM discoveries WHERE id = ? OR source = ? AND source_id = ?
"""
_BARE = """
SELECT source FROM discoveries
WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM embeddings WHERE discovery_id = ?1)
"""
_TOKENS = ("input_tokens", "output_tokens", "cache_creation_tokens", "cache_read_tokens")
_SESSION = f"""
SELECT id, {", ".join(_TOKENS)} FROM sessions WHERE session_id = ? AND project_dir = ?
"""  # noqa: S608 -- constants
_RAISE = f"""
UPDATE sessions SET {", ".join(f"{name} = max({name}, ?)" for name in _TOKENS)}
WHERE session_id = ? AND project_dir = ? AND ({" OR ".join(f"{name} < ?" for name in _TOKENS)})
"""  # noqa: S608 -- constants
_ACTION = "SELECT id FROM run_actions WHERE run_id = ? AND phase = ? AND command = ?"
_LANE_NAMED = "SELECT id FROM lanes WHERE name = ?"
_LANE = "SELECT 1 FROM lanes WHERE id = ?"
_TOUCH = "UPDATE discoveries SET version = ? WHERE id = ?"
_EQUAL = """
SELECT count(*) FROM feedback_signals
WHERE discovery_id = ?1 AND signal_type = ?2 AND signal_data = ?3 AND actor = ?4
      AND created_at = ?5
      AND (idempotency_key = ?6 OR (idempotency_key IS NULL AND ?6 IS NULL))
"""
_PUT_FEEDBACK = """
INSERT INTO feedback_signals
    (discovery_id, signal_type, signal_data, actor, created_at, idempotency_key)
VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (discovery_id, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
"""

# Of two rows of one key, that of the file wins if this is true; in other tables it always does.
_WINS = {
    "sentinels": (
        "sentinels.once = 0 AND (excluded.once = 1 OR excluded.fired_ms > sentinels.fired_ms)"
    ),
    "cursors": "excluded.updated_ms > cursors.updated_ms",
    "runs": "excluded.updated_ms > runs.updated_ms",
    "run_agents": "excluded.updated_at > run_agents.updated_at",
    "dispatches": "excluded.version > dispatches.version",
    "reservations": "excluded.renewed_ms > reservations.renewed_ms",
    # A token counts acquisitions, and a renewal keeps it.
    "leases": "(excluded.token, excluded.renewed_at) > (leases.token, leases.renewed_at)",
    # Of two accounts of a session the one that counted more is the later one.
    "sessions": """
        (excluded.input_tokens + 0.0 + excluded.output_tokens, coalesce(excluded.ended_at, 0))
        > (sessions.input_tokens + 0.0 + sessions.output_tokens, coalesce(sessions.ended_at, 0))
    """,
    "attributions": "excluded.updated_at > attributions.updated_at",
    "run_actions": "excluded.updated_ms > run_actions.updated_ms",
    "lanes": "excluded.updated_ms > lanes.updated_ms",
    "lane_members": "excluded.changed_ms > lane_members.changed_ms",
}
# Or less than the whole row is taken over.
_LESS = {
    "requests": "DO NOTHING",
    "events": "DO NOTHING",
    "hook_positions": """
        (hook) DO UPDATE SET seq = excluded.seq WHERE excluded.seq > hook_positions.seq
    """,
    "run_artifacts": """
        (id) DO UPDATE SET status = excluded.status
        WHERE excluded.status = 'rolled_back' AND run_artifacts.status = 'active'
    """,
    "embedding_sources": "DO NOTHING",
}


@cache
def _statements() -> dict[str, str]:
    return {
        table.name: f"{put(kind, table.name)} ON CONFLICT {_LESS[table.name]}"
        if table.name in _LESS
        else f"{put(kind, table.name, key=table.key)} WHERE {_WINS.get(table.name, 'TRUE')}"
        for table, kind in zip(schema.tables(), export.kinds().values(), strict=True)
    }


class Import:
    """A file on its way into a database, with what later lines need to know of earlier ones."""

    def __init__(self, conn: sqlite3.Connection, *, now_ms: int) -> None:
        self.conn = conn
        self.now_ms = now_ms
        self.runs: set[str] = set()  # those that the file has brought
        self.signals: Counter[tuple[Any, ...]] = Counter()
        self.lanes: dict[str, str] = {}  # the ids that they have here, by those of the file

    def take(self, line: Any) -> bool | None:
        """Whether the row was written; None for a line of our own books."""
        if isinstance(line, Header | End):
            raise UnreadableInput("unexpected header or end")
        table = type(line).__name__
        for column, check in _RULES.get(table, {}).items():
            value = getattr(line, column)
            if value is not None:
                check(value)
        if table in _OF_RUN and self.find(_RUN, line.run_id) is None:
            raise UnreadableInput(f"there is no run {shown(line.run_id)} before it")
        return False if self._has_expired(line) else _TAKE.get(table, Import.put)(self, line)

    def put(self, line: Any) -> bool:
        statement = _statements()[type(line).__name__]
        return self.conn.execute(statement, structs.astuple(line)).rowcount > 0

    def find(self, statement: str, *values: object) -> Any:
        """The first column of the row, if there is one."""
        row = self.conn.execute(statement, values).fetchone()
        return row[0] if row else None

    def next(self, counter: str) -> int:
        return int(self.find(_NEXT, counter))

    def _has_expired(self, line: Any) -> bool:
        moment = getattr(line, "expires_ms", None)
        if (moment is None) != (getattr(line, "expires_at", moment) is None):
            raise UnreadableInput("expires_at and expires_ms go together")
        return moment is not None and moment <= self.now_ms


# --- what no command could have stored ------------------------------------------------------------


def _check_payload(text: str) -> None:
    payloads.check(text.encode())


def _check_json(what: str, text: str) -> None:
    """No more than that: the original stored what our own commands may not, and the log quotes what
    is no payload, such as the title of a discovery."""
    if not payloads.is_json(text):
        raise UnreadableInput(f"{what} is not JSON")


def _check_text_of_run(parse: Callable[[str], object], text: str) -> None:
    """What no run could have been created with would make every command on it fail."""
    try:
        parse(text)
    except (InvalidChain, InvalidGates) as exc:
        raise UnreadableInput(exc.message) from exc


_RULES: dict[str, dict[str, Callable[[Any], object]]] = {
    "state": {"key": check_key, "scope_id": check_scope, "payload": _check_payload},
    "sentinels": {"name": check_name, "scope_id": check_scope},
    "events": {
        "source": events.check_source,
        "type": check_name,
        "run_id": check_scope,
        "subject_id": check_scope,
        "payload": partial(_check_json, "the payload of an event"),
    },
    "cursors": {"consumer": check_name, "run_id": check_scope},
    "runs": {
        "id": check_name,
        "phase": check_name,
        "scope_id": check_scope,
        "phases": partial(_check_text_of_run, phases.parse),
        "gates": partial(_check_text_of_run, gates.parse),
        "actions": _check_payload,
    },
    "run_skips": {"phase": check_name},
    "run_agents": {"id": check_name},
    "run_artifacts": {"id": check_name},
    "dispatches": {"id": check_name, "scope_id": check_scope},
    "leases": {"name": check_name, "scope_id": check_scope},
    "reservations": {
        "id": check_name,
        "owner": check_owner,
        "scope": check_scope,
        "pattern": reservations.check_pattern,
        "reason": check_scope,
    },
    "sessions": {
        "session_id": check_scope,
        "agent_type": check_scope,
        "model": check_scope,
        "metadata": _check_payload,
    },
    "attributions": dict.fromkeys(("session_id", "bead_id", "run_id", "phase"), check_scope),
    "run_actions": {
        **dict.fromkeys(("phase", "command", "action_type", "mode"), check_name),
        "args": actions.check_args,
    },
    "lanes": {"id": check_name, "name": check_name, "metadata": payloads.check_object},
    "lane_members": {"bead_id": check_name},
    "discoveries": {
        "id": check_name,
        "source": check_name,
        "source_id": check_name,
        "raw_metadata": partial(_check_json, "raw_metadata"),
    },
    "embedding_sources": {"source": check_name},
    "embeddings": {"vector": vectors.parse},
    "feedback_signals": {
        "signal_type": check_name,
        "actor": check_scope,
        "idempotency_key": check_name,
        "signal_data": partial(_check_json, "signal_data"),
    },
}


# --- what is taken in -----------------------------------------------------------------------------


def _counter(file: Import, line: Any) -> None:
    file.conn.execute(_COUNT, (line.name, line.value))
    if line.name == "events_pruned":  # cursors over there have read that far
        events.go_on_after(file.conn, line.value)


def _state(file: Import, line: Any) -> bool:
    there = state.get(file.conn, line.key, line.scope_id, now_ms=file.now_ms)
    if there is not None and there.updated_at >= line.updated_at:
        return False
    line.version = file.next("state")
    return file.put(line)


def _event(file: Import, line: Any) -> bool:
    return line.seq > events.head(file.conn) and file.put(line)


def _hook_position(file: Import, line: Any) -> bool:
    """What hooks had over there is not delivered here again, as far as its events are here."""
    line.seq, line.started = min(line.seq, events.head(file.conn)), 0
    return file.put(line)


def _run(file: Import, line: Any) -> bool:
    claim = line.project_dir, line.scope_id, line.id
    if line.status == "active" and file.find(_HOLDER, *claim):
        line.status, line.completed_at = "abandoned", file.now_ms // 1000
    if not file.put(line):
        return False
    file.conn.execute(_FORGET_SKIPS, (line.id,))
    file.runs.add(line.id)
    return True


def _skip(file: Import, line: Any) -> bool:
    return line.run_id in file.runs and file.put(line)


def _lease(file: Import, line: Any) -> bool:
    # The next acquisition must get a larger token, whatever the file's counter says.
    file.conn.execute(_COUNT, ("leases", line.token))
    return file.put(line)


def _reservation(file: Import, line: Any) -> bool:
    key = reservations.key_if_free(
        file.conn,
        line.scope,
        line.pattern,
        line.owner,
        exclusive=bool(line.exclusive),
        now_ms=file.now_ms,
    )
    if key is None:
        return False
    line.key = key
    return file.put(line)


def _session(file: Import, line: Any) -> bool:
    """Its number is given here: another session may have the one that it had over there."""
    key = line.session_id, line.project_dir
    there = tuple(getattr(line, name) for name in _TOKENS)
    number, *before = file.conn.execute(_SESSION, key).fetchone() or (None, 0, 0, 0, 0)
    line.id = number or file.next("sessions")
    is_written = file.put(line)
    most = tuple(map(max, before, there))
    return file.conn.execute(_RAISE, (*most, *key, *most)).rowcount > 0 or is_written


def _action(file: Import, line: Any) -> bool:
    """Its number is given here, as a session's."""
    line.id = file.find(_ACTION, line.run_id, line.phase, line.command) or file.next("run_actions")
    return file.put(line)


def _lane(file: Import, line: Any) -> bool:
    theirs = line.id
    line.id = file.lanes[theirs] = file.find(_LANE_NAMED, line.name) or theirs
    return file.put(line)


def _lane_member(file: Import, line: Any) -> bool:
    line.lane_id = file.lanes.get(line.lane_id, line.lane_id)
    if file.find(_LANE, line.lane_id) is None:
        raise UnreadableInput(f"there is no lane {shown(line.lane_id)} before it")
    return file.put(line)


def _discovery(file: Import, line: Any) -> bool:
    """A discovery never changes its source: its embedding, and what compares with that, rely on
    it.  So one that is here under another id, or whose id is that of another find, stays."""
    mine = line.id, line.source, line.source_id
    here = file.conn.execute(_SAME, mine).fetchall()
    if any(row[:3] != mine or _LIFE.index(row[3]) >= _LIFE.index(line.status) for row in here):
        return False
    line.version = file.next("discoveries")
    return file.put(line)


def _embedding(file: Import, line: Any) -> bool:
    source = file.find(_BARE, line.discovery_id)
    if source is None:
        return False
    try:
        vectors.store(file.conn, line.discovery_id, source, line.vector)
    except DimensionMismatch:
        return False
    # A daemon that keeps vectors in memory looks at versions.
    file.conn.execute(_TOUCH, (file.next("discoveries"), line.discovery_id))
    return True


def _signal(file: Import, line: Any) -> bool:
    if file.find(_FOUND, line.discovery_id) is None:
        return False
    signal = structs.astuple(line)[1:]
    file.signals[signal] += 1
    if file.find(_EQUAL, *signal) >= file.signals[signal]:
        return False
    return file.conn.execute(_PUT_FEEDBACK, signal).rowcount > 0


def _profile(file: Import, line: Any) -> bool:
    keywords = profiles.check_weights(line.keyword_weights.encode())
    sources = profiles.check_weights(line.source_weights.encode())
    topic = None if line.topic_vector is None else vectors.parse(line.topic_vector)
    there = profiles.get(file.conn)
    if there.version and there.updated_at >= line.updated_at:
        return False
    version = max(there.version + 1, line.version)
    profiles.put(file.conn, profiles.Profile(version, topic, keywords, sources, line.updated_at))
    return True


# The rows of other tables are put as they are.
_TAKE: dict[str, Callable[[Import, Any], bool | None]] = {
    "migrations": lambda _file, _line: None,  # this database has a history of its own
    "counters": _counter,
    "state": _state,
    "events": _event,
    "hook_positions": _hook_position,
    "runs": _run,
    "run_skips": _skip,
    "leases": _lease,
    "reservations": _reservation,
    "sessions": _session,
    "run_actions": _action,
    "lanes": _lane,
    "lane_members": _lane_member,
    "discoveries": _discovery,
    "embeddings": _embedding,
    "feedback_signals": _signal,
    "interest_profile": _profile,
}


def check_header(line: object) -> None:
    if not isinstance(line, Header):
        raise UnreadableInput("the first line is not a header", hint="use a file of 'icctl export'")
    if line.schema > migrate.LATEST:
        raise SchemaTooNew(
            f"it has schema v{line.schema}, newer than v{migrate.LATEST} of this intercore "
            f"{__version__}; it was written by intercore {line.program}",
            hint="upgrade intercore; nothing was imported",
        )
    if line.schema < migrate.LATEST:
        raise UnreadableInput(
            f"it has schema v{line.schema}, not v{migrate.LATEST}",
            hint="restore a backup of that time instead; restore upgrades it",
        )
