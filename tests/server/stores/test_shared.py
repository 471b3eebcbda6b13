"""Stores of two daemons, as of two machines, whose data is on one server."""

import time

import anyio
import pytest
from msgspec import Raw

from icd.app import registry
from icd.app.call import STATE, Call
from icd.app.dispatch import Clock
from icd.config import Settings
from icd.server import limits
from icd.server.stores.maintenance import Turns
from icd.server.stores.notify import ChangeWaiter
from icd.server.stores.store import Store
from icd.values.processes import Writer
from tests.db.postgres.conftest import host as host  # noqa: PLC0414 -- a fixture

pytest.importorskip("psycopg")


class Machine:
    def __init__(self, host, settings=Settings()):  # noqa: B008
        self.where = host.where
        engine = host.engine
        self.store = Store(
            engine.path,
            settings,
            Clock(),
            lambda _: None,
            Turns(),
            engine=lambda _path, _settings: engine,
        )

    def call(self, method, **params):
        found = registry.find(method)
        deadline = time.monotonic() + 30
        return Call(found, found.params(**params), self.where, Writer(1, "s"), deadline)

    async def ask(self, *calls):
        return await self.store.ask(list(calls))


@pytest.mark.anyio
async def test_a_watcher_hears_at_once_what_another_machine_wrote(host):
    here, there = Machine(host(careful=True)), Machine(host(careful=True))
    async with anyio.create_task_group() as tasks:
        for each in (here, there):
            tasks.start_soon(each.store.run)
        for each in (here, there):
            (answer,) = await each.ask(each.call("state.list", key="k"))
            assert answer.error is None
        took = []
        with ChangeWaiter(lambda: here.store.changes, (*STATE, "k")) as waiter:
            for number in range(8):
                assert waiter.listen()
                while here.store.is_working or here.store.waiting:  # noqa: ASYNC110
                    await anyio.sleep(0.001)  # what is waited for knows no events
                began = time.monotonic()
                given = {"key": "k", "scope_id": "s", "payload": Raw(b"%d" % number)}
                await there.ask(there.call("state.set", **given))
                await waiter.wait(20)
                took.append(time.monotonic() - began)
        for each in (here, there):
            await each.store.stop()

    assert sorted(took)[len(took) // 2] < limits.WATCH_LOOK_SECONDS / 2


@pytest.mark.anyio
async def test_calls_that_wait_share_a_turn(host):
    here = Machine(host())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(here.store.run)
        await here.ask(here.call("state.list", key="k"))
        calls = [here.call("events.record", source="tests", type="x") for _ in range(16)]
        answers = await here.ask(*calls)
        trips = here.store.database._session.trips
        await here.store.stop()

    assert [answer.result.seq for answer in answers] == list(range(1, 17))
    assert here.store.batches < 10
    assert trips < 60


@pytest.mark.anyio
async def test_upkeep_goes_by_the_clock_of_the_server(host):
    slow = host()
    settings = Settings(idle_seconds=0.05)
    here = Machine(slow, settings)
    here.store._upkeep._clock.now_ms = lambda: int(time.time() * 1000) + 3_600_000
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(here.store.run)
        given = {"key": "k", "scope_id": "s", "payload": Raw(b"1"), "ttl_ms": 600_000}
        await here.ask(here.call("state.set", **given))
        while here.store.facts is None:  # noqa: ASYNC110
            await anyio.sleep(0.01)
        (answer,) = await here.ask(here.call("state.get", key="k", scope_id="s"))
        facts = here.store.facts
        await here.store.stop()

    assert answer.result is not None
    assert abs(facts.at_ms / 1000 - time.time()) < 600
    assert facts.rows["state"] == 1
