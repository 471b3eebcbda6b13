"""Searches in the daemon: exact, up to date, bounded, and in nobody's way."""

import base64
import json
import os
import select
import time
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest

from icd.app import registry
from icd.app.call import Answer, Call
from icd.app.dispatch import Clock, run_batch
from icd.config import DEFAULTS
from icd.db.database import Database
from icd.db.paths import Where
from icd.features.discoveries.search import Search
from icd.server.stores.searches import Searches
from icd.values.processes import Writer
from tests.support.discovered import Elsewhere, delete, discover, packed, set_status
from tests.support.processes import Daemon, icctl, read_line, running, until, vanish

EAST = base64.b64encode(packed(1.0, 0.0)).decode()
MEBIBYTE = 1024 * 1024


@pytest.fixture(scope="module", params=[512, 0], ids=["in memory", "paged"])
def daemon(request: pytest.FixtureRequest):
    """One that keeps everything in memory, and one that may keep nothing."""
    found = Daemon()
    try:
        path = found.home / ".config" / "intercore" / "config.toml"
        path.parent.mkdir(parents=True)
        path.write_text(f"vectors_max_mib = {request.param}\n")
        yield found.start()
    finally:
        found.close()


@pytest.fixture
def several(project: Path) -> Path:
    with Elsewhere(project) as conn:
        for i in range(5):
            discover(conn, f"d{i}", packed(1.0, i))
    return project


def search(daemon: Daemon, project: Path, **params: Any) -> list[str]:
    return [row["id"] for row in matches(daemon, project, **params)]


def matches(daemon: Daemon, project: Path, **params: Any) -> list[dict[str, Any]]:
    asked = {"cwd": str(project), "embedding": EAST} | params
    found: list[dict[str, Any]] = daemon.call("discovery.search", **asked)
    return found


def test_what_is_committed_is_found_by_the_next_search(daemon: Daemon, several: Path) -> None:
    before = search(daemon, several)
    with Elsewhere(several) as conn:
        discover(conn, "newest", packed(2.0, 0.1))
        set_status(conn, "d0", "dismissed")

    after = search(daemon, several)

    assert before == ["d0", "d1", "d2", "d3", "d4"]
    assert after == ["newest", "d1", "d2", "d3", "d4"]


def test_what_was_deleted_is_not_found_any_more(daemon: Daemon, several: Path) -> None:
    search(daemon, several)
    with Elsewhere(several) as conn:
        delete(conn, "d0")
        delete(conn, "d3")

    assert search(daemon, several) == ["d1", "d2", "d4"]


def test_a_database_that_was_replaced_is_searched_as_it_is_now(
    daemon: Daemon, several: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with Elsewhere(other) as conn:
        for i in range(5):  # as many changes as the daemon knows already
            discover(conn, f"e{i}", packed(1.0, i))
    search(daemon, several)

    os.replace(other / ".clavain" / "intercore.db", several / ".clavain" / "intercore.db")
    told = daemon.respond("discovery.search", cwd=str(several), embedding=EAST)

    assert told["error"]["data"]["name"] == "log_lost"
    assert search(daemon, several) == ["e0", "e1", "e2", "e3", "e4"]


def test_a_database_that_was_deleted_and_made_again_is_searched_as_it_is_now(
    daemon: Daemon, several: Path
) -> None:
    search(daemon, several)
    vanish(several / ".clavain")
    with Elsewhere(several) as conn:
        discover(conn, "only", packed(1.0, 0.0))

    assert search(daemon, several) == ["only"]


def test_a_project_without_a_database_is_told_so(daemon: Daemon, project: Path) -> None:
    response = daemon.respond("discovery.search", cwd=str(project), embedding=EAST)

    assert response["error"]["data"]["name"] == "no_database"


def test_the_daemon_and_a_direct_call_find_the_same_to_the_last_digit(
    daemon: Daemon, project: Path
) -> None:
    rows = np.random.default_rng(2).standard_normal((700, 48)).astype("<f4")
    with Elsewhere(project) as conn:
        for i, row in enumerate(rows):
            discover(conn, f"d{i:03}", row.tobytes(), score=i / 700)
    (project / "query").write_bytes(np.ones(48, "<f4").tobytes())
    words = ("discovery", "search", "--embedding=@query", "--limit=25", "--json")
    env = {"INTERCORE_SOCKET": daemon.socket, "INTERCORE_MODE": "daemon"}

    served = icctl(*words, cwd=project, env=env)
    alone = icctl(*words, cwd=project, env={"INTERCORE_MODE": "direct"})
    typed = daemon.call(
        "discovery.search",
        cwd=str(project),
        embedding=base64.b64encode(np.ones(48, "<f4").tobytes()).decode(),
        limit=25,
    )

    assert (served.returncode, served.stderr) == (0, b"")
    assert served.stdout == alone.stdout
    assert json.loads(served.stdout) == typed
    assert len(typed) == 25


def test_a_command_line_sent_by_json_rpc_is_answered_as_well(daemon: Daemon, several: Path) -> None:
    ran = daemon.call(
        "cli.run", argv=["discovery", "search", "--like=d2", "--limit=2"], cwd=str(several)
    )

    assert ran["exit"] == 0
    assert [line.split("\t")[0] for line in ran["stdout"].splitlines()] == ["d3", "d4"]


def test_a_search_sees_what_came_before_it_on_the_same_connection(
    daemon: Daemon, several: Path
) -> None:
    where = {"cwd": str(several)}
    requests = [
        {"method": "state.set", "params": where | {"key": "k", "scope_id": "s", "payload": 1}},
        {"method": "discovery.search", "params": where | {"embedding": EAST, "limit": 1}},
        {"method": "state.get", "params": where | {"key": "k", "scope_id": "s"}},
    ]
    batch = [{"jsonrpc": "2.0", "id": i} | request for i, request in enumerate(requests)]

    with daemon.connect() as sock:
        sock.sendall(json.dumps(batch).encode() + b"\n")
        responses = json.loads(read_line(sock))

    assert [response["id"] for response in responses] == [0, 1, 2]
    assert responses[1]["result"][0]["id"] == "d0"
    assert responses[2]["result"]["payload"] == 1


def test_finding_6_at_its_deadline_a_search_fails_and_the_next_one_succeeds(
    daemon: Daemon, project: Path
) -> None:
    rows = np.random.default_rng(2).standard_normal((3000, 64)).astype("<f4")
    with Elsewhere(project) as conn:
        for i, row in enumerate(rows):
            discover(conn, f"d{i:04}", row.tobytes())
    query = base64.b64encode(rows[1234].tobytes()).decode()
    where = {"cwd": str(project), "embedding": query, "limit": 1}

    late = [daemon.respond("discovery.search", **where, deadline_ms=ms) for ms in (0, 1)]
    (found,) = daemon.call("discovery.search", **where)

    assert {response["error"]["data"]["name"] for response in late} == {"deadline_exceeded"}
    assert (found["id"], found["similarity"]) == ("d1234", 1.0)


def test_of_a_search_that_fails_the_caller_is_told_what_is_wrong(
    daemon: Daemon, several: Path
) -> None:
    def name(**params: Any) -> str:
        response = daemon.respond("discovery.search", cwd=str(several), **params)
        told: str = response["error"]["data"]["name"]
        return told

    one = base64.b64encode(packed(1.0)).decode()
    assert name(embedding=one) == "dimension_mismatch"
    assert name(embedding=one, source="s") == "dimension_mismatch"
    assert name(embedding="AAAA") == "invalid_vector"
    assert name(like="nobody") == "discovery_not_found"
    assert name() == "invalid_params"
    assert name(embedding=EAST, like="d1") == "invalid_params"
    assert name(embedding=EAST, limit=0) == "invalid_params"
    assert name(embedding=EAST, min_score=2) == "invalid_params"


def test_finding_6_a_storm_of_searches_does_not_hold_up_a_sentinel(project: Path) -> None:
    """Each search takes milliseconds; on the lane, the check would come after all of them."""
    storm = 300
    with Elsewhere(project) as conn:
        rows = np.random.default_rng(2).standard_normal((4000, 512)).astype("<f4")
        for i, row in enumerate(rows):
            discover(conn, f"d{i:04}", row.tobytes())
    query = base64.b64encode(rows[0].tobytes()).decode()
    params = {"cwd": str(project), "embedding": query, "deadline_ms": 300_000}
    request = {"jsonrpc": "2.0", "id": 1, "method": "discovery.search", "params": params}
    line = json.dumps(request).encode() + b"\n"
    with running() as daemon:
        daemon.call("discovery.search", **params)  # reads it into memory
        socks = [daemon.connect() for _ in range(storm)]
        try:
            for sock in socks:
                sock.sendall(line)
            until(lambda: select.select(socks, [], [], 0)[0])  # the storm has begun

            daemon.call("sentinel.check", cwd=str(project), name="n", scope_id="s", interval=5)

            answered, _, _ = select.select(socks, [], [], 0)
            assert len(answered) < storm
            for sock in socks:
                assert b'"similarity":1.0' in read_line(sock)
        finally:
            for sock in socks:
                sock.close()


def test_a_daemon_that_is_never_asked_for_a_search_does_not_load_numpy(several: Path) -> None:
    def is_loaded(daemon: Daemon) -> bool:
        return "numpy" in Path(f"/proc/{daemon.pid}/maps").read_text()

    with running() as daemon:
        daemon.call("sentinel.check", cwd=str(several), name="n", scope_id="s", interval=5)
        before = is_loaded(daemon)
        search(daemon, several)

        assert (before, is_loaded(daemon)) == (False, True)


def test_a_search_keeps_no_database_open(daemon: Daemon, several: Path) -> None:
    hasty = "idle_seconds = 0.05\nclose_idle_seconds = 0.15\n"
    (several / ".clavain" / "intercore.toml").write_text(hasty)
    before = search(daemon, several)

    def opened() -> list[str]:
        return [one["path"] for one in daemon.call("icd.status")["databases"]]

    until(lambda: not any(path.startswith(str(several)) for path in opened()))
    with Elsewhere(several) as conn:
        set_status(conn, "d0", "dismissed")

    assert before[0] == "d0"
    assert search(daemon, several)[0] == "d1"


# --- what is kept in memory -----------------------------------------------------------------


class Several:
    """Databases in this process, asked as a router would."""

    def __init__(self, root: Path, count: int, vectors: int) -> None:
        self.projects = [root / f"p{i}" for i in range(count)]
        for project in self.projects:
            project.mkdir()
            with Elsewhere(project) as conn:
                for i in range(vectors):
                    discover(conn, f"d{i:03}", packed(1.0, i, *[0.5] * 254))
        paths = [str(project / ".clavain" / "intercore.db") for project in self.projects]
        self.databases = {path: Database(path, DEFAULTS) for path in paths}
        self.methods: list[str] = []
        self.read: list[int] = []  # rows of each page

    async def ask(self, calls: list[Call]) -> list[Answer]:
        return [self._answer(call) for call in calls]

    def _answer(self, call: Call) -> Answer:
        self.methods.append(call.method.name)
        assert call.where.explicit is not None
        (answer,) = run_batch(self.databases[call.where.explicit], [call], clock=Clock())
        assert answer is not None
        if call.method.name in ("search.ask", "search.page"):
            what = answer.result.what
            page = what[-1] if call.method.name == "search.ask" else what
            self.read.append(len(page.rows))
        return answer

    def call(self, number: int) -> Call:
        path = list(self.databases)[number]
        method = registry.find("discovery.search")
        assert method is not None
        params = Search(embedding=packed(1.0, 3.0, *[0.5] * 254), limit=1)
        deadline = time.monotonic() + 60
        return Call(method, params, Where(os.path.dirname(path), path), Writer(), deadline)

    def close(self) -> None:
        for database in self.databases.values():
            with database.hold(time.monotonic() + 5):
                database.close()
            database.lock.close()


@pytest.fixture
def three(tmp_path: Path):
    found = Several(tmp_path, 3, vectors=300)  # 300 KiB of numbers each, and a little more
    yield found
    found.close()


@pytest.mark.anyio
async def test_what_was_searched_longest_ago_makes_room(three: Several) -> None:
    searches = Searches(three.ask, MEBIBYTE)
    for number in (0, 1, 0, 2, 0, 1):
        answer = await searches.answer(three.call(number))
        assert [match.id for match in answer.result] == ["d003"]
        assert searches.size <= MEBIBYTE

    assert three.read == [300, 300, 0, 300, 0, 300]  # two of them fit


@pytest.mark.anyio
async def test_what_does_not_fit_is_not_kept(three: Several) -> None:
    searches = Searches(three.ask, MEBIBYTE // 8)
    sizes = []
    for _ in range(3):
        answer = await searches.answer(three.call(0))
        assert [match.id for match in answer.result] == ["d003"]
        sizes.append(searches.size)

    assert sizes == [0, 0, 0]


@pytest.mark.anyio
async def test_what_does_not_fit_is_tried_again_when_there_is_less_of_it(three: Several) -> None:
    searches = Searches(three.ask, MEBIBYTE // 8)
    await searches.answer(three.call(0))
    with Elsewhere(three.projects[0]) as conn:
        for i in range(10, 300):
            delete(conn, f"d{i:03}")
    for _ in range(2):
        answer = await searches.answer(three.call(0))
        assert [match.id for match in answer.result] == ["d003"]

    assert 10 * 1024 <= searches.size <= 20 * 1024


@pytest.mark.anyio
async def test_what_does_not_fit_is_read_once_for_each_search_also_after_a_deletion(
    three: Several,
) -> None:
    with Elsewhere(three.projects[0]) as conn:
        delete(conn, "d299")

    searches = Searches(three.ask, MEBIBYTE // 8)
    rows = []
    for _ in range(3):
        before = len(three.read)
        await searches.answer(three.call(0))
        rows.append(sum(three.read[before:]))

    assert rows[1:] == [299, 299]


@pytest.mark.anyio
async def test_the_matrices_of_a_database_that_is_closed_are_dropped(three: Several) -> None:
    searches = Searches(three.ask, MEBIBYTE)
    await searches.answer(three.call(0))
    before = searches.size

    searches.forget(next(iter(three.databases)))

    assert before >= 300 * 1024
    assert searches.size == 0


@pytest.mark.anyio
async def test_rows_that_change_between_ranking_and_showing_are_searched_again(
    three: Several,
) -> None:
    meddled: list[str] = []

    async def ask(calls: list[Call]) -> list[Answer]:
        if calls[0].method.name == "search.fetch" and not meddled:
            with Elsewhere(three.projects[0]) as conn:
                set_status(conn, "d003", "dismissed")
            meddled.append("d003")
        return await three.ask(calls)

    answer = await Searches(ask, MEBIBYTE).answer(three.call(0))

    assert [match.id for match in answer.result] in (["d002"], ["d004"])


@pytest.mark.anyio
async def test_a_database_that_is_reopened_during_a_search_is_searched_from_the_start(
    three: Several,
) -> None:
    reopened: list[str] = []

    async def ask(calls: list[Call]) -> list[Answer]:
        if calls[0].method.name == "search.fetch" and not reopened:
            database = next(iter(three.databases.values()))
            with database.hold(time.monotonic() + 5):
                database.close()
            reopened.append("once")
        return await three.ask(calls)

    await Searches(ask, MEBIBYTE).answer(three.call(0))

    assert three.methods == ["search.ask", "search.fetch"] * 2


@pytest.mark.anyio
async def test_one_search_at_a_time(three: Several) -> None:
    searches = Searches(three.ask, MEBIBYTE)
    async with anyio.create_task_group() as tasks:
        for number in (0, 1, 2):
            tasks.start_soon(searches.answer, three.call(number))

    assert three.methods == ["search.ask", "search.fetch"] * 3
