"""A server that is killed again and again, under hosts that go on: nothing acknowledged is lost."""

import threading
import time
from collections import Counter

import pytest

pytest.importorskip("psycopg")

from icd.db.postgres import project
from icd.errors import IcError, StoreUnreachable, UnknownOutcome
from tests.db.postgres.conftest import PROJECT, Host
from tests.support.postgres import Server, directory
from tests.support.sizes import size

pytestmark = pytest.mark.long

KILLS = size(200, 6)
HOSTS = 3


@pytest.fixture
def server():
    programs = directory()
    if programs is None:
        pytest.skip("no PostgreSQL is installed: apt-get install postgresql")
    found = Server(programs)
    project.create(found.store, PROJECT, deadline=time.monotonic() + 60, now_ms=0)
    yield found
    found.stop()


def test_what_was_acknowledged_is_there_once_after_every_kill(server, tmp_path, empty_database):
    hosts = [Host(tmp_path / str(n), empty_database, server.store) for n in range(HOSTS)]
    acknowledged, unknown, refused = [[] for _ in hosts], [[] for _ in hosts], Counter()
    stop = threading.Event()

    def work(mine):
        host, number = hosts[mine], 0
        while not stop.is_set():
            names = [f"{mine}-{number + i}" for i in range(4)]
            number += 4
            calls = [
                host.call("events.record", source="tests", type="x", subject_id=name)
                for name in names
            ]
            for name, answer in zip(names, host.run(*calls), strict=True):
                if answer.error is None:
                    acknowledged[mine].append((answer.result.seq, name))
                elif isinstance(answer.error, UnknownOutcome):
                    unknown[mine].append(name)
                else:
                    assert isinstance(answer.error, IcError)
                    refused[type(answer.error).__name__] += 1
                    stop.wait(0.01)

    threads = [threading.Thread(target=work, args=(mine,)) for mine in range(HOSTS)]
    for thread in threads:
        thread.start()
    for kill in range(KILLS):
        known = sum(map(len, acknowledged))
        until = time.monotonic() + 60
        while sum(map(len, acknowledged)) < known + 20:
            assert time.monotonic() < until, f"nothing is acknowledged any more: {refused}"
            time.sleep(0.005)
        time.sleep((kill % 7) / 500)
        server.kill()
        server.start()
    stop.set()
    for thread in threads:
        thread.join()

    last = Host(tmp_path / "last", empty_database, server.store)
    last.result("state.list", key="k")
    rows = last.engine._session.execute(
        "SELECT seq, subject_id FROM events ORDER BY seq"
    ).fetchall()
    for host in (*hosts, last):
        host.engine.close()
    there, told = dict(rows), [pair for mine in acknowledged for pair in mine]
    doubtful = {name for mine in unknown for name in mine}
    assert [seq for seq, _ in rows] == list(range(1, len(rows) + 1)), "no gap"
    assert len(set(there.values())) == len(rows), "nothing twice"
    assert all(there.get(seq) == name for seq, name in told), "nothing acknowledged is lost"
    assert set(there.values()) - {name for _, name in told} <= doubtful, "nothing refused is there"
    assert set(refused) <= {StoreUnreachable.__name__}
    print(f"{len(told)} acknowledged, {len(doubtful)} unknown, {dict(refused)} refused")
