"""Going on with other code: not one call is refused, lost or done twice."""

import contextlib
import json
import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import icd
from icd.app import registry
from icd.server import limits
from tests.support.processes import PATIENCE, Daemon, icctl, read_line, running, until
from tests.support.restarts import last_loaded, listening, marked, reload
from tests.support.sizes import size

CALLERS = 8
CALLS = size(125, 40)
RELOADS = 10

# One caller: a process of `icctl` for each call, which must do what it is told, once.
CALLER = """
import subprocess, sys
icctl, name, calls = sys.argv[1], sys.argv[2], int(sys.argv[3])
for number in range(calls):
    done = subprocess.run([icctl, "state", "incr", "n", name, "--timeout=60s"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{number + 1}\\n", ""), done
"""

HELD = """
import fcntl, os, signal, sys
lock = os.open(sys.argv[1], os.O_RDWR)
fcntl.flock(lock, fcntl.LOCK_EX)
print("held", flush=True)
signal.pause()
"""


SHORT = """
import os, resource, sys
from icd.app import registry
from icd.server.main import _loading
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
rest = _loading()
free = os.open(os.devnull, os.O_RDONLY)
os.close(free)
resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
pauses = [next(rest) for _ in range(3)]
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
for _ in rest: pass
print(all(pauses), set(registry.modules()) <= set(sys.modules))
"""


def line(method: str, **params: Any) -> bytes:
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return json.dumps(request).encode() + b"\n"


@contextlib.contextmanager
def installed(tmp_path: Path) -> Iterator[tuple[Daemon, Path]]:
    """A daemon whose code is a copy, which a test may change under it."""
    package = shutil.copytree(Path(icd.__file__).parent, tmp_path / "code" / "icd")
    loaded = marked(package, tmp_path / "loaded")
    with running(env={"PYTHONPATH": str(package.parent)}) as daemon:
        until(loaded.exists)  # a moment after it has started
        yield daemon, package


def release(package: Path, version: str) -> None:
    (package / "__init__.py").write_text(f'__version__ = "{version}"\n')


@pytest.mark.long
@pytest.mark.timeout(300)
def test_hundreds_of_calls_survive_ten_reloads(initialized: Path, door: Path) -> None:
    with running() as daemon:
        env = {**daemon.env, "INTERCORE_SOCKET": daemon.socket, "INTERCORE_MODE": "daemon"}
        callers = [
            subprocess.Popen(
                [sys.executable, "-c", CALLER, door / "icctl", str(number), str(CALLS)],
                cwd=initialized, env=env, stderr=subprocess.PIPE,
            )
            for number in range(CALLERS)
        ]  # fmt: skip

        for _ in range(RELOADS):
            reload(daemon)
        said = [caller.communicate(timeout=200)[1].decode() for caller in callers]

        counted = [
            daemon.call("state.get", cwd=str(initialized), key="n", scope_id=str(number))["payload"]
            for number in range(CALLERS)
        ]
        assert said == [""] * CALLERS
        assert counted == [CALLS] * CALLERS
        assert daemon.call("icd.ping")["pid"] == daemon.pid


def test_a_connection_goes_on_where_it_was(initialized: Path) -> None:
    whole = line("state.incr", cwd=str(initialized), key="n", scope_id="s")
    with running() as daemon, daemon.connect() as quiet, daemon.connect() as talking:
        talking.sendall(whole + whole[:20])
        first = json.loads(read_line(talking))

        reload(daemon)
        talking.sendall(whole[20:])
        quiet.sendall(line("icd.ping"))

        assert first["result"]["value"] == 1
        assert json.loads(read_line(talking))["result"]["value"] == 2
        assert json.loads(read_line(quiet))["result"]["pid"] == daemon.pid


def test_what_was_sent_ahead_is_answered_in_order(initialized: Path) -> None:
    calls = 2000
    whole = line("state.incr", cwd=str(initialized), key="n", scope_id="s")
    with running() as daemon, daemon.connect() as sock, sock.makefile("rb") as replies:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        sock.sendall(whole * calls)

        reload(daemon)
        values = [json.loads(replies.readline())["result"]["value"] for _ in range(calls)]

        assert values == list(range(1, calls + 1))


def test_a_watcher_sees_nothing_of_it_but_later_changes(initialized: Path, door: Path) -> None:
    with running() as daemon:
        env = {**daemon.env, "INTERCORE_SOCKET": daemon.socket}
        watcher = subprocess.Popen(
            [door / "icctl", "statusline", "--watch", "--session", "s"],
            cwd=initialized, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            assert watcher.stdout is not None
            lane = lambda name: daemon.call(  # noqa: E731
                "state.set", cwd=str(initialized), key="lane", scope_id="s",
                payload={"lane": name},
            )  # fmt: skip
            lane("before")
            while b"before" not in watcher.stdout.readline():
                pass

            reload(daemon)
            lane("after")

            assert b"after" in watcher.stdout.readline()
            assert watcher.poll() is None
        finally:
            watcher.kill()
            watcher.communicate()


def test_a_stream_over_json_rpc_ends_with_the_reason(initialized: Path) -> None:
    with running() as daemon, daemon.connect() as sock, sock.makefile("rb") as replies:
        sock.sendall(line("cli.run", cwd=str(initialized), argv=["statusline", "--watch"]))
        assert json.loads(replies.readline())["method"] == "cli.output"

        reload(daemon)
        ended = json.loads(replies.readline())
        sock.sendall(line("icd.ping"))

        assert ended["result"]["stderr"] == "icctl: the daemon is being reloaded; ask again\n"
        assert json.loads(replies.readline())["result"]["pid"] == daemon.pid


def test_the_code_is_the_one_that_is_installed_by_then(tmp_path: Path, initialized: Path) -> None:
    with installed(tmp_path) as (daemon, package):
        release(package, "9.9.9")

        answer = daemon.call("icd.reload")
        until(lambda: listening(daemon) == 2)

        assert answer == {"version": "9.9.9", "previous": icd.__version__, "pid": daemon.pid}
        assert daemon.call("icd.ping") == {"pid": daemon.pid, "version": "9.9.9"}
        assert daemon.call("db.health", cwd=str(initialized))["healthy"]


def test_whoever_asked_is_answered_by_the_new_code(tmp_path: Path, door: Path) -> None:
    with installed(tmp_path) as (daemon, package):
        release(package, "9.9.9")

        done = icctl(
            "service",
            "reload",
            "--timeout=60s",
            cwd=tmp_path,
            env={"INTERCORE_SOCKET": daemon.socket},
        )

        told = f"reloaded: {icd.__version__} -> 9.9.9, pid {daemon.pid}\n"
        assert (done.returncode, done.stdout.decode()) == (0, told)


def test_whoever_asked_is_told_why_not(tmp_path: Path, door: Path) -> None:
    with installed(tmp_path) as (daemon, package):
        (package / "server" / "router.py").write_text("this is no Python\n")

        done = icctl(
            "service",
            "reload",
            "--timeout=60s",
            cwd=tmp_path,
            env={"INTERCORE_SOCKET": daemon.socket},
        )

        assert (done.returncode, done.stdout) == (2, b"")
        assert b"icctl: service reload: the new version does not start: SyntaxError" in done.stderr


def test_a_daemon_whose_installation_is_gone_knows_every_command(tmp_path: Path) -> None:
    package = shutil.copytree(Path(icd.__file__).parent, tmp_path / "code" / "icd")
    loaded = marked(package, tmp_path / "loaded")
    with running(env={"PYTHONPATH": str(package.parent)}) as daemon:
        until(loaded.exists)  # a moment after it has started
        shutil.rmtree(package.parent)

        for name in registry.commands():
            helped = daemon.call("cli.run", argv=[*name.split(), "--help"], cwd="/")
            assert (helped["exit"], helped.get("stderr", "")) == (0, ""), name
            assert name in helped["stdout"]
        made = daemon.call("cli.run", argv=["init"], cwd=str(tmp_path))
        assert made["exit"] == 0, made


def test_a_daemon_whose_code_is_replaced_before_it_is_loaded_makes_way(tmp_path: Path) -> None:
    package = shutil.copytree(Path(icd.__file__).parent, tmp_path / "code" / "icd")
    (package / last_loaded()).write_text("raise RuntimeError('this is another version')\n")
    with running(env={"PYTHONPATH": str(package.parent)}) as daemon:
        assert daemon.process is not None
        assert daemon.process.wait(PATIENCE) == 0
        assert "cannot load all of the installed code" in daemon.log.read_text()
        assert not os.path.exists(daemon.socket)


def test_a_command_whose_code_is_replaced_before_it_is_loaded_runs_in_its_caller(
    tmp_path: Path,
) -> None:
    package = shutil.copytree(Path(icd.__file__).parent, tmp_path / "code" / "icd")
    with (package / "server" / "main.py").open("a") as file:
        file.write("\nLOAD_AFTER_SECONDS = 3600\n")
    (package / "features" / "leases" / "verbs.py").write_text("from icd.errors import Later\n")
    with running(env={"PYTHONPATH": str(package.parent)}) as daemon:
        asked = daemon.call("cli.run", argv=["lease", "list"], cwd=str(tmp_path))

        assert asked["need"] == "local", asked
        assert daemon.call("icd.ping")["pid"]


def test_code_is_loaded_when_descriptors_are_no_longer_short() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SHORT], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "True True\n", "")


def test_code_that_does_not_start_is_refused(tmp_path: Path) -> None:
    with installed(tmp_path) as (daemon, package):
        (package / "server" / "router.py").write_text("this is no Python\n")

        error = daemon.respond("icd.reload")["error"]

        assert error["data"]["name"] == "reload_refused"
        assert "the new version does not start: SyntaxError" in error["message"]
        assert daemon.call("icd.ping") == {"pid": daemon.pid, "version": icd.__version__}
        assert listening(daemon) == 1


def test_settings_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    with running() as daemon:
        settings = daemon.home / ".config" / "intercore" / "config.toml"
        settings.parent.mkdir(parents=True)
        settings.write_text("durability = 3\n")

        error = daemon.respond("icd.reload")["error"]

        assert f"{settings}:1: durability" in error["message"]
        assert daemon.call("icd.ping")["pid"] == daemon.pid


def test_code_that_cannot_take_over_is_refused(tmp_path: Path) -> None:
    with installed(tmp_path) as (daemon, package):
        module = package / "server" / "reexec.py"
        module.write_text(
            re.sub(r"^FORMAT = \d+", "FORMAT = 0", module.read_text(), flags=re.MULTILINE)
        )

        error = daemon.respond("icd.reload")["error"]

        assert "cannot take over" in error["message"]
        assert daemon.call("icd.ping")["pid"] == daemon.pid


def test_a_call_that_does_not_end_keeps_the_daemon_as_it_is(initialized: Path) -> None:
    database = initialized / ".clavain" / "intercore.db"
    with running() as daemon, daemon.connect() as waiting:
        daemon.call("db.health", cwd=str(initialized))
        holder = subprocess.Popen(
            [sys.executable, "-c", HELD, f"{database}.lock"], stdout=subprocess.PIPE
        )
        try:
            assert holder.stdout is not None
            holder.stdout.readline()
            waiting.sendall(
                line("state.incr", cwd=str(initialized), key="n", scope_id="s", deadline_ms=60_000)
            )
            until(lambda: daemon.call("icd.status")["databases"][0]["waiting"] == 1)

            daemon.process.send_signal(signal.SIGHUP)  # type: ignore[union-attr]
            until(lambda: "not reloaded" in daemon.log.read_text(), patience=60)
            holder.kill()

            assert json.loads(read_line(waiting))["result"]["value"] == 1
            assert "1 calls are still running" in daemon.log.read_text()
            assert listening(daemon) == 1
        finally:
            holder.kill()
            holder.communicate()


@contextlib.contextmanager
def held(project: Path) -> Iterator[None]:
    """Somebody without the daemon is at the database, and does not leave."""
    lock = project / ".clavain" / "intercore.db.lock"
    holder = subprocess.Popen([sys.executable, "-c", HELD, str(lock)], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        yield
    finally:
        holder.kill()
        holder.communicate()


def test_a_database_that_does_not_close_is_left_behind(initialized: Path) -> None:
    with running() as daemon:
        daemon.call("db.health", cwd=str(initialized))

        with held(initialized):
            reload(daemon)

            assert daemon.call("icd.ping")["pid"] == daemon.pid
            assert daemon.stop() == 0
        assert "does not close" in daemon.log.read_text()


def test_whoever_asks_for_what_is_being_done_is_not_waited_for() -> None:
    with running() as daemon, daemon.connect() as sock, sock.makefile("rb") as replies:
        sock.sendall(line("icd.reload") * 2)
        answers = [json.loads(replies.readline()) for _ in range(2)]
        until(lambda: listening(daemon) == 2)

        assert [answer["result"]["pid"] for answer in answers] == [daemon.pid] * 2
        assert "not reloaded" not in daemon.log.read_text()


def test_what_is_carried_out_again_is_not_slow(initialized: Path, door: Path) -> None:
    with running() as daemon:
        env = {"INTERCORE_SOCKET": daemon.socket}

        done = icctl("service", "reload", "--timeout=60s", cwd=initialized, env=env)

        assert done.returncode == 0
        assert daemon.call("icd.status")["methods"]["icd.reload"]["total_ms"] < 10_000


def test_a_reload_that_is_refused_leaves_streams_possible(
    initialized: Path, tmp_path: Path
) -> None:
    """A call of somebody who left keeps its database busy: by then streams have been ended."""
    other = tmp_path / "other"
    other.mkdir()
    argv = ["statusline", "--watch", "--session", "s"]
    watch = line("cli.run", cwd=str(other), argv=argv)
    with running() as daemon, daemon.connect() as sock, sock.makefile("rb") as replies:
        daemon.call("db.init", cwd=str(other))
        daemon.call("db.health", cwd=str(initialized))
        with held(initialized):
            with (
                daemon.connect() as leaving
            ):  # a reply that it does not read: so it is seen leaving
                leaving.sendall(line("icd.ping"))
                leaving.recv(1, socket.MSG_PEEK)
                leaving.sendall(
                    line("state.incr", cwd=str(initialized), key="n", scope_id="s",
                         deadline_ms=60_000)
                )  # fmt: skip
                until(lambda: any(d["waiting"] for d in daemon.call("icd.status")["databases"]))
            sock.sendall(watch)
            assert json.loads(replies.readline())["method"] == "cli.output"
            daemon.process.send_signal(signal.SIGHUP)  # type: ignore[union-attr]
            assert b"being reloaded" in replies.readline()
            until(lambda: "not reloaded" in daemon.log.read_text(), patience=60)

            sock.sendall(watch)
            begun, news = replies.readline(), _lane(daemon, other, replies)

        assert json.loads(begun)["method"] == "cli.output"
        assert json.loads(news)["method"] == "cli.output"


def _lane(daemon: Daemon, project: Path, replies: Any) -> bytes:
    """What a watcher gets when something changes."""
    daemon.call("state.set", cwd=str(project), key="lane", scope_id="s", payload={"lane": "new"})
    found: bytes = replies.readline()
    return found


def test_a_place_that_is_lost_while_everybody_is_waited_for_is_taken_again(
    initialized: Path,
) -> None:
    with running() as daemon, daemon.connect() as waiting:
        daemon.call("db.health", cwd=str(initialized))
        with held(initialized):
            waiting.sendall(
                line("state.incr", cwd=str(initialized), key="n", scope_id="s", deadline_ms=60_000)
            )
            until(lambda: daemon.call("icd.status")["databases"][0]["waiting"] == 1)
            os.unlink(daemon.socket)
            until(lambda: os.path.exists(daemon.socket))
            time.sleep(limits.PLACE_SECONDS / 2)  # then it looks in the middle of its waiting
            daemon.process.send_signal(signal.SIGHUP)  # type: ignore[union-attr]
            while "not reloaded" not in daemon.log.read_text() and daemon.process.poll() is None:  # type: ignore[union-attr]
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(daemon.socket)
                time.sleep(0.01)

        assert json.loads(read_line(waiting))["result"]["value"] == 1
        until(daemon.answers)
        assert daemon.call("icd.ping")["pid"] == daemon.pid


def test_the_interpreter_keeps_its_flags(tmp_path: Path) -> None:
    """What -E keeps out at the start must not get in at the first reload."""
    command = [sys.executable, "-E", "-s", "-P", "-m", "icd"]
    with running(command=command) as daemon:
        reload(daemon)

        words = Path(f"/proc/{daemon.pid}/cmdline").read_bytes().split(b"\0")
        assert {b"-E", b"-s", b"-P"} <= set(words)


def test_a_daemon_may_be_started_where_nothing_is_any_more(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    start = 'cd "$1" && rmdir "$1" && shift && exec "$@"'
    command = ["bash", "-c", start, "-", str(gone), sys.executable, "-m", "icd"]
    with running(command=command) as daemon:
        reload(daemon)

        assert daemon.call("icd.ping")["pid"] == daemon.pid


def test_signals_that_arrive_meanwhile_are_not_lost() -> None:
    with running() as daemon:
        process = daemon.process
        assert process is not None
        process.send_signal(signal.SIGHUP)
        until(lambda: '"reloading"' in daemon.log.read_text())

        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)

        assert process.wait(PATIENCE) == 0
        assert not os.path.exists(daemon.socket)


def test_no_thread_but_the_first_hears_signals(initialized: Path) -> None:
    """One that it hears in the moment before the next daemon begins would be lost."""
    large = ["x" * 50_000] * 4
    with running() as daemon:
        daemon.call("state.set", cwd=str(initialized), key="k", scope_id="s", payload=large)

        status = []
        for tid in set(os.listdir(f"/proc/{daemon.pid}/task")) - {str(daemon.pid)}:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                status.append(Path(f"/proc/{daemon.pid}/task/{tid}/status").read_text())

        blocked = [int(re.findall(r"SigBlk:\t(\w+)", text)[0], 16) for text in status]
        wanted = sum(1 << (told - 1) for told in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT))
        assert blocked
        assert [mask & wanted for mask in blocked] == [wanted] * len(blocked)


def test_an_interpreter_that_vanishes_at_the_last_moment_does_no_harm(initialized: Path) -> None:
    """The first start of this interpreter removes it; the second one fails."""
    harness = """
import sys
sys.executable = sys.argv.pop(1)
from icd.__main__ import main
main()
"""
    daemon = Daemon()
    once = daemon.home / "python-once"
    once.write_text(f'#!/bin/sh\nrm "$0"\nexec {sys.executable} "$@"\n')
    once.chmod(0o700)
    daemon._command = [sys.executable, "-c", harness, str(once)]
    try:
        daemon.start()
        with daemon.connect() as sock:
            sock.sendall(line("icd.ping"))
            assert json.loads(read_line(sock))["result"]["pid"] == daemon.pid
            daemon.call("icd.reload")
            until(lambda: listening(daemon) == 2)

            sock.sendall(line("state.incr", cwd=str(initialized), key="n", scope_id="s"))

            assert json.loads(read_line(sock))["result"]["value"] == 1
            assert "not reloaded" in daemon.log.read_text()
    finally:
        daemon.close()


def test_an_interpreter_that_is_gone_is_told(tmp_path: Path) -> None:
    daemon = Daemon()
    harness = "import sys; sys.executable = sys.argv.pop(1); from icd.__main__ import main; main()"
    daemon._command = [sys.executable, "-c", harness, str(tmp_path / "no-python")]
    try:
        daemon.start()

        error = daemon.respond("icd.reload")["error"]

        assert "the new version does not start: [Errno 2] No such file" in error["message"]
        assert daemon.call("icd.ping")["pid"] == daemon.pid
    finally:
        daemon.close()


def test_a_terminal_that_is_closed_stops_its_daemon() -> None:
    """Its shell says so with the same signal that asks for a reload."""
    daemon = Daemon()
    command = [sys.executable, "-m", "icd", "serve", "--socket", daemon.socket]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(sys.executable, command, daemon.env)
    try:
        until(lambda: os.path.exists(daemon.socket) and _connects(daemon))

        os.close(terminal)

        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert not os.path.exists(daemon.socket)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        daemon.close()


def _connects(daemon: Daemon) -> bool:
    with contextlib.suppress(OSError), daemon.connect():
        return True
    return False


def test_a_helper_of_a_shell_goes_on(initialized: Path) -> None:
    script = """
    source "$(icctl lib-path)"
    intercore_sentinel_check_or_legacy one s 0 && echo one
    kill -HUP "$1"; until [ "$(grep -c '"listening"' "$2")" = 2 ]; do :; done
    intercore_sentinel_check_or_legacy two s 0 && echo two
    """
    with running() as daemon:
        done = subprocess.run(
            ["bash", "-c", script, "-", str(daemon.pid), str(daemon.log)],
            cwd=initialized, env={**daemon.env, "INTERCORE_SOCKET": daemon.socket},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

        assert (done.stdout, done.stderr) == ("one\ntwo\n", "")
        assert (
            icctl("ping", cwd=initialized, env={"INTERCORE_SOCKET": daemon.socket}).returncode == 0
        )
