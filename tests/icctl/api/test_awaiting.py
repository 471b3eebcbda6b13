"""`AsyncClient`: many calls on one connection, cancelled or not, over restarts of the daemon."""

import os
import signal
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import pytest

from icctl.api import AsyncClient, Error, UnknownOutcome
from icctl.api.awaiting import Link
from icd.app.invocation import SESSION_VARIABLES
from tests.support.between import Between
from tests.support.processes import PATIENCE, Daemon, running, until
from tests.support.restarts import reload

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("INTERCORE_SOCKET", "INTERCORE_MODE", "INTERCORE_DB", *SESSION_VARIABLES):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
async def served(initialized: Path, shared_daemon: Daemon) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(
        initialized, socket=shared_daemon.socket, mode="daemon", timeout=PATIENCE
    ) as made:
        yield made


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="icd-", dir="/tmp") as made:
        yield Path(made)


def link_of(client: AsyncClient) -> Link:
    assert client._link is not None
    return client._link


async def value(client: AsyncClient, key: str, scope: str) -> object:
    row = await client.state.get(key, scope)
    return None if row is None else row.value


async def test_a_thousand_calls_share_one_connection(served: AsyncClient) -> None:
    found: list[int | None] = []

    async def count() -> None:
        found.append((await served.state.incr("n", "s")).value)

    await served.icd.ping()
    link = link_of(served)
    async with anyio.create_task_group() as tasks:
        for _ in range(1000):
            tasks.start_soon(count)

    assert sorted(map(int, found)) == [*range(1, 1001)]  # type: ignore[arg-type]
    assert link_of(served) is link
    assert not link._waiting


async def test_without_a_daemon_tasks_take_turns(initialized: Path) -> None:
    async with AsyncClient(initialized, mode="direct", timeout=PATIENCE) as client:
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(client.state.incr, "n", "s")

        assert await value(client, "n", "s") == 20
        with pytest.raises(Error, match="no_daemon"):
            await client.icd.ping()


async def test_cancelled_calls_do_not_poison_the_connection(served: AsyncClient) -> None:
    """Before they are sent, while they are, and while their replies come."""
    await served.icd.ping()
    link = link_of(served)
    done = 0

    async def cancelled(after: float) -> None:
        nonlocal done
        with anyio.move_on_after(after):
            await served.state.set("large", "s", "x" * 50_000)
            done += 1

    async def asked(number: int) -> None:
        await served.state.set("k", str(number), number)
        assert await value(served, "k", str(number)) == number

    async with anyio.create_task_group() as tasks:
        for number in range(100):
            tasks.start_soon(cancelled, number / 20_000)
            tasks.start_soon(asked, number)

    assert done < 100, "none was cancelled"
    assert link_of(served) is link
    assert (link._waiting, link._unsent) == ({}, {})
    assert len(await served.state.list("k")) == 100


async def test_calls_of_a_pipeline_fail_alone_and_in_order(served: AsyncClient) -> None:
    async with served.pipeline() as calls:
        first = calls.state.incr("n", "s")
        wrong = calls.state.incr("", "s")
        second = calls.state.incr("n", "s")

    assert (first.result().value, second.result().value) == (1, 2)
    assert wrong.error is not None
    assert wrong.error.name == "invalid_name"


async def test_a_client_reconnects_after_its_daemon_was_killed_under_load(
    initialized: Path,
) -> None:
    with running() as daemon:
        async with AsyncClient(initialized, socket=daemon.socket, timeout=PATIENCE) as client:
            counted = 0
            stop = False

            async def count() -> None:
                nonlocal counted
                while not stop:
                    await client.state.incr("n", "s")
                    counted += 1

            async with anyio.create_task_group() as tasks:
                for _ in range(8):
                    tasks.start_soon(count)
                for _ in range(2):
                    seen = counted
                    await anyio.to_thread.run_sync(until, lambda seen=seen: counted > seen + 20)
                    daemon.kill()
                    await anyio.to_thread.run_sync(daemon.start)
                stop = True

            assert await value(client, "n", "s") == counted
            assert (await client.icd.ping()).pid == daemon.pid


@pytest.mark.long
async def test_no_write_is_lost_or_doubled_while_the_daemon_is_reloaded(
    initialized: Path,
) -> None:
    with running() as daemon:
        async with AsyncClient(
            initialized, socket=daemon.socket, mode="daemon", timeout=PATIENCE
        ) as client:
            await client.icd.ping()
            link, counted, stop = link_of(client), 0, False

            async def count() -> None:
                nonlocal counted
                while not stop:
                    await client.state.incr("n", "s")
                    counted += 1

            async with anyio.create_task_group() as tasks:
                for _ in range(8):
                    tasks.start_soon(count)
                for _ in range(3):
                    await anyio.to_thread.run_sync(reload, daemon)
                stop = True

            assert await value(client, "n", "s") == counted
            assert link_of(client) is link, "a reload keeps connections"


async def test_a_daemon_that_hangs_costs_the_timeout_and_nothing_after_it(
    initialized: Path,
) -> None:
    with running() as daemon:
        async with AsyncClient(initialized, socket=daemon.socket, mode="daemon") as client:
            await client.state.incr("n", "s", timeout=PATIENCE)
            os.kill(daemon.pid, signal.SIGSTOP)

            with pytest.raises(UnknownOutcome):
                await client.state.incr("n", "s", timeout=0.3, request_id="mine")
            with pytest.raises(Error, match="deadline_exceeded"):
                await client.state.get("n", "s", timeout=0.2)

            os.kill(daemon.pid, signal.SIGCONT)
            again = await client.state.incr("n", "s", timeout=PATIENCE, request_id="mine")
            assert again.value == 2
            assert await value(client, "n", "s") == 2


@pytest.mark.parametrize("said", [b"HTTP/1.1 400\r\n\n", b'{"id":1,"result":[]}\n'])
async def test_what_speaks_another_protocol_is_not_asked_twice(
    initialized: Path, place: Path, said: bytes
) -> None:
    def answer(sock: socket.socket) -> None:
        sock.recv(1 << 20)
        sock.sendall(said)
        sock.recv(1 << 20)

    with Between(place / "s", answer) as between:
        async with AsyncClient(
            initialized, socket=place / "s", mode="daemon", timeout=PATIENCE
        ) as client:
            with pytest.raises(UnknownOutcome, match="another protocol"):
                await client.state.incr("n", "s")
        assert between.served == 1


async def test_a_client_must_be_entered_first(initialized: Path) -> None:
    with pytest.raises(RuntimeError, match="async with"):
        await AsyncClient(initialized).state.get("k", "s")


async def test_a_demanded_daemon_that_is_not_there_is_an_error(initialized: Path) -> None:
    async with AsyncClient(initialized, socket="/nonexistent/s", mode="daemon") as client:
        with pytest.raises(Error, match="no_daemon"):
            await client.state.get("k", "s", timeout=0.2)


async def test_an_exception_of_the_block_is_raised_as_it_is(initialized: Path) -> None:
    with pytest.raises(KeyError):
        async with AsyncClient(initialized, mode="direct"):
            raise KeyError
