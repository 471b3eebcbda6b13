"""Events from one process to another: written, shown, acknowledged, through either host and door."""

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Self

import pytest

from tests.support import processes
from tests.support.processes import CLEAN, PATIENCE, Daemon, icctl, read_line, until
from tests.support.scripted import scripted
from tests.support.sizes import size

DIRECT = {"INTERCORE_MODE": "direct"}
# `make stress` asks for the size of the promise.
EACH = size(10_000, 200)
WRITERS = 8


@pytest.fixture(params=["daemon", "direct"])
def host(request: pytest.FixtureRequest, any_daemon: Daemon, door: Path) -> dict[str, str]:
    if request.param == "direct":
        return DIRECT
    return {"INTERCORE_MODE": "daemon", "INTERCORE_SOCKET": any_daemon.socket}


@pytest.fixture
def run(initialized: Path, host: dict[str, str]):
    def done(*words: str) -> str:
        found = icctl(*words, cwd=initialized, env=host)
        assert (found.returncode, found.stderr) == (0, b"")
        return found.stdout.decode()

    return done


def seqs(text: str) -> list[int]:
    return [json.loads(line)["seq"] for line in text.splitlines()]


def record(cwd: Path, env: dict[str, str], count: int = 1) -> None:
    for _ in range(count):
        icctl("events", "record", "--source=ci", "--type=t", cwd=cwd, env=env)


def test_a_consumer_is_shown_every_event_once(run, initialized: Path, host) -> None:
    record(initialized, host, 3)

    shown = [run("events", "tail", "--all", "--consumer=c", "--limit=2") for _ in range(3)]

    assert [seqs(text) for text in shown] == [[1, 2], [3], []]


def test_a_run_has_a_cursor_of_its_own(run, initialized: Path, host) -> None:
    run("events", "record", "--source=ci", "--type=t", "--run=r1")

    shown = [run("events", "tail", *what, "--consumer=c") for what in (["r1"], ["r1"], ["--all"])]

    assert [seqs(text) for text in shown] == [[1], [], [1]]


def test_what_nobody_read_is_shown_again(run, initialized: Path, host) -> None:
    record(initialized, host)
    reader, writer = os.pipe()
    os.close(reader)

    lost = subprocess.run(
        [processes.door / "icctl", "events", "tail", "--all", "--consumer=c"],
        cwd=initialized, env={**CLEAN, "HOME": str(initialized), **host}, stdout=writer,
        stdin=subprocess.DEVNULL, timeout=PATIENCE, check=False,
    )  # fmt: skip
    os.close(writer)

    assert lost.returncode == 0
    assert seqs(run("events", "tail", "--all", "--consumer=c")) == [1]


def test_what_could_not_be_written_is_shown_again(run, initialized: Path, host) -> None:
    record(initialized, host)

    with open("/dev/full", "wb") as full:
        lost = subprocess.run(
            [processes.door / "icctl", "events", "tail", "--all", "--consumer=c"],
            cwd=initialized, env={**CLEAN, "HOME": str(initialized), **host}, stdout=full,
            stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=PATIENCE, check=False,
        )  # fmt: skip

    assert lost.returncode == 2
    assert b"cannot write to stdout" in lost.stderr
    assert seqs(run("events", "tail", "--all", "--consumer=c")) == [1]


def test_with_manual_acknowledgement_the_same_comes_until_it_is_given(
    run, initialized: Path, host
) -> None:
    record(initialized, host, 2)
    manual = ["events", "tail", "--all", "--consumer=c", "--ack=manual"]

    before = [seqs(run(*manual)) for _ in range(2)]
    run("events", "cursor", "ack", "c", "1")

    assert before == [[1, 2], [1, 2]]
    assert seqs(run(*manual)) == [2]
    assert seqs(run(*manual, "--acked=2")) == []


@pytest.mark.parametrize("name", ["team:notifier", "team:abcd1234"])
def test_a_consumer_with_a_colon_in_its_name_is_shown_an_event_once(
    run, initialized: Path, host, name: str
) -> None:
    record(initialized, host, 2)
    run("events", "record", "--source=ci", "--type=built", "--run=abcd1234")
    tail = ["events", "tail", "--all", f"--consumer={name}"]

    first = [seqs(run(*tail, "--ack=manual")) for _ in range(2)]
    run("events", "cursor", "ack", name, "1")
    second = [seqs(run(*tail)) for _ in range(2)]

    assert first == [[1, 2, 3], [1, 2, 3]]
    assert second == [[2, 3], []]


class Follower:
    """`icctl events tail -f`, whose lines are read as they come."""

    def __init__(self, cwd: Path, env: dict[str, str], *words: str) -> None:
        self.process = subprocess.Popen(
            [processes.door / "icctl", "events", "tail", "-f", *words],
            cwd=cwd, env={**CLEAN, "HOME": str(cwd), **env}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def seq(self) -> int:
        assert self.process.stdout is not None
        found: int = json.loads(self.process.stdout.readline())["seq"]
        return found


@pytest.mark.parametrize("words", [[], ["--consumer=c"], ["--consumer=c", "--ack=manual"]])
def test_whoever_follows_is_shown_what_there_is_and_then_what_happens(
    run, initialized: Path, host, words: list[str]
) -> None:
    record(initialized, host, 3)

    with Follower(initialized, host, "--all", "--limit=2", *words) as follower:
        first = [follower.seq() for _ in range(3)]
        record(initialized, host)
        fourth = follower.seq()
        record(initialized, DIRECT, 2)
        rest = [follower.seq() for _ in range(2)]

        assert (first, fourth, rest) == ([1, 2, 3], 4, [5, 6])
        acknowledged = 6 if words == ["--consumer=c"] else None
        if acknowledged:
            until(lambda: json.loads(run("events", "cursor", "get", "c"))["seq"] == acknowledged)


def test_whoever_follows_may_wait_longer_than_any_deadline(run, initialized: Path, host) -> None:
    record(initialized, host)
    with Follower(initialized, host, "--all", "--timeout=500ms") as follower:
        shown = [follower.seq()]
        for _ in range(2):
            with pytest.raises(subprocess.TimeoutExpired):
                follower.process.wait(1.0)
            record(initialized, host)
            shown.append(follower.seq())

        assert shown == [1, 2, 3]


def test_whoever_follows_ends_when_the_daemon_stops(
    daemon: Daemon, initialized: Path, door: Path
) -> None:
    env = {"INTERCORE_MODE": "daemon", "INTERCORE_SOCKET": daemon.socket}
    record(initialized, env)
    with Follower(initialized, env, "--all") as follower:
        follower.seq()
        until(lambda: daemon.call("icd.status")["subscribers"] == 1)

        daemon.stop()

        assert follower.process.wait(PATIENCE) == 0
        assert follower.process.stderr is not None
        assert b"the daemon is stopping" in follower.process.stderr.read()


def test_a_daemon_that_is_gone_when_the_lines_are_written_is_not_missed(
    tmp_path: Path, initialized: Path, door: Path
) -> None:
    """What was written is acknowledged all the same: here, by the client itself."""
    record(initialized, DIRECT, 2)
    words = b"".join(w + b"\0" for w in (b"events", b"cursor", b"ack", b"--", b"c", b"1"))
    env = {"INTERCORE_SOCKET": str(tmp_path / "s"), "INTERCORE_MODE": "auto"}

    with scripted(tmp_path, b"& 6 0 %d\nlines\n" % len(words) + words):
        done = icctl("events", "tail", "--all", "--consumer=c", cwd=initialized, env=env)

    assert (done.returncode, done.stdout, done.stderr) == (0, b"lines\n", b"")
    rest = icctl("events", "tail", "--all", "--consumer=c", cwd=initialized, env=DIRECT)
    assert seqs(rest.stdout.decode()) == [2]


@pytest.mark.usefixtures("door")
@pytest.mark.parametrize(
    "reply", [b"& 0 0\n", b"& 0 0 0\n", b"& 0 0 x\n", b"& 0 0 1 1\n\0", b"&\n", b"& 0 0 2\nab"]
)
def test_a_reply_that_only_looks_like_one_is_told(reply: bytes, tmp_path: Path) -> None:
    env = {"INTERCORE_SOCKET": str(tmp_path / "s"), "INTERCORE_MODE": "daemon"}

    with scripted(tmp_path, reply):
        done = icctl("events", "tail", "--all", cwd=tmp_path, env=env)

    assert done.returncode == 2
    assert b"speaks another protocol" in done.stderr


def test_a_program_is_told_what_to_run_next(daemon: Daemon, initialized: Path) -> None:
    where = {"cwd": str(initialized)}
    daemon.call("events.record", **where, source="ci", type="t")

    ran = daemon.call("cli.run", **where, argv=["events", "tail", "--all", "--consumer=c"])
    then = daemon.call("cli.run", **where, argv=ran["then"])

    assert seqs(ran["stdout"]) == [1]
    assert ran["then"] == ["events", "cursor", "ack", "--", "c", "1"]
    assert then == {"exit": 0}
    assert daemon.call("events.consume", **where, consumer="c")["events"] == []


def test_the_client_says_that_it_knows_what_follows(daemon: Daemon, initialized: Path) -> None:
    """One that does not is told to upgrade, and nothing is lost."""
    daemon.call("events.record", cwd=str(initialized), source="ci", type="t")
    words = [b"events", b"tail", b"--all", b"--consumer=c"]
    fields = [b"d" + os.fsencode(initialized), *(b"a" + word for word in words)]
    with daemon.connect() as sock:
        sock.sendall(b"\0".join([b"ic1 %d" % len(fields), *fields, b""]))
        reply = read_line(sock)

    assert reply.startswith(b"2 0 ")
    assert b"upgrade icctl" in reply
    assert daemon.call("cursor.list", cwd=str(initialized)) == []


def test_the_daemon_prunes_if_it_is_told_to(daemon: Daemon, initialized: Path) -> None:
    settings = "idle_seconds = 0.05\nevents_keep_count = 2\n"
    (initialized / ".clavain" / "intercore.toml").write_text(settings)
    where = {"cwd": str(initialized)}
    for _ in range(5):
        daemon.call("events.record", **where, source="ci", type="t")

    def left() -> list[int]:
        return [event["seq"] for event in daemon.call("events.tail", **where)["events"]]

    # Asked seldom: a database that is asked all the time is never quiet.
    until(lambda: time.sleep(0.2) or left() == [4, 5])


# --- many at once ---------------------------------------------------------------------------

WRITE = """
import sys
from icctl import client
from icctl.direct import execute
name, count = sys.argv[1], int(sys.argv[2])
for i in range(count):
    argv = ["events", "record", "--source=w", "--type=t", f"--idempotency-key={name}-{i}"]
    output = execute(client.Request(argv, "icctl", client.world()), 60, {})
    assert output.exit == 0, output
"""


def write(daemon: Daemon, cwd: Path, name: str) -> None:
    """Through the daemon, whichever it is by now; once, however often it has to be asked."""
    for i in range(EACH):
        said = {"source": "w", "type": "t", "idempotency_key": f"{name}-{i}"}
        until(lambda said=said: _answered(daemon, "events.record", cwd=str(cwd), **said), 120)


def _answered(daemon: Daemon, method: str, **params: object) -> dict[str, object] | None:
    try:
        return daemon.respond(method, **params).get("result")
    except (OSError, ValueError):
        return None


def follow_once(daemon: Daemon, cwd: Path, name: str, total: int, shown: list[str]) -> None:
    """The client as scripts use it, again and again."""
    env = {"INTERCORE_SOCKET": daemon.socket}
    deadline = time.monotonic() + PATIENCE * (50 if EACH > 1000 else 6)
    while len(shown) < total and time.monotonic() < deadline:
        words = ["events", "tail", "--all", f"--consumer={name}", "--limit=500"]
        found = icctl(*words, cwd=cwd, env=env, timeout=60)
        if found.stdout:
            lines = map(json.loads, found.stdout.splitlines())
            shown += [f"{line['seq']} {line['idempotency_key']}" for line in lines]


def follow_manually(daemon: Daemon, cwd: Path, name: str, total: int, shown: list[str]) -> None:
    """A program that acknowledges with its next question, and forgets to every third time."""
    acked, seen = None, 0
    deadline = time.monotonic() + PATIENCE * (50 if EACH > 1000 else 6)
    for turn in itertools.count():
        if seen >= total or time.monotonic() > deadline:
            return
        given = {} if acked is None or turn % 3 == 0 else {"acked": acked}
        found = _answered(daemon, "events.consume", cwd=str(cwd), consumer=name, limit=300, **given)
        events = found["events"] if found else []
        shown += [f"{event['seq']} {event['idempotency_key']}" for event in events]
        if events:
            acked = events[-1]["seq"]
            seen = acked
        time.sleep(0.01)


def _has(shown: list[str], size: float, writers: "list[subprocess.Popen[bytes]]") -> bool:
    """Unless a writer gave up: then there is nothing to wait for."""
    assert not [writer.args for writer in writers if writer.poll()]
    return len(shown) >= size


@pytest.mark.long
@pytest.mark.timeout(1800 if EACH > 1000 else 240)
@pytest.mark.parametrize("mode", ["daemon", "direct"])
def test_consumers_see_everything_in_order_while_the_daemon_is_restarted(
    daemon: Daemon, initialized: Path, mode: str
) -> None:
    total = WRITERS * EACH
    shown: dict[str, list[str]] = {name: [] for name in ("a", "b", "m", "n")}
    for name in shown:
        daemon.call("cursor.register", cwd=str(initialized), consumer=name, durable=True)
    threads = [
        threading.Thread(target=follow_once if name in "ab" else follow_manually,
                         args=(daemon, initialized, name, total, shown[name]))
        for name in shown
    ]  # fmt: skip
    writers: list[subprocess.Popen[bytes]] = []
    if mode == "daemon":
        threads += [
            threading.Thread(target=write, args=(daemon, initialized, f"w{n}")) for n in range(WRITERS)
        ]  # fmt: skip
    else:
        writers = [
            subprocess.Popen([sys.executable, "-c", WRITE, f"w{n}", str(EACH)], cwd=initialized,
                             env={**CLEAN, "HOME": str(initialized)})
            for n in range(WRITERS)
        ]  # fmt: skip

    for thread in threads:
        thread.start()
    for share in (0.2, 0.6):
        until(lambda share=share: _has(shown["a"], share * total, writers), PATIENCE * 30)
        daemon.stop()
        daemon.start()
    for thread in threads:
        thread.join()
    assert [writer.wait(PATIENCE) for writer in writers] == [0] * len(writers)

    everything = [f"w{n}-{i}" for n in range(WRITERS) for i in range(EACH)]
    for name in ("a", "b"):
        assert [int(line.split()[0]) for line in shown[name]] == list(range(1, total + 1))
        assert sorted(line.split()[1] for line in shown[name]) == sorted(everything)
    for name in ("m", "n"):
        first_time = list(dict.fromkeys(shown[name]))
        assert first_time == shown["a"]
