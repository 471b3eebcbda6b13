"""What was asked of a database and what was answered, and whether the database agrees.

A ledger holds every operation with its outcome: done, refused, or unknown, because the daemon died
before it answered.  `check` compares it with a database:

    - what was answered is there, with the very effect that the answer told;
    - what was refused has left nothing;
    - of what is unknown, everything is there or nothing;
    - nothing was done twice: every number that a database gives away belongs to one operation.

Most of it follows from writes that belong together: an operation with a request id leaves the row
of that id, and besides it a state row and its version, an event, a lease or reservations with their
events, a session and its tokens, a phase with its event.
"""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from icd.db import migrate
from tests.torture.suite import Broken

CHAIN = [f"p{number:02d}" for number in range(40)]
SOURCE = "torture"
RESERVED = "coordination"
ANCHOR = "anchor"  # a claim of another operation, over which this one must stumble
DIRECT = "direct"  # the key of rows that direct calls write; their request ids are their own


@dataclass
class Operation:
    """`refusal`: the name of the error that must be the answer; `outcome`: None is unknown."""

    id: str
    method: str
    params: dict[str, Any]
    refusal: str = ""
    outcome: dict[str, Any] | None = None

    def settle(self, response: dict[str, Any]) -> None:
        """Take the answer for what it is, if it can be one."""
        error = response.get("error", {}).get("data", {}).get("name", "")
        if error != self.refusal:
            raise Broken(f"{self} was answered {response}, not {self.refusal or 'with a result'}")
        self.outcome = {} if error else {"result": response.get("result")}

    def request(self, **where: Any) -> bytes:
        params = {**self.params, **where, "request_id": self.id, "deadline_ms": 60_000}
        call = {"jsonrpc": "2.0", "id": self.id, "method": self.method, "params": params}
        return json.dumps(call).encode() + b"\n"

    def claims(self) -> list[tuple[str, str, str]]:
        """The sentinels it claims: name, scope, id."""
        if self.method == "sentinel.check":
            return [(self.params["name"], self.params["scope_id"], self.id)]
        return [
            (guard["name"], guard["scope_id"], f"{self.id}#{number}")
            for number, guard in enumerate(self.params.get("guards", []))
            if guard["name"] != ANCHOR
        ]


@dataclass
class Ledger:
    operations: list[Operation] = field(default_factory=list)

    @property
    def unknown(self) -> list[Operation]:
        return [known for known in self.operations if known.outcome is None]

    def add(self, operation: Operation) -> Operation:
        self.operations.append(operation)
        return operation

    def check(self, path: Path) -> set[str]:
        """The ids of the operations that are there; raises `Broken`.

        It is a copy, with its log and without its shared memory: opening it recovers it.
        """
        try:
            with closing(sqlite3.connect(path)) as conn:
                conn.execute("PRAGMA synchronous = OFF")  # the copy is thrown away
                _check_whole(conn)
                return self._check(_Found(conn))
        except sqlite3.DatabaseError as exc:
            raise Broken(f"{path} is damaged: {exc}") from exc

    def _check(self, found: "_Found") -> set[str]:
        there = {known.id for known in self.operations if self._is_there(known, found)}
        for known in self.operations:
            if known.outcome is None:
                continue
            done = bool(known.outcome)
            _require(
                (known.id in there) == done,
                f"{known} was {'acknowledged and is lost' if done else 'refused and is there'}",
            )
            if done and known.id in found.requests:
                effect = found.requests[known.id][1]
                told = known.outcome["result"]
                _require(effect == told, f"{known} was told {told}, recorded is {effect}")
        self._check_state(found)
        self._check_sentinels(found, there)
        found.check_logs()
        return there

    def _is_there(self, known: Operation, found: "_Found") -> bool:
        if known.params.get("key") == DIRECT:
            return (DIRECT, known.params["scope_id"]) in found.state
        claims = known.claims()
        if not claims:
            return known.id in found.requests
        here = [found.sentinels.get((name, scope)) == claim for name, scope, claim in claims]
        _require(len(set(here)) == 1, f"{known} is half applied: {here}")
        return here[0]

    def _check_state(self, found: "_Found") -> None:
        asked = {known.id: known for known in self.operations}
        for name, (id_, effect) in found.last_writes().items():
            row = found.state.get(name)
            _require(row is not None, f"{name} was written by {id_} and is not there")
            assert row is not None
            payload, version = row
            _require(version == effect["version"], f"{name} has {version}, {id_} wrote {effect}")
            value = effect.get("value")
            if value is not None:
                _require(payload == value, f"{name} is {payload}, {id_} wrote {effect}")
            elif name[0] != DIRECT:
                known = asked.get(id_)
                wrote = known and known.params["payload"]
                _require(payload == wrote, f"{name} is {payload}, {id_} wrote {wrote}")
        strangers = found.state.keys() - found.last_writes().keys()
        _require(not strangers, f"nobody's effect is recorded for {sorted(strangers)[:5]}")

    def _check_sentinels(self, found: "_Found", there: set[str]) -> None:
        claimed = {
            claim[:2]: claim[2]
            for known in self.operations
            for claim in known.claims()
            if known.id in there
        }
        extra = found.sentinels.items() - claimed.items()
        _require(not extra, f"claims that nobody was granted: {sorted(extra)[:5]}")


class _Found:
    """The rows of a database."""

    def __init__(self, conn: sqlite3.Connection) -> None:
        def rows(sql: str) -> Iterator[Any]:
            return iter(conn.execute(sql).fetchall())

        self.requests = {
            id_: (method, json.loads(effect))
            for id_, method, effect in rows("SELECT id, method, effect FROM requests")
        }
        self.state = {
            (key, scope): (json.loads(payload), version)
            for key, scope, payload, version in rows(
                "SELECT key, scope_id, payload, version FROM state"
            )
        }
        self.sentinels = {
            (name, scope): id_
            for name, scope, id_ in rows("SELECT name, scope_id, request_id FROM sentinels")
        }
        self.counters = dict(rows("SELECT name, value FROM counters"))
        self.phases = [phase for (phase,) in rows("SELECT phase FROM runs")]
        self.leases = Counter(rows("SELECT name || '/' || scope_id, token FROM leases"))
        self.reservations = {id_ for (id_,) in rows("SELECT id FROM reservations")}
        self.tokens = dict(rows("SELECT session_id, input_tokens FROM sessions"))
        self.events = list(rows("SELECT seq, source, type, subject_id, payload FROM events"))

    def last_writes(self) -> dict[tuple[str, str], tuple[str, dict[str, Any]]]:
        """Who wrote each state row last, and with what effect, as the request ids tell it."""
        last: dict[tuple[str, str], tuple[str, dict[str, Any]]] = {}
        for id_, (_, effect) in self._of("state.").items():
            name = effect["key"], effect["scope_id"]
            if name not in last or last[name][1]["version"] < effect["version"]:
                last[name] = id_, effect
        return last

    def check_logs(self) -> None:
        """What is written together is there together, and once."""
        changes = self._of("state.")
        versions = sorted(effect["version"] for _, effect in changes.values())
        given = list(range(1, self.counters["state"] + 1))
        _require(versions == given, f"state was changed {len(given)} times for {len(versions)} ids")
        counts = Counter(
            (effect["key"], effect["scope_id"])
            for method, effect in changes.values()
            if method == "state.incr"
        )
        for name, count in counts.items():
            value = self.state[name][0]
            _require(value == count, f"{name} is {value} after {count} incr")
        recorded = {id_: effect["seq"] for id_, (_, effect) in self._of("events.").items()}
        events = [
            (json.loads(p)["op"], seq) for seq, source, _, _, p in self.events if source == SOURCE
        ]
        _require(sorted(events) == sorted(recorded.items()), _differ("events", events, recorded))
        self._check_leases()
        self._check_reservations()
        self._check_sessions()
        self._check_runs()

    def _check_leases(self) -> None:
        acquired = [effect for _, effect in self._of("lease.").values()]
        asked = Counter((f"{e['name']}/{e['scope_id']}", e["token"]) for e in acquired)
        told = Counter(
            (subject, json.loads(payload)["token"])
            for _, source, _, subject, payload in self.events
            if source == "lease"
        )
        _require(self.leases == asked, _differ("leases", self.leases, asked))
        _require(told == asked, _differ("events of leases", told, asked))
        given = self.counters["leases"]
        _require(given == len(asked), f"{given} tokens were given to {len(asked)} leases")

    def _check_reservations(self) -> None:
        asked = set()
        for _, effect in self._of("coordination.").values():
            asked |= {lock["id"] for lock in effect.get("locks") or [effect["lock"]]}
        told = Counter(subject for _, source, _, subject, _ in self.events if source == RESERVED)
        _require(self.reservations == asked, _differ("reservations", self.reservations, asked))
        _require(told == Counter(asked), _differ("events of reservations", told, Counter(asked)))

    def _check_sessions(self) -> None:
        counted = Counter(effect["session_id"] for _, effect in self._of("session.tokens").values())
        used = {session: count for session, count in self.tokens.items() if count}
        _require(used == counted, _differ("tokens", used, counted))
        started = len(self._of("session.start"))
        told = sum(source == "session" for _, source, _, _, _ in self.events)
        _require(told == started, f"{told} events of sessions for {started} requests")

    def _check_runs(self) -> None:
        moved = len(self._of("run.advance"))
        steps = sum(CHAIN.index(phase) for phase in self.phases)
        told = sum(source == "phase" for _, source, _, _, _ in self.events)
        _require(
            steps == told == moved,
            f"runs have moved {steps} phases, with {told} events, for {moved} requests",
        )
        made = len(self._of("run.create"))
        _require(len(self.phases) == made, f"{len(self.phases)} runs for {made} requests")

    def _of(self, prefix: str) -> dict[str, tuple[str, dict[str, Any]]]:
        return {id_: row for id_, row in self.requests.items() if row[0].startswith(prefix)}


def _check_whole(conn: sqlite3.Connection) -> None:
    verdicts = conn.execute("PRAGMA integrity_check").fetchall()
    _require(verdicts == [("ok",)], f"the database is damaged: {verdicts[:5]}")
    foreign = conn.execute("PRAGMA foreign_key_check").fetchall()
    _require(not foreign, f"rows refer to nothing: {foreign[:5]}")
    version = migrate.version(conn)
    _require(version == migrate.LATEST, f"user_version is {version}")


def _require(holds: bool, text: str) -> None:
    if not holds:
        raise Broken(text)


def _differ(what: str, found: Any, asked: Any) -> str:
    found, asked = (
        set(rows.items() if isinstance(rows, dict) else rows) for rows in (found, asked)
    )
    return f"{what}: {sorted(found - asked)[:5]} for nobody, {sorted(asked - found)[:5]} missing"
