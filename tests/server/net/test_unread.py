"""Peers that ask for much and read nothing cost a bounded amount."""

import asyncio
import json
import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from icd.server import limits
from icd.server.net.outbox import cut_off
from tests.support.processes import Daemon, icctl, read_all, running, until

MEGABYTE = 1_000_000
PEERS = 8
MOST_RSS = 200 * MEGABYTE


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with running() as found:
        yield found
        assert "session failed" not in found.log.read_text()


@pytest.fixture
def events(daemon: Daemon, initialized: Path) -> Path:
    """A project with twelve events of a megabyte."""
    for number in range(12):
        payload = [chr(97 + number) * (MEGABYTE // 10)] * 10
        daemon.call(
            "events.record", cwd=str(initialized), source="mine", type="large", payload=payload
        )
    return initialized


def tail(project: Path, number: int = 1, limit: int = 1) -> dict[str, Any]:
    params = {"cwd": str(project), "since": number % 12, "limit": limit, "deadline_ms": 60_000}
    return {"jsonrpc": "2.0", "id": number, "method": "events.tail", "params": params}


def array(project: Path, size: int = limits.REQUESTS, **options: int) -> bytes:
    return json.dumps([tail(project, n, **options) for n in range(size)]).encode() + b"\n"


def lines(project: Path, size: int = limits.REQUESTS, **options: int) -> bytes:
    return b"".join(json.dumps(tail(project, n, **options)).encode() + b"\n" for n in range(size))


def frames(project: Path, size: int = limits.REQUESTS, limit: int = 1) -> bytes:
    """What `icctl events tail --all` sends, again and again, without reading."""
    words = (b"events", b"tail", b"--all", b"--limit=%d" % limit)
    fields = [b"d" + bytes(project), b"c1", *(b"a" + word for word in words)]
    return b"\0".join([b"ic1 %d" % len(fields), *fields, b""]) * size


def rss(daemon: Daemon) -> int:
    status = Path(f"/proc/{daemon.pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def settled(daemon: Daemon) -> None:
    """Until the daemon has nothing to do any more: its processor time stands still.

    It also does while others have the processor; but then a thread is ready to run.
    """

    def used() -> int:
        fields = Path(f"/proc/{daemon.pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    def is_ready() -> bool:
        threads = Path(f"/proc/{daemon.pid}/task").glob("*/stat")
        return any(stat.read_text().rpartition(")")[2].split()[0] != "S" for stat in threads)

    def is_quiet() -> bool:
        before = used()
        for _ in range(10):
            if is_ready():
                return False
            time.sleep(0.05)
        return used() - before <= 1

    until(is_quiet)


def answered_within(daemon: Daemon, project: Path) -> float:
    """The best of ten, of a new connection: how busy the machine is does not count."""

    def took() -> float:
        began = time.monotonic()
        daemon.call("state.incr", cwd=str(project), key="k", scope_id="s")
        return time.monotonic() - began

    return min(took() for _ in range(10))


@pytest.mark.parametrize("limit", [1, pytest.param(100, marks=pytest.mark.long)])
@pytest.mark.parametrize("request_of", [array, lines, frames])
def test_what_eight_peers_do_not_read_is_bounded(
    daemon: Daemon, events: Path, request_of: Callable[..., bytes], limit: int
) -> None:
    usual = answered_within(daemon, events)
    with ExitStack() as stack:
        for _ in range(PEERS):
            sock = stack.enter_context(daemon.connect())
            sock.sendall(request_of(events, limit=limit))
        soonest = answered_within(daemon, events)
        settled(daemon)
        later = answered_within(daemon, events)
        most = rss(daemon)

    print(
        f"{request_of.__name__} limit={limit}: {most / 1e6:.0f} MB, {soonest:.3f} s, {later:.3f} s"
    )
    assert most < MOST_RSS
    assert later < 0.1 + 10 * usual
    assert (
        limit > 1 or soonest < 0.1 + 10 * usual
    )  # eight replies of eight megabytes take their time


@pytest.mark.parametrize("request_of", [array, lines])
def test_whoever_reads_gets_everything_in_order(
    daemon: Daemon, events: Path, request_of: Callable[..., bytes]
) -> None:
    with daemon.connect() as sock:
        sock.sendall(request_of(events, 24))
        sock.shutdown(socket.SHUT_WR)
        said = read_all(sock)

    found = json.loads(said) if request_of is array else [json.loads(x) for x in said.splitlines()]
    assert [reply["id"] for reply in found] == list(range(24))
    letters = [reply["result"]["events"][0]["payload"][0][0] for reply in found]
    assert letters == [chr(97 + number % 12) for number in range(24)]


def test_whoever_waits_for_room_does_not_hold_up_a_reload(daemon: Daemon, events: Path) -> None:
    """Lines that were not begun are answered by the next daemon, an array is ended by this one."""
    with daemon.connect() as piped, daemon.connect() as batched:
        piped.sendall(lines(events, 24))
        batched.sendall(array(events, 24))
        settled(daemon)

        reloaded = icctl("service", "reload", cwd=events, env={"INTERCORE_SOCKET": daemon.socket})
        said = []
        for sock in (piped, batched):
            sock.shutdown(socket.SHUT_WR)
            said.append(read_all(sock))

    assert reloaded.returncode == 0, reloaded.stderr
    first = [json.loads(line) for line in said[0].splitlines()]
    assert [reply["id"] for reply in first if "result" in reply] == list(range(24))
    second = json.loads(said[1])
    assert [reply["id"] for reply in second] == list(range(24))
    assert {reply["error"]["data"]["name"] for reply in second if "error" in reply} <= {
        "overloaded"
    }


def test_a_peer_that_reads_stays_when_those_that_do_not_are_dropped(
    daemon: Daemon, events: Path
) -> None:
    request = json.dumps(tail(events, 0, limit=100)).encode() + b"\n"
    with ExitStack() as stack:
        unread = [stack.enter_context(daemon.connect()) for _ in range(PEERS)]
        for sock in unread:
            sock.sendall(request)
        settled(daemon)

        with daemon.connect() as reader:
            reader.sendall(request)
            reader.shutdown(socket.SHUT_WR)
            whole = len(read_all(reader))
        sizes = [len(read_all(sock)) for sock in unread if not sock.shutdown(socket.SHUT_WR)]

    assert whole > 8 * MEGABYTE
    assert sum(size < whole for size in sizes) >= PEERS - limits.UNREAD_BYTES // whole - 1
    assert sizes[-1] == whole


def test_when_memory_runs_out_the_other_sessions_are_served(initialized: Path) -> None:
    daemon = Daemon()
    try:
        daemon.start()
        for number in range(12):
            daemon.call(
                "events.record", cwd=str(initialized), source="mine", type="t",
                payload=[chr(97 + number) * (MEGABYTE // 10)] * 10,
            )  # fmt: skip
        used = (
            int(Path(f"/proc/{daemon.pid}/statm").read_text().split()[0]) * resource.getpagesize()
        )
        room = used + 20 * MEGABYTE
        resource.prlimit(daemon.pid, resource.RLIMIT_AS, (room, room))

        for _ in range(3):
            with ExitStack() as stack:
                for _ in range(PEERS):
                    sock = stack.enter_context(daemon.connect())
                    sock.sendall(array(initialized, 8, limit=100))
                settled(daemon)
            for _ in range(PEERS):
                assert daemon.call("state.incr", cwd=str(initialized), key="k", scope_id="s")
    finally:
        daemon.close()


@pytest.mark.anyio
async def test_an_aborted_connection_is_no_longer_watched_by_the_event_loop() -> None:
    """As asyncio leaves it when memory runs out in a write: it waits for room, and has no data."""
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, ours)
    fd = ours.fileno()
    loop._add_writer(fd, lambda: None)  # type: ignore[attr-defined]

    cut_off(transport)
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    theirs.close()
    assert [key.fd for key in loop._selector.get_map().values() if key.fd == fd] == []  # type: ignore[attr-defined]
