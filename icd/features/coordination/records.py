"""A reservation: its row, what callers see of it, and what the log says of it."""

import sqlite3
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from icd.features.coordination.globs import Glob
from icd.features.events import store as events
from icd.features.events.store import Fact
from icd.features.leases.store import about
from icd.values import processes
from icd.values.processes import Liveness, Process, Writer
from icd.values.wire import Result, iso, iso_if

SOURCE = "coordination"
Type = Literal["file_reservation", "named_lock", "write_set"]


class Lock(Result):
    """A reservation, as it is stored; `pid` is that of the process that it ends with."""

    id: str
    type: str
    owner: str
    scope: str
    pattern: str
    exclusive: bool
    reason: str
    ttl_ms: int | None
    run_id: str
    dispatch_id: str
    created_at: int
    renewed_ms: int
    expires_at: int | None
    expires_ms: int | None
    session: str | None
    pid: int | None
    pid_start: int | None
    pid_boot: str | None
    pid_ns: str | None
    key: str

    @property
    def process(self) -> Process | None:
        if self.pid is None:
            return None
        return Process(self.pid, self.pid_start or 0, self.pid_boot or "", self.pid_ns or "")


class Shown(Result):
    """A reservation; `alive` tells of the process that it ends with, if there is one."""

    id: str
    type: str
    owner: str
    scope: str
    pattern: str
    exclusive: bool
    active: bool
    reason: str
    ttl_seconds: int | None
    created_at: int
    created_at_iso: str
    expires_at: int | None
    expires_at_iso: str | None
    age_seconds: int
    alive: Liveness
    session: str | None = field(name="writer_session")
    pid: int | None = None
    run_id: str = ""
    dispatch_id: str = ""

    @property
    def told(self) -> str:
        """Who holds it, for people: the owner, the age, the session, whether it is alive."""
        age = self.age_seconds
        parts = [f"for {about(age * 1000) if age > 2 else f'{age}s'}"]
        if self.session and self.session != self.owner:
            parts.append(f"session {self.session}")
        if self.pid is not None:
            parts.append(f"process {self.pid} is {self.alive}")
        if self.expires_at_iso:
            parts.append(f"until {self.expires_at_iso}")
        mode = "exclusively" if self.exclusive else "shared"
        why = f": {self.reason}" if self.reason else ""
        return f"{self.pattern} is held {mode} by {self.owner} ({', '.join(parts)}){why}"


class Wish(Struct, frozen=True):
    """What an owner wants to reserve."""

    owner: str
    scope: str
    glob: Glob
    exclusive: bool = True
    type: Type = "file_reservation"
    ttl_ms: int | None = None
    reason: str = ""
    run_id: str = ""
    dispatch_id: str = ""
    process: Process | None = None


def stands(lock: Lock, *, now_ms: int) -> bool:
    return (lock.expires_ms is None or lock.expires_ms > now_ms) and not is_dead(lock)


def alive(lock: Lock) -> Liveness:
    process = lock.process
    return "unknown" if process is None else processes.liveness(process)


def is_dead(lock: Lock) -> bool:
    """Whether the process that it ends with is certainly gone."""
    return lock.pid is not None and alive(lock) == "dead"


def shown(lock: Lock, *, now_ms: int) -> Shown:
    return Shown(
        lock.id,
        lock.type,
        lock.owner,
        lock.scope,
        lock.pattern,
        bool(lock.exclusive),
        stands(lock, now_ms=now_ms),
        lock.reason,
        None if lock.ttl_ms is None else -(-lock.ttl_ms // 1000),
        lock.created_at,
        iso(lock.created_at),
        lock.expires_at,
        iso_if(lock.expires_at),
        max(0, now_ms // 1000 - lock.created_at),
        alive(lock),
        lock.session,
        lock.pid,
        lock.run_id,
        lock.dispatch_id,
    )


def tell(
    conn: sqlite3.Connection,
    lock: Lock,
    change: str,
    *,
    previous: str | None = None,
    actor: Writer,
    now_ms: int,
) -> None:
    said: dict[str, Any] = {
        "owner": lock.owner,
        "scope": lock.scope,
        "pattern": lock.pattern,
        "exclusive": bool(lock.exclusive),
    }
    if lock.expires_ms is not None and change != "released":
        said["expires_ms"] = lock.expires_ms
    if previous is not None:
        said["previous_owner"] = previous
    _append(conn, change, lock.id, lock.run_id, said, actor=actor, now_ms=now_ms)


def tell_conflict(
    conn: sqlite3.Connection, wish: Wish, blocker: Lock, *, actor: Writer, now_ms: int
) -> None:
    said = {
        "owner": wish.owner,
        "scope": wish.scope,
        "pattern": wish.glob.text,
        "exclusive": wish.exclusive,
        "blocker_owner": blocker.owner,
        "blocker_pattern": blocker.pattern,
    }
    _append(conn, "conflict", blocker.id, wish.run_id, said, actor=actor, now_ms=now_ms)


def _append(
    conn: sqlite3.Connection,
    change: str,
    subject: str,
    run_id: str,
    said: dict[str, Any],
    *,
    actor: Writer,
    now_ms: int,
) -> None:
    payload = msgspec.json.encode(said).decode()
    fact = Fact(SOURCE, change, run_id=run_id, subject_id=subject, payload=payload)
    events.append(conn, fact, actor=actor, now_ms=now_ms)
