"""`icctl events tail -f` without a consumer: one stream, which outlives the daemon's code."""

import json
import os
import select
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import processes
from tests.support.processes import CLEAN, PATIENCE, Daemon, icctl, until

RELOADS = 4
WRITERS = 3
EACH = 150
# More than the sockets and the pipe between a daemon and whoever reads can hold.
LARGE = 64 * 1024


class Proxy:
    """Stands between clients and a daemon, and counts connections."""

    def __init__(self, path: Path, target: str) -> None:
        self.connections = 0
        self._target = target
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            far = socket.socket(socket.AF_UNIX)
            far.connect(self._target)
            threading.Thread(target=_carry, args=(near, far), daemon=True).start()


def _carry(near: socket.socket, far: socket.socket) -> None:
    others = {near: far, far: near}
    with near, far:
        while True:
            for sock in select.select([near, far], [], [])[0]:
                data = sock.recv(1 << 16)
                if not data:
                    return
                others[sock].sendall(data)


@contextmanager
def following(cwd: Path, path: str, *words: str) -> "Iterator[subprocess.Popen[bytes]]":
    env = {**CLEAN, "HOME": str(cwd), "INTERCORE_SOCKET": path, "INTERCORE_MODE": "daemon"}
    process = subprocess.Popen(
        [processes.door / "icctl", "events", "tail", "-f", "--all", *words],
        cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def seqs(process: "subprocess.Popen[bytes]", count: int) -> list[int]:
    assert process.stdout is not None
    return [json.loads(process.stdout.readline())["seq"] for _ in range(count)]


def is_silent(process: "subprocess.Popen[bytes]", seconds: float = 0.3) -> bool:
    return not select.select([process.stdout], [], [], seconds)[0]


def record(daemon: Daemon, cwd: Path, count: int = 1, **said: object) -> None:
    for _ in range(count):
        daemon.call("events.record", cwd=str(cwd), source="ci", type="t", **said)


def reload(daemon: Daemon) -> None:
    assert daemon.call("icd.reload")["pid"] == daemon.pid


@pytest.mark.usefixtures("door")
@pytest.mark.parametrize("words", [[], ["--limit=1"]])
def test_a_plain_follow_is_one_connection(
    daemon: Daemon, initialized: Path, tmp_path: Path, words: list[str]
) -> None:
    proxy = Proxy(tmp_path / "proxy", daemon.socket)
    record(daemon, initialized, 2)

    with following(initialized, str(tmp_path / "proxy"), *words) as follower:
        shown = seqs(follower, 2)
        for _ in range(3):
            record(daemon, initialized)
            shown += seqs(follower, 1)
        proxy.close()

        assert shown == [1, 2, 3, 4, 5]
        assert proxy.connections == 1


@pytest.mark.usefixtures("door")
def test_nothing_is_lost_or_shown_twice_while_the_daemon_is_reloaded(
    daemon: Daemon, initialized: Path
) -> None:
    writers = [
        threading.Thread(target=_write, args=(daemon, initialized, f"w{number}"))
        for number in range(WRITERS)
    ]
    with following(initialized, daemon.socket, "--limit=7") as follower:
        until(lambda: daemon.call("icd.status")["subscribers"] == 1)
        for writer in writers:
            writer.start()
        shown: list[int] = []
        for _ in range(RELOADS):
            shown += seqs(follower, WRITERS * EACH // (RELOADS + 1))
            reload(daemon)
        for writer in writers:
            writer.join()
        shown += seqs(follower, WRITERS * EACH - len(shown))

        assert shown == list(range(1, WRITERS * EACH + 1))
        assert is_silent(follower)
        assert follower.poll() is None


def _write(daemon: Daemon, cwd: Path, name: str) -> None:
    """Each event once: what a reload has cut off is asked again."""
    for number in range(EACH):
        said = {"source": "ci", "type": "t", "idempotency_key": f"{name}-{number}"}
        until(lambda said=said: _recorded(daemon, cwd, said))


def _recorded(daemon: Daemon, cwd: Path, said: dict[str, str]) -> bool:
    try:
        return "result" in daemon.respond("events.record", cwd=str(cwd), **said)
    except (OSError, ValueError):
        return False


@pytest.mark.usefixtures("door")
def test_whoever_did_not_read_for_a_while_misses_nothing_of_a_reload(
    daemon: Daemon, initialized: Path
) -> None:
    count = 60
    with following(initialized, daemon.socket, "--limit=10") as follower:
        until(lambda: daemon.call("icd.status")["subscribers"] == 1)
        record(daemon, initialized, count // 2, payload={"x": "x" * LARGE})
        reload(daemon)
        record(daemon, initialized, count // 2, payload={"x": "x" * LARGE})
        reload(daemon)

        assert seqs(follower, count) == list(range(1, count + 1))
        assert is_silent(follower)


def test_a_follow_waits_for_the_first_event_across_a_reload(
    daemon: Daemon, initialized: Path, door: Path
) -> None:
    with following(initialized, daemon.socket) as follower:
        until(lambda: daemon.call("icd.status")["subscribers"] == 1)
        reload(daemon)
        until(lambda: daemon.call("icd.status")["subscribers"] == 1)

        record(daemon, initialized)

        assert seqs(follower, 1) == [1]
        assert is_silent(follower)


def test_a_client_that_does_not_know_what_follows_may_follow(
    daemon: Daemon, initialized: Path
) -> None:
    record(daemon, initialized)
    words = [b"events", b"tail", b"--all", b"-f"]
    fields = [b"d" + os.fsencode(initialized), *(b"a" + word for word in words)]

    with daemon.connect() as sock, sock.makefile("rb") as reply:
        sock.sendall(b"\0".join([b"ic1 %d" % len(fields), *fields, b""]))
        shown = [_chunk(reply)]
        record(daemon, initialized)
        while len(shown) < 2:
            shown += [part for part in [_chunk(reply)] if part]

    assert [json.loads(part)["seq"] for part in shown] == [1, 2]


def _chunk(reply) -> bytes:
    head, out, err = reply.readline().split()
    assert (head, err) == (b"+", b"0")
    return reply.read(int(out))


@pytest.mark.usefixtures("door")
def test_a_long_log_is_shown_without_a_pause_for_each_answer(
    daemon: Daemon, initialized: Path
) -> None:
    """A stream pauses between two questions; so those after the first ask for more at once."""
    count = 5000
    lines = b"".join(
        json.dumps(
            {"jsonrpc": "2.0", "id": n, "method": "events.record",
             "params": {"cwd": str(initialized), "source": "ci", "type": "t"}}
        ).encode() + b"\n"
        for n in range(count)
    )  # fmt: skip
    with daemon.connect() as sock:
        sender = threading.Thread(target=sock.sendall, args=(lines,))
        sender.start()
        left = count
        while left:
            left -= sock.recv(1 << 20).count(b"\n")
        sender.join()
    before = daemon.call("icd.status")["calls"].get("events.tail", 0)

    with following(initialized, daemon.socket) as follower:
        assert seqs(follower, count) == list(range(1, count + 1))

    assert daemon.call("icd.status")["calls"]["events.tail"] - before <= 1 + count // 1000 + 2


@pytest.mark.usefixtures("door")
def test_without_a_daemon_it_follows_as_well(initialized: Path) -> None:
    direct = {"INTERCORE_MODE": "direct"}
    words = ["events", "record", "--source=ci", "--type=t"]
    icctl(*words, cwd=initialized, env=direct)
    process = subprocess.Popen(
        [processes.door / "icctl", "events", "tail", "-f", "--all", "--limit=1"],
        cwd=initialized, env={**CLEAN, "HOME": str(initialized), **direct},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        shown = seqs(process, 1)
        icctl(*words, cwd=initialized, env=direct)
        icctl(*words, cwd=initialized, env=direct)
        shown += seqs(process, 2)

        assert shown == [1, 2, 3]
        assert is_silent(process, 1.5)
        process.stdout.close()
        assert process.wait(PATIENCE) == 0  # nobody reads any more
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("words", [[], ["--consumer=c"]])
@pytest.mark.parametrize("host", ["daemon", "direct"])
def test_who_follows_as_json_on_a_terminal_gets_json_in_every_batch(
    shared_daemon: Daemon, initialized: Path, words: list[str], host: str
) -> None:
    env = {"HOME": str(initialized), "INTERCORE_SOCKET": shared_daemon.socket}
    ours, theirs = os.openpty()
    record(shared_daemon, initialized)
    process = subprocess.Popen(
        [processes.door / "icctl", "events", "tail", "-f", "--all", "--json", *words],
        cwd=initialized, env={**CLEAN, "TERM": "xterm", "INTERCORE_MODE": host, **env},
        stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)

    shown = []
    try:
        with os.fdopen(ours, "rb") as terminal:
            for _ in range(3):
                shown.append(json.loads(terminal.readline())["seq"])
                record(shared_daemon, initialized)
    finally:
        process.kill()
        process.wait()

    assert shown == [1, 2, 3]
