"""Streams and consumers: nothing missed and nothing twice, over kills, reloads and no daemon."""

import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from icctl.api import AsyncClient, Client, Error, results
from icd.app.invocation import SESSION_VARIABLES
from tests.support.between import Between
from tests.support.processes import PATIENCE, Daemon, running, until
from tests.support.restarts import reload


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("INTERCORE_SOCKET", "INTERCORE_MODE", "INTERCORE_DB", *SESSION_VARIABLES):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(params=["daemon", "direct"])
def client(
    request: pytest.FixtureRequest, initialized: Path, shared_daemon: Daemon
) -> Iterator[Client]:
    with Client(
        initialized, socket=shared_daemon.socket, mode=request.param, timeout=PATIENCE
    ) as made:
        yield made


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="icd-", dir="/tmp") as made:
        yield Path(made)


def record(client: Client, *types: str) -> None:
    for each in types:
        client.events.record(source="scan", type=each)


def test_events_come_in_order_and_the_watch_waits_for_more(client: Client) -> None:
    record(client, "a", "b")

    with client.events.watch(since=0) as news:
        first = [next(news).type for _ in range(2)]
        record(client, "c")
        last = next(news)

    assert (first, last.type, last.value) == (["a", "b"], "c", None)


def test_a_watch_without_a_place_hears_only_what_is_new(client: Client) -> None:
    record(client, "old")
    heard = []

    def listen() -> None:
        heard.append(next(news).type)

    with client.events.watch(source="scan") as news:
        listener = threading.Thread(target=listen)
        listener.start()
        while listener.is_alive():
            record(client, "new")
            listener.join(0.05)

    assert heard == ["new"]


def test_a_page_hears_of_every_write(client: Client) -> None:
    with client.db.watch() as news:
        before = next(news).seq
        record(client, "a")
        while next(news).seq == before:
            pass


def test_a_watch_says_why_it_cannot_begin(client: Client) -> None:
    with client.events.watch(since=10) as news:
        with pytest.raises(Error, match="cursor_ahead"):
            next(news)
        assert [*news] == []


def test_a_row_is_shown_at_once_then_as_it_changes(client: Client) -> None:
    with client.state.watch("k", "s") as rows:
        absent = next(rows)
        client.state.set("k", "s", 1)
        there = next(rows)
        client.state.delete("k", "s")
        gone = next(rows)

    assert isinstance(absent, results.StateGone)
    assert isinstance(there, results.StateDocument)
    assert there.value == 1
    assert (gone.scope_id, gone.version) == ("s", 0)


def test_a_dispatch_is_followed(client: Client, initialized: Path) -> None:
    made = client.dispatch.create(str(initialized), name="one")

    with client.dispatch.watch(made.id) as changes:
        first = next(changes)
        client.dispatch.cancel(made.id, reason="enough")
        second = next(changes)

    assert (first.id, first.status) == (made.id, made.status)
    assert second.status == "cancelled"


def test_close_ends_a_stream_that_waits_in_another_thread(
    initialized: Path, shared_daemon: Daemon
) -> None:
    client = Client(initialized, socket=shared_daemon.socket, mode="daemon", timeout=PATIENCE)
    news = client.events.watch()
    heard: list[object] = []
    listener = threading.Thread(target=lambda: heard.extend(news))
    listener.start()
    until(lambda: news._connection is not None)

    news.close()
    listener.join(PATIENCE)

    assert heard == []
    assert not listener.is_alive()


@pytest.mark.parametrize("how", ["kill", "stop", "reload"])
def test_a_watch_goes_on_over_the_end_of_its_daemon(initialized: Path, how: str) -> None:
    """Nothing is missed and nothing comes twice, also of what was recorded without a daemon."""
    with (
        running() as daemon,
        Client(initialized, socket=daemon.socket, timeout=PATIENCE) as client,
        client.events.watch(since=0) as news,
        client.state.watch("k") as rows,
    ):
        record(client, "1", "2")
        client.state.set("k", "a", 1)
        heard = [next(news).type, next(news).type]
        shown = [next(rows).scope_id]

        if how == "reload":
            reload(daemon)
        else:
            daemon.kill() if how == "kill" else daemon.stop()
            record(client, "3")
            heard.append(next(news).type)
            daemon.start()
        record(client, "4", "5")
        client.state.set("k", "b", 1)
        while heard[-1] != "5":
            heard.append(next(news).type)
        shown.append(next(rows).scope_id)

        assert heard == ["1", "2", *(["3"] if how != "reload" else []), "4", "5"]
        assert shown == ["a", "b"]


def test_a_demanded_daemon_is_waited_for_and_then_missed(initialized: Path) -> None:
    with (
        running() as daemon,
        Client(initialized, socket=daemon.socket, mode="daemon", timeout=0.5) as client,
    ):
        client.events.record(source="scan", type="a", timeout=PATIENCE)
        news = client.events.watch(since=0)
        while not news._place.found:
            news._look()
        next(news)
        daemon.kill()

        with pytest.raises(Error, match="no_daemon"):
            next(news)


def test_a_stream_says_what_is_wrong_with_its_socket(initialized: Path, place: Path) -> None:
    def answer(sock: socket.socket) -> None:
        sock.recv(1 << 20)
        sock.sendall(b"HTTP/1.1 400\r\n\n")

    with (
        Client(initialized, socket="/tmp/" + "x" * 200) as client,
        pytest.raises(Error, match="too long"),
    ):
        next(client.events.watch())
    with (
        Between(place / "s", answer),
        Client(initialized, socket=place / "s") as client,
        pytest.raises(Error, match="another protocol"),
    ):
        next(client.events.watch())


# --- consumers ------------------------------------------------------------------------------------


def test_a_consumer_is_done_with_an_event_when_it_asks_for_the_next(client: Client) -> None:
    record(client, "a", "b", "c")

    with client.events.subscribe("index") as events:
        taken = [next(events).type for _ in range(2)]  # b is at hand, and not done
    with client.events.subscribe("index") as events:
        again = next(events).type

    place = client.cursor.get("index")
    assert (taken, again) == (["a", "b"], "b")
    assert place is not None
    assert place.seq == 1


def test_an_event_whose_work_failed_comes_again(client: Client) -> None:
    record(client, "a", "b")
    seen = []

    with pytest.raises(ZeroDivisionError), client.events.subscribe("index") as events:
        for event in events:
            seen.append(event.type)
            if event.type == "b":
                raise ZeroDivisionError
    with client.events.subscribe("index") as events:
        seen.append(next(events).type)

    assert seen == ["a", "b", "b"]


def test_a_consumer_waits_for_what_it_wants_and_acknowledges_with_the_next_question(
    client: Client,
) -> None:
    record(client, "a")
    seen = []

    def work() -> None:
        with client.events.subscribe("index", source="scan") as events:
            for event in events:
                seen.append(event.type)
                if event.type == "end":
                    return

    worker = threading.Thread(target=work)
    worker.start()
    until(lambda: seen == ["a"])
    until(lambda: (place := client.cursor.get("index")) is not None and place.seq == 1)
    record(client, "b", "end")
    worker.join(PATIENCE)

    assert seen == ["a", "b", "end"]


def test_a_consumer_loses_nothing_when_its_daemon_is_killed(initialized: Path) -> None:
    with running() as daemon:
        seen: list[str] = []
        client = Client(initialized, socket=daemon.socket, timeout=PATIENCE)

        def work() -> None:
            with client.events.subscribe("index") as events:
                for event in events:
                    seen.append(event.type)
                    if event.type == "end":
                        return

        worker = threading.Thread(target=work)
        worker.start()
        with Client(initialized, socket=daemon.socket, timeout=PATIENCE) as writer:
            record(writer, *(f"a{number}" for number in range(10)))
            daemon.kill()
            record(writer, *(f"b{number}" for number in range(3)))
            daemon.start()
            record(writer, *(f"c{number}" for number in range(10)), "end")
        worker.join(PATIENCE)
        client.close()

    expected = [*(f"a{n}" for n in range(10)), *(f"b{n}" for n in range(3))]
    assert seen == [*expected, *(f"c{n}" for n in range(10)), "end"]


# --- anyio ----------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["daemon", "direct"])
async def test_streams_and_consumers_of_anyio(
    initialized: Path, shared_daemon: Daemon, mode: str
) -> None:
    async with AsyncClient(
        initialized, socket=shared_daemon.socket, mode=mode, timeout=PATIENCE  # type: ignore[arg-type]
    ) as client:  # fmt: skip
        await client.events.record(source="scan", type="a")
        async with client.events.watch(since=0) as news, client.state.watch("k", "s") as rows:
            first = await anext(news)
            absent = await anext(rows)
            await client.state.set("k", "s", 1)
            there = await anext(rows)
            with anyio.move_on_after(0.05) as waited:
                await anext(news)
            await client.events.record(source="scan", type="b")
            second = await anext(news)
        async with client.events.subscribe("index") as events:
            taken = [(await anext(events)).type for _ in range(2)]
        place = await client.cursor.get("index")

    assert waited.cancelled_caught, "a cancelled wait loses nothing"
    assert [first.type, second.type, *taken] == ["a", "b", "a", "b"]
    assert (absent.version, isinstance(there, results.StateDocument)) == (0, True)
    assert place is not None
    assert place.seq == 1


@pytest.mark.anyio
async def test_a_watch_of_anyio_goes_on_over_the_end_of_its_daemon(initialized: Path) -> None:
    with running() as daemon:
        async with (
            AsyncClient(initialized, socket=daemon.socket, timeout=PATIENCE) as client,
            client.events.watch(since=0) as news,
        ):
            await client.events.record(source="scan", type="1")
            heard = [(await anext(news)).type]
            daemon.kill()
            await client.events.record(source="scan", type="2")
            heard.append((await anext(news)).type)
            await anyio.to_thread.run_sync(daemon.start)
            await client.events.record(source="scan", type="3")
            heard.append((await anext(news)).type)

    assert heard == ["1", "2", "3"]


@pytest.mark.anyio
async def test_what_is_done_is_acknowledged_when_a_consumer_is_cancelled(
    initialized: Path, shared_daemon: Daemon
) -> None:
    async with AsyncClient(
        initialized, socket=shared_daemon.socket, mode="daemon", timeout=PATIENCE
    ) as client:
        for each in ("a", "b"):
            await client.events.record(source="scan", type=each)
        with anyio.CancelScope() as scope:
            async with client.events.subscribe("index") as events:
                async for event in events:
                    if event.type == "b":
                        scope.cancel()
                        await anyio.sleep(PATIENCE)

        place = await client.cursor.get("index")

    assert place is not None
    assert place.seq == 1
