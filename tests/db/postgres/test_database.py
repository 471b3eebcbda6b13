"""The engine that is a server, with the calls of real verbs, from several hosts."""

import math
import os
import re
import select
import sqlite3
import threading
import time

import pytest
from msgspec import Raw

from icd.db import migrate
from icd.db.postgres import connect, project, schema
from icd.db.postgres.session import lock_key
from icd.errors import (
    DeadlineExceeded,
    InvalidPayload,
    Locked,
    Misconfigured,
    NoDatabase,
    OnServer,
    PermissionRefused,
    StoreUnfit,
    StoreUnreachable,
    UnknownOutcome,
)
from tests.support.proxies import Proxy

CHECK = {"name": "stop", "scope_id": "s", "interval": 600}


def written(text):
    return {"key": "k", "scope_id": "s", "payload": Raw(text.encode())}


def test_of_two_hosts_one_wins_whatever_their_clocks_say(host):
    here, there = host(), host()
    there.clock.wall_ms += 3_600_000

    first = here.result("sentinel.check", **CHECK)
    second = there.result("sentinel.check", **CHECK)

    assert (first.allowed, second.allowed) == (True, False)
    assert abs(first.last_fired - time.time()) < 60


def test_a_lease_of_another_host_is_not_taken_over_because_a_clock_is_fast(host):
    here, there = host(), host()
    there.clock.wall_ms += 3_600_000
    lease = {"name": "l", "scope_id": "s", "ttl_ms": 60_000}

    here.result("lease.acquire", owner="a", **lease)
    refused = there.ask("lease.acquire", owner="b", **lease).error

    assert refused.name == "lease_held"


def test_many_hosts_claim_and_append_and_nothing_is_lost_or_has_a_gap(host):
    hosts = [host() for _ in range(4)]
    won, told = [], []

    def work(each):
        for number in range(25):
            calls = [
                each.call("sentinel.check", name=f"n{number}", scope_id="s", interval=0),
                each.call("events.record", source="tests", type="x"),
            ]
            checked, recorded = each.run(*calls)
            won.extend([number] if checked.result.allowed else [])
            told.append(recorded.result.seq)

    threads = [threading.Thread(target=work, args=(each,)) for each in hosts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(won) == list(range(25))
    assert sorted(told) == list(range(1, 101))


def test_a_call_that_fails_leaves_its_neighbours_alone(host):
    here = host()
    good = here.call("state.set", **written('"a"'))
    bad = here.call("run.status", run_id="nowhere")
    nul = here.call("state.set", key="k", scope_id="\0", payload=Raw(b"1"))
    more = here.call("events.record", source="tests", type="x")

    answers = here.run(good, bad, nul, more)

    assert [a.error and a.error.name for a in answers] == [
        None, "run_not_found", "invalid_payload", None,
    ]  # fmt: skip
    assert bytes(here.result("state.get", key="k", scope_id="s").payload) == b'"a"'


def test_text_with_a_nul_is_refused_by_name(session):
    with pytest.raises(InvalidPayload, match="NUL"):
        session.execute("SELECT ?", ("\0",))


def test_a_reader_neither_waits_nor_writes(host, tables):
    here = host()
    holder = tables[0]()
    holder.execute("BEGIN")
    holder.execute("SELECT pg_advisory_xact_lock(?)", (lock_key(holder.schema),))
    try:
        assert here.ask("state.get", key="k", scope_id="s", seconds=5).error is None
        refused = here.ask("state.set", seconds=0.3, **written("1")).error
    finally:
        holder.execute("ROLLBACK")

    assert isinstance(refused, Locked)
    assert f"intercore on {os.uname().nodename} of the role fleet" in refused.message
    assert here.ask("state.set", **written("1")).error is None


def test_what_another_host_wrote_is_noticed_and_heard(host):
    here, there = host(careful=True), host()
    here.result("state.list", key="k")
    noticed = here.engine.foreign

    there.result("state.set", **written("1"))
    ready, _, _ = select.select([here.engine.signal], [], [], 10)
    here.result("state.list", key="k")

    assert ready
    assert here.engine.foreign == noticed + 1


def test_what_this_host_wrote_is_no_news_to_it(host):
    here = host(careful=True)
    here.result("state.set", **written("1"))
    noticed = here.engine.foreign

    here.result("state.set", **written("2"))
    here.result("state.list", key="k")

    assert here.engine.foreign == noticed


def test_a_connection_that_was_ended_is_made_anew(host, tables):
    here = host()
    here.result("state.set", **written("1"))

    tables[0]().execute(
        "SELECT pg_terminate_backend(?::int)", (here.engine._session.link.backend_pid,)
    ).fetchone()

    assert bytes(here.result("state.get", key="k", scope_id="s").payload) == b"1"


def test_a_project_on_a_server_is_healthy_and_tells_its_schema(host):
    here = host()

    assert here.result("db.health").healthy
    assert here.result("db.schema").schema == migrate.LATEST


def test_files_are_not_to_be_had(host):
    for method in ("db.check", "db.vacuum", "backup.create"):
        assert isinstance(host().ask(method).error, OnServer)


def test_without_its_file_there_is_no_project(host):
    here = host()
    here.result("state.set", **written("1"))
    os.unlink(here.engine.path)

    assert isinstance(here.ask("state.get", key="k", scope_id="s").error, NoDatabase)


def test_nothing_is_decided_while_the_server_is_away(host, tmp_path):
    here = host(store=f"postgresql:///fleet?host={tmp_path}")

    began = time.monotonic()
    refused = [here.ask("sentinel.check", **CHECK).error for _ in range(5)]

    assert all(isinstance(error, StoreUnreachable) for error in refused)
    assert time.monotonic() - began < 5
    file = sqlite3.connect(here.engine.path)
    assert file.execute("SELECT count(*) FROM sentinels").fetchone() == (0,)
    file.close()


@pytest.fixture
def door(tmp_path_factory, postgres):
    """A way to the server that can be cut."""
    directory = tmp_path_factory.mktemp("d")
    proxy = Proxy(directory, f"{postgres.root}/.s.PGSQL.5432")
    proxy.store = f"postgresql://fleet@/fleet?host={directory}"
    yield proxy
    proxy.close()


def test_a_commit_without_an_answer_has_an_unknown_outcome_and_is_not_run_again(host, door):
    here, other = host(store=door.store), host()
    here.result("state.get", key="k", scope_id="s")
    door.cut_at = b"pg_notify"  # travels with the COMMIT
    before = other.result("events.record", source="tests", type="before").seq

    calls = [here.call("events.record", source="tests", type=t) for t in ("a", "b")]
    answers = here.run(*calls)

    assert [type(answer.error) for answer in answers] == [UnknownOutcome] * 2
    after = other.result("events.record", source="tests", type="after").seq
    assert after - before in (1, 3), "both or neither, and never twice"


def test_a_connection_lost_before_the_commit_changes_nothing_and_is_told_or_repeated(host, door):
    here, other = host(store=door.store), host()
    here.result("state.get", key="k", scope_id="s")
    door.cut_at = b"INSERT INTO events"

    answer = here.ask("events.record", source="tests", type="a")

    assert isinstance(answer.error, StoreUnreachable)
    assert other.result("events.record", source="tests", type="b").seq == 1


def test_a_host_that_falls_silent_in_its_turn_loses_it(host, tables):
    here, silent = host(), tables[0]()
    silent.execute("BEGIN IMMEDIATE")

    answer = here.ask("state.set", seconds=20, **written("1"))

    assert answer.error is None
    with pytest.raises((DeadlineExceeded, StoreUnreachable)):
        silent.execute("SELECT 1")
    silent.close()


def test_a_statement_ends_at_its_deadline(session):
    session.bounds.stop_at = time.monotonic() + 0.3
    session.begin(write=False)

    with pytest.raises(DeadlineExceeded):
        session.execute("SELECT pg_sleep(30)")

    session.bounds.end()


def test_the_deadline_of_a_call_is_not_that_of_what_follows_it(host):
    here = host()

    here.result("state.set", **written("1"))
    refused = here.ask("state.get", key="", scope_id="s").error
    session = here.engine._session

    assert session.until == math.inf
    assert session.bounds.stop_at == math.inf
    assert not refused or refused.name != "store_unreachable"
    assert abs(here.engine.time_ms(lambda: 0) - time.time() * 1000) < 60_000


# --- what a server must be -----------------------------------------------------------------------


@pytest.mark.parametrize("word", ["password=secret", "passfile=/x", "sslpassword=x"])
def test_a_setting_with_a_secret_is_refused_by_name(word):
    with pytest.raises(Misconfigured, match=word.partition("=")[0]):
        connect.parameters(f"host=db.example dbname=x {word}")


def test_a_url_with_a_password_is_refused_and_the_password_is_not_told():
    with pytest.raises(Misconfigured) as told:
        connect.parameters("postgresql://me:hunter2@db.example/x")

    assert "hunter2" not in told.value.message


def test_what_is_no_place_of_a_server_is_refused():
    with pytest.raises(Misconfigured, match="place"):
        connect.parameters("host=x nonsense=y")


def test_a_server_with_another_encoding_is_refused(postgres):
    postgres._run("createdb", "-h", postgres.root, "-U", "fleet", "-E", "SQL_ASCII",
                  "-T", "template0", "ascii")  # fmt: skip

    with pytest.raises(StoreUnfit, match="SQL_ASCII"):
        connect.connect(
            postgres.store.replace("/fleet?", "/ascii?"), "p", deadline=time.monotonic() + 20
        )


def test_locks_that_are_locks_pass_the_probe(session, postgres):
    connect.probe(session, postgres.store, "tests/store", deadline=time.monotonic() + 20)


# --- a project ------------------------------------------------------------------------------------


def test_a_project_is_made_once_and_looked_at(postgres):
    for _ in range(2):
        made = project.create(
            postgres.store, "tests/new", deadline=time.monotonic() + 60, now_ms=1_800_000_000_000
        )

    found = project.look(postgres.store, "tests/new", deadline=time.monotonic() + 20)

    assert made == found.version == migrate.LATEST
    assert (found.role, found.tls, found.holder) == ("fleet", False, None)
    assert re.match(r"\d+\.\d+", found.server)
    assert abs(found.ahead_ms) < 5000
    assert found.trip_ms > 0


def test_a_role_without_rights_is_told_whom_to_ask(postgres, session):
    session.execute("CREATE ROLE guest LOGIN")
    store = postgres.store.replace("fleet@", "guest@")

    with pytest.raises(PermissionRefused, match="refuses this role") as told:
        project.create(store, "tests/guest", deadline=time.monotonic() + 60, now_ms=0)

    session.execute("DROP ROLE guest")
    assert "administrator" in told.value.hint


# --- the schema -----------------------------------------------------------------------------------


def test_a_project_without_tables_is_told_how_to_make_them(postgres):
    found = connect.connect(postgres.store, "nowhere", deadline=time.monotonic() + 20)
    found.execute("BEGIN")

    with pytest.raises(NoDatabase):
        schema.bring_up_to_date(found, create=False, now_ms=0)

    found.close()


def test_the_tables_have_the_columns_of_a_file(session, empty_database):
    file = sqlite3.connect(empty_database)
    tables = [
        name for (name,) in file.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
    ]
    for table in tables:
        ours = {
            row[1]: bool(row[3] or row[5]) for row in file.execute(f"PRAGMA table_info({table})")
        }
        rows = session.execute(
            "SELECT column_name, is_nullable FROM information_schema.columns"
            " WHERE table_schema = ? AND table_name = ?",
            (session.schema, table),
        ).fetchall()
        theirs = {name: nullable == "NO" for name, nullable in rows if name != "rowid"}
        if table != "sqlite_sequence":
            assert theirs == ours, table
    indexes = file.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL"
    )
    there = session.execute(
        "SELECT indexname FROM pg_indexes WHERE schemaname = ?", (session.schema,)
    ).fetchall()
    assert {name for (name,) in indexes} <= {name for (name,) in there}
    file.close()


# --- who is alive elsewhere -----------------------------------------------------------------------


def test_a_process_of_another_machine_is_not_taken_for_dead(host):
    here, there = host(), host()
    wish = {"pattern": "src/*.py", "scope": "/p", "exclusive": True}
    here.result("coordination.reserve", owner="a", **wish)
    here.engine._session.execute(
        "UPDATE reservations SET pid = 1, pid_start = 7, pid_boot = 'of another machine'"
    )

    refused = there.result("coordination.reserve", owner="b", **wish)

    assert refused.conflict is not None
