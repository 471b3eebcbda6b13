"""Commands that go on: through the keyhole, through JSON-RPC, and without a daemon."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import anyio
import pytest

from icd.app.call import STATE, Answer
from icd.app.invocation import LOOK_AGAIN_SECONDS, World
from icd.app.planner import plan
from icd.features.statusline.store import Lane, Statusline
from icd.server import limits
from icd.server.net.argv_frame import chunk
from icd.server.net.handler import Handler
from icd.server.net.outbox import Outbox
from icd.server.net.session import Session
from icd.server.stores.notify import Changes, ChangeWaiter
from icd.server.subscriptions.stream import CLOSED, RELOADING, CommandStream, Stream, follow
from tests.support.processes import (
    BIN,
    CLEAN,
    PATIENCE,
    Daemon,
    icctl,
    read_all,
    read_line,
    running,
    until,
)
from tests.support.streams import WATCH, Watcher

DIRECT = {"INTERCORE_MODE": "direct"}
# Of a handler that is asked nothing.
NO_FIGURES = SimpleNamespace(counters=None)


@pytest.fixture
def lane(any_daemon: Daemon, initialized: Path):
    def put(name: str) -> None:
        where = {"cwd": str(initialized), "key": "lane", "scope_id": "s1"}
        any_daemon.call("state.set", **where, payload={"lane": name})

    return put


# --- through the keyhole ---


def test_the_current_state_comes_at_once_and_then_every_change(
    shared_daemon: Daemon, initialized: Path, lane
) -> None:
    with Watcher(shared_daemon, initialized) as watcher:
        assert watcher.line() == "\n"
        for name in ("one", "two"):
            lane(name)
            assert watcher.line() == f"lane {name}\n"


def test_what_changes_nothing_that_is_shown_is_no_news(
    shared_daemon: Daemon, initialized: Path, lane
) -> None:
    with Watcher(shared_daemon, initialized) as watcher:
        watcher.line()
        shared_daemon.call("state.set", cwd=str(initialized), key="other", scope_id="s1", payload=1)
        shared_daemon.call(
            "sentinel.check", cwd=str(initialized), name="n", scope_id="s1", interval=0
        )
        lane("one")
        assert watcher.line() == "lane one\n"
        lane("one")

        assert watcher.quiet(LOOK_AGAIN_SECONDS * 1.5)


def test_many_changes_at_once_end_with_the_last_one(
    shared_daemon: Daemon, initialized: Path, lane
) -> None:
    with Watcher(shared_daemon, initialized) as watcher:
        watcher.line()
        for number in range(200):
            lane(str(number))

        lines = [watcher.line()]
        while lines[-1] != "lane 199\n":
            lines.append(watcher.line())

        assert len(lines) < 100


def test_a_direct_write_is_news_as_well(shared_daemon: Daemon, initialized: Path) -> None:
    with Watcher(shared_daemon, initialized) as watcher:
        watcher.line()
        icctl("state", "set", "lane", "s1", '--value="direct"', cwd=initialized, env=DIRECT)

        assert watcher.line() == "lane direct\n"


def test_a_row_that_expires_is_news(shared_daemon: Daemon, initialized: Path) -> None:
    shared_daemon.call(
        "state.set", cwd=str(initialized), key="lane", scope_id="s1", payload="x", ttl_ms=5000
    )
    with Watcher(shared_daemon, initialized) as watcher:
        assert watcher.line() == "lane x\n"
        assert watcher.line() == "\n"


def test_a_process_that_ends_is_news(shared_daemon: Daemon, initialized: Path) -> None:
    child = subprocess.Popen(["sleep", "60"])
    payload = {"name": "n", "pid": child.pid}
    shared_daemon.call(
        "state.set", cwd=str(initialized), key="dispatch", scope_id="s1", payload=payload
    )
    with Watcher(shared_daemon, initialized) as watcher:
        assert watcher.line() == "dispatch n\n"

        child.kill()
        child.wait()

        assert watcher.line() == "dispatch n gone\n"


def test_a_database_may_be_made_while_somebody_watches(daemon: Daemon, project: Path) -> None:
    with Watcher(daemon, project) as watcher:
        assert watcher.line() == "\n"
        daemon.call("db.init", cwd=str(project))
        daemon.call("state.set", cwd=str(project), key="lane", scope_id="s1", payload="x")

        assert watcher.line() == "lane x\n"
    assert daemon.call("icd.status")["failures"] == {}


def test_a_peer_that_has_said_all_gets_the_final_reply(
    shared_daemon: Daemon, initialized: Path
) -> None:
    with Watcher(shared_daemon, initialized) as watcher:
        watcher.line()
        watcher.sock.shutdown(socket.SHUT_WR)

        assert watcher.part() == ("0", "", "")
        assert watcher.sock.recv(1) == b""


def test_a_peer_that_says_all_at_once_gets_the_current_state(
    shared_daemon: Daemon, initialized: Path
) -> None:
    with Watcher(shared_daemon, initialized) as watcher:
        watcher.sock.shutdown(socket.SHUT_WR)

        assert [watcher.part()[0], watcher.part()] == ["+", ("0", "", "")]


def test_a_peer_that_leaves_is_not_followed_any_more(daemon: Daemon, initialized: Path) -> None:
    for _ in range(5):
        with Watcher(daemon, initialized) as watcher:
            watcher.line()

    until(lambda: daemon.call("icd.status")["sessions"] == 1)
    batches = daemon.call("icd.status")["databases"][0]["own_batches"]
    time.sleep(LOOK_AGAIN_SECONDS * 1.5)  # five watchers would ask as often, at least
    assert daemon.call("icd.status")["databases"][0]["own_batches"] <= batches + 2
    assert "session failed" not in daemon.log.read_text()


def test_a_stop_of_the_daemon_ends_a_stream_with_a_sentence(initialized: Path) -> None:
    with running() as daemon, Watcher(daemon, initialized) as watcher:
        watcher.line()
        began = time.monotonic()

        assert daemon.stop() == 0

        assert watcher.part() == ("0", "", "icctl: the daemon is stopping; ask again\n")
        assert time.monotonic() - began < limits.DRAIN_SECONDS


def test_a_broken_database_is_a_final_reply(shared_daemon: Daemon, initialized: Path) -> None:
    (initialized / ".clavain" / "intercore.db").write_bytes(os.urandom(20_000))

    with Watcher(shared_daemon, initialized) as watcher:
        word, out, err = watcher.part()

    assert (word, out) == ("2", "")
    assert err.startswith("icctl: statusline: ")


def test_a_large_frame_may_go_on_as_well(shared_daemon: Daemon, initialized: Path, lane) -> None:
    lane("one")
    with Watcher(shared_daemon, initialized, *WATCH, f"--agent={'x' * 100_000}") as watcher:
        assert watcher.line() == "lane one\n"
        lane("two")
        assert watcher.line() == "lane two\n"


def test_a_watcher_that_does_not_read_holds_up_nobody(
    shared_daemon: Daemon, initialized: Path, lane
) -> None:
    with (
        Watcher(shared_daemon, initialized, *WATCH, "--json"),
        Watcher(shared_daemon, initialized) as other,
    ):
        other.line()
        began = time.monotonic()
        for number in range(500):
            lane(f"{number} {'x' * 150}")

        while not other.line().startswith("lane 499"):
            pass
        assert time.monotonic() - began < PATIENCE


@pytest.mark.anyio
async def test_a_peer_that_was_slow_once_is_heard_again_while_its_stream_goes_on() -> None:
    """Else its end would never be noticed, and its stream go on for ever."""

    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    session = Session(Handler(1, None, NO_FIGURES, None, None, errands=None), lambda _: None)  # type: ignore[arg-type]
    with theirs:
        transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
            lambda: session, ours
        )
        session._busy = True  # a stream
        session.pause_writing()
        paused = transport.is_reading()
        session.resume_writing()
        resumed = transport.is_reading()
        transport.abort()
        await session.ended.wait()

    assert (paused, resumed) == (False, True)


@pytest.mark.anyio
async def test_a_watcher_that_is_dropped_during_a_reload_begins_nothing_new() -> None:
    """What it sent meanwhile is the next daemon's: this one would take its reply along."""
    line = b'{"jsonrpc":"2.0","id":2,"method":"icd.ping","params":{}}\n'
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    session = Session(Handler(1, None, NO_FIGURES, None, None, errands=None), lambda _: None)  # type: ignore[arg-type]
    with theirs:
        transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
            lambda: session, ours
        )
        session._busy = True  # a stream
        session.data_received(line)
        session.suspend()
        session._drop()
        session._reply(b"")
        await asyncio.sleep(0.05)
        left = session._framing.unread
        transport.abort()
        await session.ended.wait()

    assert left == line


@pytest.mark.anyio
async def test_a_peer_without_room_is_not_written_to_and_gets_the_latest_at_last() -> None:
    """The same with an outbox whose room we decide: a real socket takes a quarter of a megabyte."""
    planned = plan(World(argv=WATCH, cwd="/", deadline=time.monotonic() + 60))
    written: list[bytes] = []
    asked = 0
    changes = Changes()

    async def ask(_calls):
        nonlocal asked
        asked += 1
        return [Answer(result=Statusline(session="s1", lane=Lane(f"{asked}", 0)))]

    outbox = Outbox(lambda: None)
    outbox.connect(Wire(written))
    stream = Stream(outbox)
    waiter = ChangeWaiter(lambda: changes, STATE)
    async with anyio.create_task_group() as tasks:
        command = CommandStream(planned, waiter, stream, chunk)
        tasks.start_soon(follow, command, stream, ask, nullcontext())
        await _eventually(lambda: written)
        outbox.pause()
        changes.tell()
        await anyio.sleep(0.5)
        without_room = (len(written), asked)
        outbox.resume()
        await _eventually(lambda: len(written) > 1)
        stream.end(CLOSED)

    assert without_room == (1, 1)
    assert written[-1] == chunk_of(f"lane {asked}\n")


class Wire(asyncio.Transport):
    """A connection that takes everything at once."""

    def __init__(self, written: list[bytes]) -> None:
        super().__init__()
        self.write = written.append  # type: ignore[assignment]

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0


def chunk_of(text: str) -> bytes:
    return f"+ {len(text)} 0\n{text}".encode()


@pytest.mark.anyio
async def test_after_a_reload_that_was_refused_streams_may_begin_again() -> None:
    stream = Stream(Outbox(lambda: None))
    ended = []
    stream.end(RELOADING)

    for _ in range(2):
        with anyio.move_on_after(0.1) as patience, stream.until_end():
            await anyio.sleep_forever()
        ended.append(not patience.cancelled_caught)
        stream.reopen()

    assert ended == [True, False]


async def _eventually(condition) -> None:
    with anyio.fail_after(PATIENCE):
        while not condition():  # noqa: ASYNC110 -- what is waited for knows no events
            await anyio.sleep(0.005)


# --- through JSON-RPC ---


def request(request_id, method: str, **params) -> bytes:
    message = {"jsonrpc": "2.0", "method": method, "params": params}
    if request_id is not None:
        message["id"] = request_id
    return json.dumps(message).encode() + b"\n"


def test_cli_run_sends_output_until_its_response(
    shared_daemon: Daemon, initialized: Path, lane
) -> None:
    run = request("x", "cli.run", cwd=str(initialized), argv=WATCH)
    with shared_daemon.connect() as sock:
        sock.sendall(request(1, "icd.ping") + run)
        first = read_line(sock)
        while first.count(b"\n") < 2:
            first += read_line(sock)
        lane("one")
        news = json.loads(read_line(sock))
        sock.shutdown(socket.SHUT_WR)
        last = json.loads(read_all(sock))

    pong, current = (json.loads(line) for line in first.splitlines())
    assert pong["id"] == 1
    assert current == {
        "jsonrpc": "2.0", "method": "cli.output", "params": {"id": "x", "stdout": "\n"},
    }  # fmt: skip
    assert news["params"] == {"id": "x", "stdout": "lane one\n"}
    assert last == {"jsonrpc": "2.0", "id": "x", "result": {"exit": 0}}


def test_a_stop_ends_cli_run_with_a_response(initialized: Path) -> None:
    with running() as daemon, daemon.connect() as sock:
        sock.sendall(request(1, "cli.run", cwd=str(initialized), argv=WATCH))
        read_line(sock)

        daemon.stop()

        result = json.loads(read_all(sock))["result"]
        assert result == {"exit": 0, "stderr": "icctl: the daemon is stopping; ask again\n"}


def test_in_a_batch_and_without_an_id_nothing_can_go_on(
    shared_daemon: Daemon, initialized: Path
) -> None:
    run = request(1, "cli.run", cwd=str(initialized), argv=WATCH)
    silent = request(None, "cli.run", cwd=str(initialized), argv=WATCH)
    with shared_daemon.connect() as sock:
        sock.sendall(b"[" + run.strip() + b"]\n" + silent + request(2, "icd.ping"))
        sock.shutdown(socket.SHUT_WR)
        batch, pong = (json.loads(line) for line in read_all(sock).splitlines())

    assert batch[0]["error"]["data"]["name"] == "invalid_request"
    assert "typed method" in batch[0]["error"]["data"]["hint"]
    assert pong["id"] == 2


# --- without a daemon ---


def start(cwd: Path, **options) -> "subprocess.Popen[bytes]":
    env = {**CLEAN, "HOME": str(cwd), **DIRECT}
    return subprocess.Popen(
        [BIN / "icctl", *WATCH], cwd=cwd, env=env,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options,
    )  # fmt: skip


def test_without_a_daemon_the_same_lines_are_printed(initialized: Path) -> None:
    watcher = start(initialized)
    assert watcher.stdout is not None
    assert watcher.stdout.readline() == b"\n"

    icctl("state", "set", "lane", "s1", '--value="one"', cwd=initialized, env=DIRECT)

    assert watcher.stdout.readline() == b"lane one\n"
    watcher.stdout.close()  # whoever read it has gone
    assert watcher.wait(PATIENCE) == 0
    assert watcher.stderr is not None
    assert watcher.stderr.read() == b""
    watcher.stderr.close()


def test_without_a_daemon_ctrl_c_ends_it(initialized: Path) -> None:
    watcher = start(initialized)
    assert watcher.stdout is not None
    watcher.stdout.readline()

    watcher.send_signal(signal.SIGINT)

    assert watcher.communicate(timeout=PATIENCE) == (b"", b"")
    assert watcher.returncode == -signal.SIGINT


def test_without_a_daemon_nobody_else_is_kept_from_the_database(initialized: Path) -> None:
    watcher = start(initialized)
    assert watcher.stdout is not None
    watcher.stdout.readline()

    done = icctl("state", "incr", "n", "s", "--timeout=2s", cwd=initialized, env=DIRECT)

    assert done.stdout == b"1\n"
    watcher.kill()
    watcher.communicate()
