"""A project on a server, for those who make it and those who ask how it is."""

from __future__ import annotations

import time

from msgspec import Struct

from icd.db.postgres import connect, schema
from icd.db.postgres.session import Session

# Of so many trips the shortest is that of the network.
TRIPS = 5


class Facts(Struct, frozen=True):
    """What a person wants to know of a server; `version` is the schema's, 0: there are no tables.

    `ahead_ms`: how far its clock is ahead of ours, give or take half a trip.
    """

    server: str
    role: str
    tls: bool
    trip_ms: float
    ahead_ms: int
    version: int
    holder: str | None


def create(store: str, project: str, *, deadline: float, now_ms: int) -> int:
    """Make the project's tables, or bring them up to date; which version they have then."""
    session = connect.connect(store, project, deadline=deadline)
    try:
        connect.probe(session, store, project, deadline=deadline)
        session.bounds.stop_at = deadline
        session.execute("BEGIN IMMEDIATE")
        session.execute(f"CREATE SCHEMA IF NOT EXISTS {connect.quoted(session.schema)}")
        schema.bring_up_to_date(session, create=True, now_ms=now_ms)
        session.execute("COMMIT")
        return schema.version(session)
    finally:
        session.close()


def look(store: str, project: str, *, deadline: float) -> Facts:
    session = connect.connect(store, project, deadline=deadline)
    try:
        trip_ms, ahead_ms = _clocks(session)
        (role,) = session.execute("SELECT current_user").fetchone()
        (server,) = session.execute("SELECT current_setting('server_version')").fetchone()
        return Facts(
            server=server.split()[0],
            role=role,
            tls=bool(session.link.ssl_in_use),
            trip_ms=trip_ms,
            ahead_ms=ahead_ms,
            version=schema.version(session),
            holder=session.holder(),
        )
    finally:
        session.close()


def _clocks(session: Session) -> tuple[float, int]:
    """The shortest trip, and how far the server's clock was ahead in the midst of it."""
    found = []
    for _ in range(TRIPS):
        began, at = time.monotonic(), time.time_ns()
        now_ms = session.ask_time()
        took_ms = (time.monotonic() - began) * 1000
        found.append((took_ms, now_ms - round(at / 1_000_000 + took_ms / 2)))
    return min(found)
