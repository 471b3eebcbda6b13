"""Looking inside a running daemon: times, callers, starts that failed, slow calls, metrics."""

import contextlib
import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parsed

from icd.features.daemon.report import BUCKETS_MS
from tests.support import processes
from tests.support.processes import CLEAN, PATIENCE, Daemon, icctl, read_line, running, until

SECRET = "Sesam-open-yourself"


def through(daemon: Daemon) -> dict[str, str]:
    return {"INTERCORE_SOCKET": daemon.socket, "INTERCORE_MODE": "daemon"}


def ask(daemon: Daemon, *requests: dict[str, Any]) -> list[dict[str, Any]]:
    """Send the requests at once; their responses."""
    with daemon.connect() as sock:
        lines = [json.dumps({"jsonrpc": "2.0", "id": 1, **r}).encode() + b"\n" for r in requests]
        sock.sendall(b"".join(lines))
        data = b""
        while data.count(b"\n") < len(requests):
            data += read_line(sock)
        return [json.loads(line) for line in data.splitlines()]


@contextlib.contextmanager
def locked(project: Path) -> Iterator[None]:
    """Somebody else holds the lock of the database."""
    lock = project / ".clavain" / "intercore.db.lock"
    holder = subprocess.Popen(["flock", lock, "-c", "read line"], stdin=subprocess.PIPE)
    try:
        until(lambda: subprocess.run(["flock", "-n", lock, "true"], check=False).returncode == 1)
        yield
    finally:
        holder.communicate(b"\n")


# --- how long calls take ---


def test_every_method_has_its_calls_failures_and_times(daemon: Daemon, initialized: Path) -> None:
    for _ in range(5):
        daemon.call("state.incr", cwd=str(initialized), key="n", scope_id="s")
    daemon.respond("state.incr", cwd="/nonexistent", key="n", scope_id="s")

    report = daemon.call("icd.status")

    found = report["methods"]["state.incr"]
    assert (found["calls"], found["failures"]) == (6, 1)
    assert 0 < found["p50_ms"] <= found["p99_ms"]
    assert found["total_ms"] > 0
    assert len(found["buckets"]) == len(BUCKETS_MS)
    assert found["buckets"] == sorted(found["buckets"])
    assert report["calls"]["state.incr"] == 6


def test_the_wait_for_a_database_counts(daemon: Daemon, initialized: Path) -> None:
    daemon.call("state.incr", cwd=str(initialized), key="n", scope_id="s")
    with locked(initialized):
        daemon.respond("state.set", cwd=str(initialized), key="n", scope_id="s", payload=1, deadline_ms=300)  # fmt: skip

    found = daemon.call("icd.status")["methods"]

    assert found["state.set"]["p50_ms"] > 250
    assert found["state.set"]["failures"] == 1


def test_a_request_that_waits_for_its_turn_is_timed_from_then_on(
    daemon: Daemon, initialized: Path
) -> None:
    cwd = str(initialized)
    with locked(initialized):
        slow = {"method": "cli.run", "params": {"cwd": cwd, "argv": ["state", "incr", "n", "s", "--timeout=2s"]}}  # fmt: skip
        ask(daemon, slow, {"method": "icd.ping", "params": {}}, {"method": "state.get", "params": {"cwd": "/nonexistent", "key": "k", "scope_id": "s"}})  # fmt: skip

    found = daemon.call("icd.status")["methods"]

    assert found["state.incr"]["p50_ms"] > 1500
    assert found["state.get"]["p50_ms"] < found["state.incr"]["p50_ms"]


def test_the_rate_and_the_start_are_told(daemon: Daemon, initialized: Path) -> None:
    began = time.time()
    for _ in range(20):
        daemon.call("icd.ping")

    report = daemon.call("icd.status")

    assert report["rates"]["last_minute"] > 0
    assert report["rates"]["last_15_minutes"] > 0
    assert abs(report["started_at"] - began) < 60
    assert report["started_at_iso"].endswith("Z")


def test_a_stream_is_a_subscriber_until_it_ends(daemon: Daemon, initialized: Path) -> None:
    watching = subprocess.Popen(
        [processes.door / "icctl", "statusline", "--session=s1", "--watch"],
        cwd=initialized, env={**CLEAN, **through(daemon)}, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert watching.stdout is not None
    watching.stdout.readline()

    during = daemon.call("icd.status")["subscribers"]
    watching.kill()
    watching.communicate()

    assert during == 1
    until(lambda: daemon.call("icd.status")["subscribers"] == 0)
    assert daemon.call("icd.status")["methods"]["statusline.get"]["calls"] == 1


# --- who fails ---


def hook(daemon: Daemon, project: Path, text: str, *arguments: str) -> str:
    """Run a script of somebody who looks at nothing."""
    script = project / "hook.sh"
    script.write_text(text)
    env = {**CLEAN, **through(daemon), "HOME": str(project)}
    subprocess.run(
        ["bash", script, *arguments], cwd=project, env=env, capture_output=True, check=False,
        timeout=PATIENCE,
    )  # fmt: skip
    return str(script)


def test_a_failing_script_is_named_with_what_it_failed_at(
    daemon: Daemon, initialized: Path, door: Path
) -> None:
    script = hook(
        daemon,
        initialized,
        f"""
        icctl state set k s --value '{{"broken'
        icctl state set k s --value '{{"broken'
        icctl state set k s {SECRET}
        icctl state set {SECRET} s --value 1
        icctl stat get {SECRET}
        icctl state get k s
        """,
        SECRET,
    )

    report = daemon.call("icd.status")

    rows = {row["method"]: row for row in report["failures_by_caller"]}
    assert {row["caller"] for row in rows.values()} == {script}
    assert {name: row["count"] for name, row in rows.items()} == {"state.set": 4, "command": 1}
    assert rows["command"]["error"] == "usage"
    assert report["last_error"]["method"] == "command"
    assert report["last_error"]["caller"] == script
    assert SECRET not in json.dumps(report)
    assert SECRET not in daemon.log.read_text()


def test_a_sentence_tells_what_went_wrong(daemon: Daemon, initialized: Path) -> None:
    hook(daemon, initialized, "icctl state set k s --value '\"x\"'; icctl state incr k s")

    last = daemon.call("icd.status")["last_error"]

    assert (last["error"], last["sentence"]) == ("not_an_integer", "k s does not hold an integer")


def test_a_peer_that_speaks_json_is_named_too(daemon: Daemon) -> None:
    daemon.respond("state.list", cwd="/nonexistent", key="k")

    (row,) = daemon.call("icd.status")["failures_by_caller"]

    assert (row["method"], row["error"]) == ("state.list", "no_database")
    assert row["caller"] != "unknown"


@pytest.mark.parametrize(
    "method, params, counted",
    [
        ("state.list", {"cwd": "relative", "key": "k"}, "state.list"),
        ("state.list", {"cwd": "/", "key": 7}, "state.list"),
        (SECRET, {}, "method"),
        ("state." + SECRET, {}, "method"),
        ("state.set", {"cwd": "/", "key": SECRET, "scope_id": "s", "payload": 1}, "state.set"),
        ("state.set", {"cwd": "/", "key": "k", "scope_id": "s", "payload": "x" * 2**20}, "state.set"),
        ("icd.hello", {"protocols": [7]}, "icd.hello"),
    ],
)  # fmt: skip
def test_a_call_that_makes_no_sense_is_counted(daemon, method, params, counted) -> None:
    daemon.respond(method, **params)

    report = daemon.call("icd.status")

    assert report["failures"] == {counted: 1}
    assert report["methods"][counted]["calls"] == 1
    assert SECRET not in json.dumps(report)


def test_an_expected_no_is_nobodys_fault(daemon: Daemon, initialized: Path) -> None:
    cwd = str(initialized)
    for _ in range(2):
        daemon.call("sentinel.check", cwd=cwd, name="n", scope_id="s", interval=60)
    daemon.call("state.get", cwd=cwd, key="k", scope_id="s")
    daemon.respond("state.set", cwd=cwd, key="k", scope_id="s", payload=1, if_version=9)

    report = daemon.call("icd.status")

    assert report["failures_by_caller"] == []
    assert "last_error" not in report
    assert report["methods"]["state.set"]["calls"] == 1


# --- starts that failed ---


def serve(daemon: Daemon) -> int:
    command = [sys.executable, "-m", "icd", "serve", "--socket", daemon.socket]
    return subprocess.run(
        command, env=daemon.env, capture_output=True, timeout=PATIENCE, check=False
    ).returncode


def test_a_start_that_failed_is_told_by_the_next_daemon() -> None:
    daemon = Daemon()
    settings = daemon.home / ".config" / "intercore" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text("durability = 7\n")
    try:
        assert serve(daemon) == 78
        settings.unlink()
        daemon.start()
        assert serve(daemon) == 0  # it runs already: no failure

        (told,) = daemon.call("icd.status")["start_up_errors"]
        shown = icctl("status", cwd=daemon.home, env=through(daemon)).stdout.decode()
    finally:
        daemon.close()

    assert f"{settings}:1: durability: " in told["sentence"]
    assert told["sentence"].endswith("; correct the file and retry")
    assert told["at_iso"].endswith("Z")
    assert f"! failed to start {told['at_iso']}: {told['sentence']}\n" in shown


def test_the_note_of_a_failed_start_is_private() -> None:
    daemon = Daemon()
    try:
        os.mkdir(daemon.socket)

        assert serve(daemon) == 78

        mode = (daemon.home / "start-ups").stat().st_mode
        assert stat.S_IMODE(mode) == 0o600
    finally:
        daemon.close()


# --- slow calls ---


def slow_lines(daemon: Daemon) -> list[dict[str, Any]]:
    whole, _, _unfinished = daemon.log.read_text().rpartition("\n")
    lines = [json.loads(line) for line in whole.splitlines()]
    return [line for line in lines if line["msg"] == "slow call"]


def test_a_slow_call_is_one_line_in_the_log(daemon: Daemon, initialized: Path) -> None:
    daemon.call("state.incr", cwd=str(initialized), key="n", scope_id="s")
    with locked(initialized):
        daemon.respond(
            "state.set", cwd=str(initialized), key="n", scope_id=SECRET, payload=SECRET,
            session="s1", deadline_ms=400,
        )  # fmt: skip

    until(lambda: slow_lines(daemon))
    (line,) = [line for line in slow_lines(daemon) if line["method"] == "state.set"]

    assert line["ms"] >= 250
    assert line["level"] == "warning"
    assert line["database"] == str(initialized)
    assert line["error"] in {"locked", "deadline_exceeded"}
    assert (line["pid"], line["session"]) == (os.getpid(), "s1")
    assert SECRET not in daemon.log.read_text()
    assert daemon.call("icd.status")["slow_calls"] >= 1


def test_what_is_slow_is_for_the_user_to_say(initialized: Path) -> None:
    daemon = Daemon()
    settings = daemon.home / ".config" / "intercore" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text("slow_ms = 60_000\n")
    try:
        daemon.start()
        with locked(initialized):
            daemon.respond("state.list", cwd=str(initialized), key="k", deadline_ms=400)

        assert daemon.call("icd.status")["slow_calls"] == 0
        assert slow_lines(daemon) == []
    finally:
        daemon.close()


def test_waiting_and_running_are_told_apart(initialized: Path) -> None:
    daemon = Daemon()
    settings = daemon.home / ".config" / "intercore" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text("slow_ms = 1\n")
    try:
        daemon.start()
        daemon.call("state.list", cwd=str(initialized), key="k")
        daemon.call("db.vacuum", cwd=str(initialized))

        until(lambda: any(line["method"] == "db.vacuum" for line in slow_lines(daemon)))
        (line,) = [line for line in slow_lines(daemon) if line["method"] == "db.vacuum"]
    finally:
        daemon.close()

    assert line["waited_ms"] >= 0
    assert line["ran_ms"] > 0
    assert line["ms"] == pytest.approx(line["waited_ms"] + line["ran_ms"], abs=0.2)


def test_a_log_line_about_a_path_that_is_not_text_is_written(tmp_path: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/x\xff"))
    odd.mkdir()
    (odd / ".git").mkdir()
    with running() as daemon:
        icctl("init", cwd=odd, env=through(daemon))
        icctl("state", "incr", "n", "s", cwd=odd, env=through(daemon))
        database = odd / ".clavain" / "intercore.db"
        for name in ("-wal", "-shm"):
            Path(f"{database}{name}").unlink(missing_ok=True)
        database.unlink()
        icctl("init", cwd=odd, env={"INTERCORE_MODE": "direct"})
        icctl("state", "incr", "n", "s", cwd=odd, env=through(daemon))

        log = daemon.log.read_text()

    assert "Logging error" not in log
    assert r"x\\udcff/.clavain/intercore.db" in log


# --- for monitors ---


def test_a_monitor_can_read_the_metrics(daemon: Daemon, initialized: Path) -> None:
    icctl("state", "incr", "n", "s", cwd=initialized, env=through(daemon))
    daemon.respond("state.list", cwd="/nonexistent", key="k")

    done = icctl("metrics", cwd=initialized, env=through(daemon))

    families = {family.name: family for family in parsed(done.stdout.decode())}
    calls = {s.labels["method"]: s.value for s in families["intercore_calls"].samples}
    assert (done.returncode, done.stderr) == (0, b"")
    assert calls["state.incr"] == calls["state.list"] == 1
    path = str(initialized / ".clavain" / "intercore.db")
    assert [s.labels for s in families["intercore_database_waiting"].samples] == [
        {"database": path}
    ]


def test_without_a_daemon_there_are_no_metrics(initialized: Path) -> None:
    done = icctl("metrics", cwd=initialized, env={"INTERCORE_SOCKET": "/nonexistent/icd.sock"})

    assert done.returncode == 1
    assert (
        done.stderr == b"icctl: metrics: no daemon is running; start it with: icctl service start\n"
    )
