"""Typed streams, and the commands that go on like them: pushed by the daemon, polled without one."""

import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from icd.server import limits
from tests.support.processes import PATIENCE, Daemon, icctl, running, until
from tests.support.restarts import reload
from tests.support.streams import command

DIRECT = {"INTERCORE_MODE": "direct"}


class Watcher:
    """A peer with one typed stream."""

    def __init__(self, daemon: Daemon, method: str, *, size: int | None = None, **params: Any):
        self.sock = daemon.connect()
        if size:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
        self.lines = self.sock.makefile("rb")
        self.ask(method, **params)

    def ask(self, method: str, **params: Any) -> None:
        request = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
        self.sock.sendall(json.dumps(request).encode() + b"\n")

    def read(self) -> dict[str, Any]:
        line = self.lines.readline()
        assert line.endswith(b"\n"), line
        found: dict[str, Any] = json.loads(line)
        return found

    def news(self) -> dict[str, Any]:
        message = self.read()
        assert message["method"] in {"state.changed", "events.appended"}, message
        assert message["params"].pop("id") == 7
        found: dict[str, Any] = message["params"]
        return found

    def close(self) -> None:
        self.lines.close()
        self.sock.close()


class Project:
    """Calls to one database through one daemon."""

    def __init__(self, daemon: Daemon, root: Path) -> None:
        self.daemon = daemon
        self.root = root

    @contextlib.contextmanager
    def watch(self, method: str, **params: Any) -> Iterator[Watcher]:
        with contextlib.closing(
            Watcher(self.daemon, method, cwd=str(self.root), **params)
        ) as watcher:
            yield watcher

    def put(self, payload: Any, scope: str = "s", **more: Any) -> None:
        where = {"cwd": str(self.root), "key": "k", "scope_id": scope}
        self.daemon.call("state.set", **where, payload=payload, **more)

    def record(self, kind: str = "t", **more: Any) -> int:
        fact = {"source": "mine", "type": kind} | more
        seq: int = self.daemon.call("events.record", cwd=str(self.root), **fact)["seq"]
        return seq

    def record_directly(self, kind: str = "t") -> None:
        """As a process of its own does, without the daemon."""
        code = (
            "import sys, time; from icd import config; from icd.db.database import Database;"
            "from icd.features.events import store as events; from icd.values.processes import Writer;"
            "d = Database(sys.argv[1], config.DEFAULTS)\n"
            "with d.hold(time.monotonic() + 20):\n"
            "    fact = events.Fact(source='mine', type=sys.argv[2])\n"
            "    events.append(d.connection(), fact, actor=Writer(), now_ms=1)\n"
            "    d.close()\n"
        )
        path = self.root / ".clavain" / "intercore.db"
        subprocess.run([sys.executable, "-c", code, path, kind], check=True)

    @property
    def batches(self) -> int:
        (found,) = self.daemon.call("icd.status")["databases"]
        count: int = found["batches"] + found["own_batches"]
        return count


@pytest.fixture
def served(any_daemon: Daemon, initialized: Path) -> Project:
    return Project(any_daemon, initialized)


def payloads(news: dict[str, Any]) -> dict[str, Any]:
    return {row["scope_id"]: row["payload"] for row in news["rows"]}


def seqs(news: dict[str, Any]) -> list[int]:
    return [event["seq"] for event in news["events"]]


# --- db.watch ---


def test_a_page_is_told_that_something_was_written_of_whatever_kind(served: Project) -> None:
    where = {"cwd": str(served.root)}
    served.put(0)  # the database is open by now
    with served.watch("db.watch") as watcher:
        told = [watcher.read()]
        served.put(1)
        told.append(watcher.read())
        served.daemon.call("sentinel.check", **where, name="n", scope_id="s", interval=60)
        told.append(watcher.read())
        served.daemon.call("lease.acquire", **where, name="n", scope_id="s", owner="o", ttl_ms=9000)
        told.append(watcher.read())

    assert [each["method"] for each in told] == ["db.written"] * 4
    assert [each["params"]["seq"] for each in told] == [0, 0, 0, 1]


def test_what_is_only_read_is_no_news_for_a_page(served: Project) -> None:
    where = {"cwd": str(served.root)}
    served.put(0)
    with served.watch("db.watch") as watcher:
        watcher.read()
        served.daemon.call("state.get", **where, key="k", scope_id="s")
        served.record()

        assert watcher.read()["params"]["seq"] == 1


# --- state.watch ---


def test_the_rows_come_at_once_and_then_every_change(served: Project) -> None:
    served.put(1)
    with served.watch("state.watch", key="k") as watcher:
        first = watcher.news()
        served.put({"a": 2}, "other")
        second = watcher.news()
        served.daemon.call("state.delete", cwd=str(served.root), key="k", scope_id="s")
        third = watcher.news()

    assert (first["key"], payloads(first), first["gone"]) == ("k", {"s": 1}, [])
    assert payloads(second) == {"other": {"a": 2}}
    assert (third["rows"], third["gone"]) == ([], ["s"])


def test_nothing_is_told_as_well_or_nobody_would_know_that_the_watch_has_begun(
    served: Project,
) -> None:
    with served.watch("state.watch", key="k", scope_id="s") as watcher:
        assert watcher.news() == {"key": "k", "rows": [], "gone": []}
        served.put(1)
        assert payloads(watcher.news()) == {"s": 1}


def test_who_comes_back_is_told_what_differs_from_what_it_knows(served: Project) -> None:
    served.put(1)
    with served.watch("state.watch", key="k") as watcher:
        known = {row["scope_id"]: row["version"] for row in watcher.news()["rows"]}
    served.put(2, "other")

    with served.watch("state.watch", key="k", known=known) as watcher:
        assert payloads(watcher.news()) == {"other": 2}


def test_other_rows_are_no_news_and_many_changes_end_with_the_last(served: Project) -> None:
    with served.watch("state.watch", key="k", scope_id="s") as watcher:
        watcher.news()
        served.put(1, "other")
        for number in range(100):
            served.put(number)

        found = [watcher.news()]
        while payloads(found[-1]) != {"s": 99}:
            found.append(watcher.news())

    assert all(payloads(news).keys() == {"s"} for news in found)


def test_a_direct_write_and_an_expiry_are_news(served: Project) -> None:
    with served.watch("state.watch", key="k", scope_id="s") as watcher:
        watcher.news()
        icctl(
            "state", "set", "k", "s", "--value=1", "--ttl=5s", cwd=served.root, env=DIRECT
        )  # fmt: skip

        assert payloads(watcher.news()) == {"s": 1}
        assert watcher.news()["gone"] == ["s"]


def test_a_cursor_of_the_original_that_is_taken_over_is_gone_for_its_watchers(
    served: Project,
) -> None:
    row = {"cwd": str(served.root), "key": "cursor", "scope_id": "c"}
    served.daemon.call("state.set", **row, payload={"phase": 0})
    with served.watch("state.watch", key="cursor") as watcher:
        watcher.news()
        served.daemon.call("events.consume", cwd=str(served.root), consumer="c")

        assert watcher.news()["gone"] == ["c"]


def test_a_watch_of_a_database_that_is_not_there_is_refused(
    shared_daemon: Daemon, project: Path
) -> None:
    with Project(shared_daemon, project).watch("state.watch", key="k") as watcher:
        assert watcher.read()["error"]["data"]["name"] == "no_database"


def test_a_database_that_is_deleted_ends_its_watches_with_the_reason(served: Project) -> None:
    with (
        served.watch("state.watch", key="k") as rows,
        served.watch("events.watch") as log,
    ):
        rows.news()
        log.news()
        for file in (served.root / ".clavain").glob("intercore.db*"):
            file.unlink()

        assert rows.read()["error"]["data"]["name"] == "no_database"
        assert log.read()["error"]["data"]["name"] == "no_database"


# --- events.watch ---


def test_the_position_comes_first_and_then_every_event_in_order(served: Project) -> None:
    served.record()
    with served.watch("events.watch") as watcher:
        first = watcher.news()
        for _ in range(300):
            served.record()
        found: list[int] = []
        while len(found) < 300:
            found += seqs(watcher.news())

    assert first == {"events": [], "seq": 1}
    assert found == list(range(2, 302))


def test_from_a_sequence_number_on_nothing_is_missed_and_nothing_comes_twice(
    served: Project,
) -> None:
    for _ in range(250):
        served.record()
    with served.watch("events.watch", since=0) as watcher:
        found = seqs(watcher.news())
        for _ in range(50):
            served.record()
        while len(found) < 150:
            found += seqs(watcher.news())
    with served.watch("events.watch", since=found[-1]) as watcher:
        while len(found) < 300:
            found += seqs(watcher.news())

    assert found == list(range(1, 301))


def test_an_event_is_seen_only_by_those_who_asked_for_it(served: Project) -> None:
    with (
        served.watch("events.watch", type="a") as by_type,
        served.watch("events.watch", run_id="r") as by_run,
        served.watch("events.watch", source="other") as by_source,
    ):
        for watcher in (by_type, by_run, by_source):
            watcher.news()
        served.record("a")
        served.record("b", run_id="r")
        served.record("b", source="other")
        served.record("b")

        assert [seqs(watcher.news()) for watcher in (by_type, by_run, by_source)] == [
            [1],
            [2],
            [3],
        ]


def test_an_event_of_a_direct_call_arrives(served: Project) -> None:
    with served.watch("events.watch") as watcher:
        watcher.news()
        served.record_directly()

        assert seqs(watcher.news()) == [1]


def test_writes_that_append_nothing_wake_nobody_who_follows_the_log(
    served: Project, daemon: Daemon
) -> None:
    with served.watch("events.watch") as watcher:
        watcher.news()
        before = served.batches
        for number in range(50):
            served.put(number)
        after = served.batches

        assert after - before < 50 + 25  # one each, and a look now and then


@pytest.mark.parametrize("method", ["state.watch", "events.watch"])
def test_a_peer_that_has_said_all_gets_the_final_response(served: Project, method: str) -> None:
    params = {"key": "k"} if method == "state.watch" else {}
    with served.watch(method, **params) as watcher:
        watcher.news()
        watcher.sock.shutdown(socket.SHUT_WR)

        ended = watcher.read()
        assert (ended["id"], ended["result"]["reason"]) == (7, "closed")
        assert watcher.lines.readline() == b""


def test_a_stop_of_the_daemon_says_where_to_go_on(initialized: Path) -> None:
    with running() as daemon:
        served = Project(daemon, initialized)
        with served.watch("events.watch") as watcher:
            watcher.news()
            served.record()
            watcher.news()
            daemon.stop()
            ended = watcher.read()
        daemon.start()
        served.record()
        with served.watch("events.watch", since=ended["result"]["seq"]) as watcher:
            again = watcher.news()

    assert ended["result"] == {"reason": "stopping", "seq": 1}
    assert seqs(again) == [2]


def test_a_reload_ends_a_typed_stream_and_the_connection_goes_on(
    served: Project, daemon: Daemon
) -> None:
    with served.watch("events.watch") as watcher:
        watcher.news()
        reload(served.daemon)
        ended = watcher.read()
        watcher.ask("events.watch", cwd=str(served.root), since=ended["result"]["seq"])
        watcher.news()
        served.record()

        assert ended["result"] == {"reason": "reloading", "seq": 0}
        assert seqs(watcher.news()) == [1]


def test_a_log_that_was_replaced_by_a_shorter_one_is_told(served: Project) -> None:
    backup = served.root / "earlier.db"
    assert icctl("backup", str(backup), cwd=served.root, env=DIRECT).returncode == 0
    served.record()
    with served.watch("events.watch", since=0) as watcher:
        watcher.news()
        done = icctl("restore", str(backup), cwd=served.root, env=DIRECT)
        assert done.returncode == 0, done

        assert watcher.read()["error"]["data"]["name"] == "cursor_ahead"


@pytest.mark.parametrize("method", ["state.watch", "events.watch"])
def test_in_a_batch_and_without_an_id_nothing_is_watched(served: Project, method: str) -> None:
    params = {"cwd": str(served.root)} | ({"key": "k"} if method == "state.watch" else {})
    watch = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    silent = {name: value for name, value in watch.items() if name != "id"}
    ping = {"jsonrpc": "2.0", "id": 2, "method": "icd.ping"}
    with served.daemon.connect() as sock, sock.makefile("rb") as lines:
        for message in ([watch], silent, ping):
            sock.sendall(json.dumps(message).encode() + b"\n")
        batch, pong = json.loads(lines.readline()), json.loads(lines.readline())

    assert batch[0]["error"]["data"]["name"] == "invalid_request"
    assert pong["id"] == 2


# --- many, and slow ones ---


def test_a_watcher_that_never_reads_is_told_so_and_dropped(served: Project, daemon: Daemon) -> None:
    big = {"text": "x" * 100_000}
    with (
        served.watch("events.watch", size=4096) as slow,
        served.watch("events.watch") as quick,
    ):
        slow.news()
        quick.news()
        for _ in range(60):
            served.record(payload=big)
            quick.news()
        until(lambda: served.daemon.call("icd.status")["subscribers"] == 1)

        found: list[int] = []
        while "method" in (message := slow.read()):
            found += seqs(message["params"])
        error = message["error"]["data"]

        assert (error["name"], error["seq"]) == ("slow_consumer", found[-1])
        assert found == list(range(1, found[-1] + 1))
        assert found[-1] < 60
        assert slow.lines.readline() == b""
        with served.watch("events.watch", since=found[-1]) as again:
            assert seqs(again.news())[0] == found[-1] + 1


def test_slow_watchers_do_not_fill_the_memory(served: Project, daemon: Daemon) -> None:
    big = {"text": "x" * 100_000}
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            slow = stack.enter_context(served.watch("events.watch", size=4096))
            slow.news()
        before = resident_kb(served.daemon.pid)
        for _ in range(100):
            served.record(payload=big)

        # All of it for each of them would be 200 MB.
        assert resident_kb(served.daemon.pid) - before < 60_000


def resident_kb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.partition("VmRSS:")[2].split()[0])


def test_idle_watchers_cost_the_database_nothing(served: Project, daemon: Daemon) -> None:
    """One look for all of them, however many there are."""
    with contextlib.ExitStack() as stack:
        for number in range(100):
            rows = stack.enter_context(served.watch("state.watch", key="k", scope_id=f"{number}"))
            log = stack.enter_context(served.watch("events.watch", run_id=f"{number}"))
            rows.news()
            log.news()
        assert served.daemon.call("icd.status")["subscribers"] == 200
        before, began = served.batches, time.monotonic()
        time.sleep(4 * limits.WATCH_LOOK_SECONDS)
        looks, took = served.batches - before, time.monotonic() - began

        assert 1 <= looks <= took / limits.WATCH_LOOK_SECONDS + 2


def test_idle_commands_that_go_on_cost_the_database_nothing_either(
    served: Project, daemon: Daemon
) -> None:
    env = {"INTERCORE_MODE": "daemon", "INTERCORE_SOCKET": served.daemon.socket}
    commands = [
        ["events", "tail", "--all", "--follow"], ["wait", "--event=x"], ["state", "watch", "k"],
    ]  # fmt: skip
    with contextlib.ExitStack() as stack:
        for argv in commands * 3:
            stack.enter_context(command(*argv, cwd=served.root, env=env))
        until(lambda: served.daemon.call("icd.status")["subscribers"] == 9)

        def rests() -> bool:
            before, began = served.batches, time.monotonic()
            time.sleep(4 * limits.WATCH_LOOK_SECONDS)
            looks, took = served.batches - before, time.monotonic() - began
            return looks <= took / limits.WATCH_LOOK_SECONDS + 2

        until(rests)


def test_an_event_is_read_once_for_many_who_do_not_want_it(served: Project, daemon: Daemon) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(50):
            stack.enter_context(served.watch("events.watch", run_id=f"{number}")).news()
        last = stack.enter_context(served.watch("events.watch"))
        last.news()
        (before,) = served.daemon.call("icd.status")["databases"]
        for _ in range(20):
            served.record()
            last.news()
        (after,) = served.daemon.call("icd.status")["databases"]

    assert after["own_batches"] - before["own_batches"] < 20 * 4


def test_nobody_looks_at_a_database_that_nobody_watches_any_more(
    served: Project, daemon: Daemon
) -> None:
    with served.watch("state.watch", key="k") as rows, served.watch("events.watch") as log:
        rows.news()
        log.news()
    until(lambda: served.daemon.call("icd.status")["subscribers"] == 0)

    def rests() -> bool:
        before = served.batches
        time.sleep(3 * limits.WATCH_LOOK_SECONDS)  # a watcher would have it looked at as often
        return served.batches <= before + 1  # its mirror looks now and then

    until(rests)


# --- the commands, through both doors and without a daemon ---


@pytest.fixture(params=["daemon", "direct"])
def host(request: pytest.FixtureRequest, any_daemon: Daemon) -> dict[str, str]:
    """The environment of a client that is served by a daemon, or that has to do without."""
    if request.param == "daemon":
        return {"INTERCORE_MODE": "daemon", "INTERCORE_SOCKET": any_daemon.socket}
    return {"INTERCORE_SOCKET": "/nonexistent/icd.sock"}


def test_state_watch_prints_the_same_in_both_hosts(
    served: Project, host: dict[str, str], door: Path
) -> None:
    with command("state", "watch", "k", "s", cwd=served.root, env=host) as watcher:
        assert watcher.stdout is not None
        first = watcher.stdout.readline()
        served.put({"a": 1})
        second = watcher.stdout.readline()
        served.daemon.call("state.delete", cwd=str(served.root), key="k", scope_id="s")
        third = watcher.stdout.readline()

    assert (first, second, third) == (b"\n", b'{"a": 1}\n', b"\n")


def test_a_tail_that_follows_is_told_that_the_log_went_back(
    served: Project, host: dict[str, str], door: Path
) -> None:
    backup = served.root / "earlier.db"
    assert icctl("backup", str(backup), cwd=served.root, env=DIRECT).returncode == 0
    served.record()
    with command("events", "tail", "--all", "-f", cwd=served.root, env=host) as follower:
        assert follower.stdout is not None
        assert json.loads(follower.stdout.readline())["seq"] == 1
        assert icctl("restore", str(backup), cwd=served.root, env=DIRECT).returncode == 0
        _, told = follower.communicate(timeout=PATIENCE)

    assert (follower.returncode, b"the last event is 0" in told) == (2, True)


def test_wait_ends_with_what_it_waited_for(
    served: Project, host: dict[str, str], door: Path
) -> None:
    with (
        command("wait", "--state", "k", "s", cwd=served.root, env=host) as row,
        command("wait", "--event=done", "--since=0", cwd=served.root, env=host) as event,
    ):
        served.put(1)
        served.record("other")
        served.record("done")
        shown = [process.communicate(timeout=PATIENCE) for process in (row, event)]

    assert [row.returncode, event.returncode] == [0, 0]
    assert shown[0] == (b"1\n", b"")
    assert (json.loads(shown[1][0])["seq"], shown[1][1]) == (2, b"")


def test_wait_exits_1_when_its_time_is_up(
    served: Project, host: dict[str, str], door: Path
) -> None:
    began = time.monotonic()
    for what in (["--state", "k", "s"], ["--event=done"]):
        done = icctl("wait", *what, "--timeout=1s", cwd=served.root, env=host)

        assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")
    assert time.monotonic() - began >= 2


def test_a_wait_that_the_daemon_cuts_short_does_not_look_like_success(
    initialized: Path, door: Path
) -> None:
    with running() as daemon:
        env = {"INTERCORE_MODE": "daemon", "INTERCORE_SOCKET": daemon.socket}
        with command("wait", "--state", "k", "s", cwd=initialized, env=env) as waiting:
            until(lambda: daemon.call("icd.status")["subscribers"] == 1)
            daemon.stop()
            shown = waiting.communicate(timeout=PATIENCE)

    assert (waiting.returncode, shown[0]) == (2, b"")
    assert b"stopping" in shown[1]


def test_a_wait_survives_a_reload_and_misses_nothing(
    served: Project, daemon: Daemon, door: Path
) -> None:
    env = {"INTERCORE_MODE": "daemon", "INTERCORE_SOCKET": served.daemon.socket}
    with command("wait", "--event=done", "--timeout=60s", cwd=served.root, env=env) as waiting:
        until(lambda: served.daemon.call("icd.status")["subscribers"] == 1)
        served.daemon.process.send_signal(signal.SIGHUP)  # type: ignore[union-attr]
        served.record_directly("done")
        shown = waiting.communicate(timeout=PATIENCE)

    assert (waiting.returncode, shown[1]) == (0, b"")
    assert json.loads(shown[0])["seq"] == 1


def test_a_watch_survives_a_reload_and_shows_nothing_twice(
    served: Project, daemon: Daemon, door: Path
) -> None:
    env = {"INTERCORE_MODE": "daemon", "INTERCORE_SOCKET": served.daemon.socket}
    served.put(1, "a")
    served.put(2, "b")
    with command("state", "watch", "k", cwd=served.root, env=env) as watcher:
        assert watcher.stdout is not None
        before = [watcher.stdout.readline() for _ in range(2)]
        served.put(3, "c")
        before.append(watcher.stdout.readline())
        reload(served.daemon)
        served.put(4, "d")
        after = watcher.stdout.readline()

    assert (before, after) == ([b"a\t1\n", b"b\t2\n", b"c\t3\n"], b"d\t4\n")
