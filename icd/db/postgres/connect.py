"""How a server is reached, and what it must be before a project's data is trusted to it.

Credentials are libpq's business: a service file, a password file, certificates, the environment of
the process that connects.  A password in a setting is refused by name.
"""

from __future__ import annotations

import os
import select
import time

import psycopg
from psycopg import conninfo, pq

from icd.db.postgres import errors
from icd.db.postgres.session import IDLE_MS, PREFIX, Session
from icd.errors import Misconfigured, StoreUnfit, StoreUnreachable

OLDEST = 140000  # PostgreSQL 14
CONNECT_SECONDS = 10.0
_SECRET = {"password", "sslpassword", "passfile", "sslkey"}
# A connection of ours is silent for as long as no call comes: the network must not forget it, and
# the server must notice when the machine is gone.
_USUAL = {
    "connect_timeout": "5",
    "keepalives_idle": "30",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
    "target_session_attrs": "read-write",
    "client_encoding": "UTF8",
}
_SETTINGS = (
    "SELECT set_config('search_path', ?, false),"
    " set_config('idle_in_transaction_session_timeout', ?, false),"
    " set_config('synchronous_commit', 'on', false),"
    " set_config('standard_conforming_strings', 'on', false),"
    " set_config('TimeZone', 'UTC', false),"
    " current_setting('server_encoding')"
)


def parameters(store: str) -> dict[str, str]:
    """What a setting says, judged; `Misconfigured` if it says more than it may."""
    try:
        given = conninfo.conninfo_to_dict(store)
    except psycopg.Error as exc:
        told = errors.one_line(str(exc))
        raise Misconfigured(f"the store is not a place of a server: {told}") from exc
    found = {name: str(value) for name, value in given.items() if value is not None}
    secret = sorted(_SECRET & found.keys())
    if secret:
        raise Misconfigured(
            f"the store names a {secret[0]}",
            hint="leave it to libpq: a service file, or ~/.pgpass of the daemon's user",
        )
    return found


def connect(store: str, project: str, *, deadline: float) -> Session:
    """A connection of this project, with everything set; nothing is known yet of its tables."""
    # By its name, a person finds the machine that holds a turn.
    name = {"application_name": f"intercore on {os.uname().nodename}"[:63]}
    given = _USUAL | name | parameters(store)
    link = _linked(conninfo.make_conninfo("", **given), deadline)
    try:
        return _set_up(link, PREFIX + project, deadline)
    except BaseException:
        link.finish()
        raise


def _set_up(link: pq.abc.PGconn, schema: str, deadline: float) -> Session:
    if link.server_version < OLDEST:
        version = link.server_version // 10000
        raise StoreUnfit(f"the server is PostgreSQL {version}", hint="use 14 or newer")
    session = Session(link, schema)
    path = f"{quoted(schema)}, pg_catalog"
    with session.within(deadline - time.monotonic()):
        row = session.execute(_SETTINGS, (path, str(IDLE_MS))).fetchone()
    if row[-1] != "UTF8":
        raise StoreUnfit(
            f"the database on the server has the encoding {row[-1]}",
            hint="create one with: createdb --encoding=UTF8 --template=template0 NAME",
        )
    return session


def probe(first: Session, store: str, project: str, *, deadline: float) -> None:
    """Refuse a server whose locks are no locks: a second connection has to wait for the first."""
    second = connect(store, project, deadline=deadline)
    try:
        key = first.key ^ 1  # not that of the project, which may be in use
        first.execute("BEGIN")
        first.execute("SELECT pg_advisory_xact_lock(?)", (key,)).fetchone()
        (is_free,) = second.execute("SELECT pg_try_advisory_lock(?)", (key,)).fetchone()
        held = first.execute(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
        ).fetchone()
        first.give_up()
    finally:
        second.close()
    if is_free or held[0] < 1:
        raise StoreUnfit(
            "two connections to the server hold the same lock: its advisory locks are no locks",
            hint="use PostgreSQL itself, without a pool that shares connections",
        )


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _linked(info: str, deadline: float) -> pq.abc.PGconn:
    """Connect without ever waiting longer than the deadline, or than a person has patience."""
    until = min(deadline, time.monotonic() + CONNECT_SECONDS)
    try:
        link = pq.PGconn.connect_start(info.encode())
    except (psycopg.Error, OSError) as exc:
        raise errors.lost(str(exc)) from exc
    try:
        _polled(link, until)
    except BaseException:
        link.finish()
        raise
    return link


def _polled(link: pq.abc.PGconn, until: float) -> None:
    poll = select.poll()
    while True:
        if link.status == pq.ConnStatus.BAD:
            raise errors.lost(link.get_error_message())
        state = link.connect_poll()
        if state == pq.PollingStatus.OK:
            return
        if state == pq.PollingStatus.FAILED:
            raise errors.lost(link.get_error_message())
        wants = select.POLLIN if state == pq.PollingStatus.READING else select.POLLOUT
        poll.register(link.socket, wants)
        if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
            raise StoreUnreachable("the store does not answer")
        poll.unregister(link.socket)
