"""`icctl` as hooks use it: what it reads, what it prints, and what it does when the daemon fails it."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from shlex import quote

import pytest

from icctl import client
from icd.app.flags import strip
from icd.db import migrate
from icd.db.lock import NOTE_BYTES, Note
from icd.errors import Usage
from icd.server.net import socket_claim as sockets
from tests.support import processes
from tests.support.processes import BIN, CLEAN, PATIENCE, Daemon, icctl, running, until

pytestmark = pytest.mark.usefixtures("door")

DIRECT = {"INTERCORE_MODE": "direct"}


def through(daemon: Daemon) -> dict[str, str]:
    return {"INTERCORE_SOCKET": daemon.socket, "INTERCORE_MODE": "daemon"}


def popen(*arguments: str, cwd: Path, env: dict[str, str], **options) -> "subprocess.Popen[bytes]":
    program = processes.door / "icctl"
    return subprocess.Popen([program, *arguments], cwd=cwd, env={**CLEAN, **env}, **options)


@pytest.mark.parametrize("mode", ["daemon", "direct"])
def test_a_hook_finds_all_of_its_stdin_after_a_check(
    mode: str, initialized: Path, any_daemon: Daemon
) -> None:
    hook = "icctl sentinel check stop s --interval=0 || exit 9; icctl ping; cat"
    payload = b'{"session_id":"abc"}\n' + b"x" * 200_000
    env = {
        **CLEAN,
        "HOME": str(initialized),
        "INTERCORE_SOCKET": any_daemon.socket,
        "INTERCORE_MODE": mode,
    }

    done = subprocess.run(
        ["bash", "-c", hook],
        input=payload,
        capture_output=True,
        cwd=initialized,
        env=env,
        check=True,
    )

    assert done.stdout.removeprefix(b"allowed\n").removeprefix(b"pong\n") == payload


@pytest.mark.parametrize("size", [0, 1, 65_536, 1_048_576])
@pytest.mark.parametrize("mode", ["daemon", "direct"])
def test_payloads_of_any_size_arrive_whole(
    size: int, mode: str, initialized: Path, any_daemon: Daemon
) -> None:
    env = {"INTERCORE_SOCKET": any_daemon.socket, "INTERCORE_MODE": mode}
    strings = [("x" * 100_000)[: size % 100_000 or 100_000]] * max(1, size // 100_001)
    payload = json.dumps(strings).encode()[:1_048_576] if size else b"0"

    wrote = icctl("state", "set", "k", "s", cwd=initialized, env=env, stdin=b" " + payload + b"\n")
    read = icctl("state", "get", "k", "s", cwd=initialized, env=env)

    assert (wrote.returncode, wrote.stderr) == (0, b"")
    assert read.stdout == payload + b"\n"


def test_without_a_daemon_the_command_runs_all_the_same(initialized: Path) -> None:
    env = {"INTERCORE_SOCKET": "/nonexistent/icd.sock"}

    done = icctl("health", cwd=initialized, env=env)

    assert (done.returncode, done.stdout, done.stderr) == (0, b"ok\n", b"")


def test_mode_daemon_never_opens_the_database_itself(initialized: Path) -> None:
    env = {"INTERCORE_SOCKET": "/nonexistent/icd.sock", "INTERCORE_MODE": "daemon"}

    done = icctl("state", "set", "k", "s", "--value=1", "--timeout=1s", cwd=initialized, env=env)

    assert done.returncode == 2
    assert done.stderr == (
        b"icctl: state set: no daemon is running, and INTERCORE_MODE is daemon; start it with: icctl service start\n"
    )
    assert icctl("state", "get", "k", "s", cwd=initialized, env=DIRECT).returncode == 1


def test_an_unknown_mode_is_a_usage_error(initialized: Path) -> None:
    done = icctl("health", cwd=initialized, env={"INTERCORE_MODE": "bogus"})

    assert done.returncode == 3


def test_what_the_client_itself_has_to_say_is_json_where_that_is_asked_for(
    initialized: Path,
) -> None:
    modes = {"bogus": ("misconfigured", 3), "daemon": ("no_daemon", 2)}
    for mode, expected in modes.items():
        env = {"INTERCORE_MODE": mode, "INTERCORE_SOCKET": "/nonexistent/icd.sock"}
        done = icctl("health", "--json-errors", "--timeout=1s", cwd=initialized, env=env)

        error = json.loads(done.stderr)["error"]
        assert (error["name"], error["exit"], error["command"]) == (*expected, "health")
        assert (done.returncode, done.stdout) == (expected[1], b"")


def test_no_daemon_chooses_the_direct_way(initialized: Path, daemon: Daemon) -> None:
    done = icctl("health", "--no-daemon", cwd=initialized, env=through(daemon))

    assert done.returncode == 0
    assert "db.health" not in daemon.call("icd.status")["calls"]


def test_the_program_is_named_as_it_was_called(initialized: Path, any_daemon: Daemon) -> None:
    for env in (DIRECT, through(any_daemon)):
        done = icctl("bogus", cwd=initialized, env=env, program=processes.door / "ic")

        assert done.stderr == b"ic: unknown command 'bogus'; see 'ic --help'\n"
        assert done.stdout == b""


def test_a_hint_names_the_program_as_it_was_called(tmp_path: Path, any_daemon: Daemon) -> None:
    for env in (DIRECT, through(any_daemon)):
        done = icctl("health", cwd=tmp_path, env=env, program=processes.door / "ic")
        usual = icctl("health", cwd=tmp_path, env=env)

        assert b"; run 'ic init' in the project's directory" in done.stderr
        assert b"icctl" not in done.stderr
        assert b"; run 'icctl init' in the project's directory" in usual.stderr


def test_a_negative_timeout_is_a_usage_error(initialized: Path, any_daemon: Daemon) -> None:
    for env in (DIRECT, through(any_daemon)):
        done = icctl("health", "--timeout=-5s", cwd=initialized, env=env)

        assert (done.returncode, done.stdout) == (3, b"")
        assert done.stderr == (
            b"icctl: the timeout -5s is negative; use 500ms, 5s, 1m or seconds\n"
        )


def test_a_short_timeout_without_a_daemon_blames_no_daemon(initialized: Path) -> None:
    env = {"INTERCORE_SOCKET": "/nonexistent/icd.sock"}

    done = icctl("state", "list", "k", "--timeout=1ms", cwd=initialized, env=env)

    assert b"daemon" not in done.stderr


@pytest.mark.parametrize("limit", [0, 4096])
def test_a_limit_on_the_size_of_files_is_named(limit: int, initialized: Path) -> None:
    code = "import os, resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2); os.execv(sys.argv[2], sys.argv[2:])"
    words = [str(processes.door / "icctl"), "state", "set", "k", "s", "--value=1"]

    done = subprocess.run(
        [str(BIN / "python"), "-I", "-S", "-c", code, str(limit), *words],
        cwd=initialized, env={**CLEAN, **DIRECT, "HOME": str(initialized)},
        stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=False,
    )  # fmt: skip

    assert done.returncode == 2
    told = f"icctl: state set: this process may not write files larger than {limit} bytes; raise"
    assert done.stderr.startswith(told.encode())


def test_too_few_descriptors_are_named(initialized: Path) -> None:
    """By the native client; the shell that starts the Python one may speak first."""
    env = {**CLEAN, **DIRECT, "HOME": str(initialized)}
    command = ["bash", "-c", "ulimit -n 8; exec icctl health"]

    done = subprocess.run(
        command, cwd=initialized, env=env, capture_output=True, timeout=PATIENCE, check=False
    )

    assert done.returncode
    assert (done.stdout, bool(done.stderr)) == (b"", True)
    if processes.door.name == "native":
        assert done.returncode == 2
        assert done.stderr == (
            b"icctl: too few descriptors left to open a file; raise 'ulimit -n'\n"
        )


def test_ping_and_status_tell_whether_there_is_a_daemon(
    initialized: Path, any_daemon: Daemon
) -> None:
    absent = {"INTERCORE_SOCKET": "/nonexistent/icd.sock"}

    assert icctl("ping", cwd=initialized, env=through(any_daemon)).stdout == b"pong\n"
    assert (
        f"pid {any_daemon.pid}"
        in icctl("status", cwd=initialized, env=through(any_daemon)).stdout.decode()
    )
    assert icctl("ping", cwd=initialized, env=absent).returncode == 1
    assert icctl("status", cwd=initialized, env=absent).returncode == 1


def test_who_wrote_is_the_process_that_ran_the_client(
    initialized: Path, any_daemon: Daemon
) -> None:
    for host in (DIRECT, through(any_daemon)):
        env = {**host, "CLAUDE_SESSION_ID": "session-1"}
        icctl("state", "set", "k", "s", "--value=1", cwd=initialized, env=env)

        row = json.loads(icctl("state", "get", "k", "s", "--json", cwd=initialized, env=env).stdout)

        assert (row["writer_pid"], row["writer_session"]) == (os.getpid(), "session-1")


def test_a_debounced_write_is_skipped_by_the_daemon_only(
    initialized: Path, any_daemon: Daemon
) -> None:
    def write(value: str, env: dict[str, str], session: str = "a") -> int:
        arguments = ("state", "set", "k", "s", "--value", value, "--debounce=1h", "--json")
        done = icctl(*arguments, cwd=initialized, env={**env, "CLAUDE_SESSION_ID": session})
        return int(json.loads(done.stdout)["version"])

    daemon_env = through(any_daemon)
    first = write("1", daemon_env)

    assert write("1", daemon_env) == first
    assert write("2", daemon_env) == first + 1
    assert write("2", daemon_env, session="b") == first + 2
    assert write("2", daemon_env, session="b") == first + 2
    assert write("2", DIRECT, session="b") == first + 3
    assert write("2", daemon_env, session="b") == first + 4
    icctl("state", "delete", "k", "s", cwd=initialized, env=daemon_env)
    assert write("2", daemon_env, session="b") > first + 5


# --- output that nobody reads ---


@pytest.mark.parametrize("mode", ["daemon", "direct"])
def test_a_closed_stdout_does_not_change_the_verdict(
    mode: str, initialized: Path, any_daemon: Daemon
) -> None:
    env = {
        **CLEAN,
        "HOME": str(initialized),
        "INTERCORE_SOCKET": any_daemon.socket,
        "INTERCORE_MODE": mode,
    }
    script = "icctl sentinel check a s --interval=0 >&-; echo $?; icctl sentinel check a s --interval=0 >&-; echo $?"

    done = subprocess.run(
        ["bash", "-c", script], cwd=initialized, env=env, capture_output=True, check=True
    )

    assert done.stdout == b"0\n1\n"


def test_a_stdout_that_is_full_is_an_error(initialized: Path, any_daemon: Daemon) -> None:
    for env in (DIRECT, through(any_daemon)):
        with open("/dev/full", "wb") as full:
            process = popen("help", cwd=initialized, env=env, stdout=full, stderr=subprocess.PIPE)
            _, told = process.communicate(timeout=PATIENCE)

        assert process.returncode == 2
        assert b"cannot write to stdout" in told


def test_a_reader_that_left_is_no_traceback(initialized: Path, any_daemon: Daemon) -> None:
    for env in (DIRECT, through(any_daemon)):
        reader, writer = os.pipe()
        os.close(reader)
        process = popen("help", cwd=initialized, env=env, stdout=writer, stderr=subprocess.PIPE)
        os.close(writer)

        _, told = process.communicate(timeout=PATIENCE)

        assert (process.returncode, told) == (0, b"")


def test_a_deleted_directory_is_told(tmp_path: Path, any_daemon: Daemon) -> None:
    script = "mkdir d; cd d; rmdir ../d; icctl health; echo $?"
    env = {**CLEAN, "HOME": str(tmp_path), **through(any_daemon)}

    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, check=True
    )

    assert done.stdout == b"2\n"
    assert b"the current directory no longer exists" in done.stderr


# --- daemons that do not answer as they should ---


class Impostor(threading.Thread):
    """Listens where a daemon should, and treats its first callers badly."""

    def __init__(self, path: str, manners: list[str]) -> None:
        super().__init__()
        self._sock = socket.socket(socket.AF_UNIX)
        self._sock.bind(path)
        self._sock.listen(16)
        self._path = path
        self._manners = manners
        self.frames: list[bytes] = []
        self.start()

    def run(self) -> None:
        for manner in self._manners:
            connection, _ = self._sock.accept()
            with connection:
                if manner != "unread":
                    self.frames.append(_read_frame(connection))
                if manner == "half a reply":
                    connection.sendall(b"0 1000 0\nallo")
        self._sock.close()
        os.unlink(self._path)


def _read_frame(connection: socket.socket) -> bytes:
    """A whole frame: as many NULs as it announces fields, and one more."""
    data = connection.recv(65_536)
    count = int(data[4 : data.index(b"\0")]) + 1
    while data.count(b"\0") < count:
        data += connection.recv(65_536)
    return data


@pytest.fixture
def private(tmp_path: Path) -> Path:
    directory = tmp_path / "run"
    directory.mkdir(mode=0o700)
    return directory


@pytest.mark.parametrize("manner", ["silence", "half a reply", "unread"])
def test_a_lost_reply_is_asked_for_again_and_nothing_is_done_twice(
    manner: str, initialized: Path, private: Path
) -> None:
    path = str(private / "icd.sock")
    impostor = Impostor(path, [manner] * 2 if manner != "unread" else [manner])

    done = icctl("state", "incr", "n", "s", cwd=initialized, env={"INTERCORE_SOCKET": path})
    impostor.join(PATIENCE)

    assert (done.returncode, done.stdout, done.stderr) == (0, b"1\n", b"")
    ids = {
        next(f for f in frame.split(b"\0") if f[:1] == b"i" and len(f) > 20)
        for frame in impostor.frames
    }
    assert len(ids) == (0 if manner == "unread" else 1)


def test_an_outcome_that_stays_unknown_is_an_error_and_not_a_second_try(
    initialized: Path, private: Path
) -> None:
    """A stopped daemon: connected and sent, but never answered."""
    daemon = Daemon()
    try:
        daemon.start()
        os.kill(daemon.pid, signal.SIGSTOP)
        env = {"INTERCORE_SOCKET": daemon.socket}

        done = icctl("state", "incr", "n", "s", "--timeout=300ms", cwd=initialized, env=env)
        os.kill(daemon.pid, signal.SIGCONT)

        assert done.returncode == 2
        assert done.stderr.startswith(b"icctl: state incr: unknown_outcome: ")
        until(lambda: daemon.call("icd.status")["calls"].get("state.incr") == 1)
        assert _value(initialized) == b"", "its caller had given up before the daemon woke up"
    finally:
        daemon.close()


def _value(project: Path) -> bytes:
    return icctl("state", "get", "n", "s", cwd=project, env=DIRECT).stdout


def test_a_sentinel_whose_winner_did_not_hear_is_told_allowed_again(
    initialized: Path, daemon: Daemon
) -> None:
    params = {"cwd": str(initialized), "name": "n", "scope_id": "s", "interval": 0}

    first = daemon.call("sentinel.check", **params, request_id="one")
    again = daemon.call("sentinel.check", **params, request_id="one")
    other = daemon.call("sentinel.check", **params, request_id="two")

    assert [first["allowed"], again["allowed"], other["allowed"]] == [True, True, False]


def test_a_busy_lock_is_waited_for_until_the_deadline(initialized: Path) -> None:
    lock = initialized / ".clavain" / "intercore.db.lock"
    holder = subprocess.Popen(["flock", lock, "-c", "read line"], stdin=subprocess.PIPE)
    try:
        until(lambda: subprocess.run(["flock", "-n", lock, "true"], check=False).returncode == 1)
        began = time.monotonic()

        late = icctl("state", "list", "k", "--timeout=300ms", cwd=initialized, env=DIRECT)

        assert time.monotonic() - began > 0.3
        assert late.returncode == 2
        assert b"locked by process " in late.stderr
        waiting = popen("state", "list", "k", cwd=initialized, env=DIRECT)
        assert holder.stdin is not None
        holder.stdin.close()
        assert waiting.wait(PATIENCE) == 0
    finally:
        holder.communicate()


def test_a_socket_of_somebody_else_is_not_used(initialized: Path, private: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    path = private / "icd.sock"
    code = f"""
import os, socket, time
sock = socket.socket(socket.AF_UNIX)
sock.bind({str(path)!r})
os.setuid(65534)
sock.listen(5)
print("ready", flush=True)
time.sleep(60)
"""
    other = subprocess.Popen([str(BIN / "python"), "-c", code], stdout=subprocess.PIPE)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == b"ready\n"

        done = icctl("health", cwd=initialized, env={"INTERCORE_SOCKET": str(path)})

        assert (done.returncode, done.stdout) == (0, b"ok\n")
        assert b"a process of another user listens there" in done.stderr
    finally:
        other.kill()
        other.communicate()


def test_interrupting_a_command_is_quiet(initialized: Path) -> None:
    process = popen("state", "set", "k", "s", cwd=initialized, env=DIRECT,
                    stdin=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
    until(lambda: _reads_stdin(process.pid))
    process.send_signal(signal.SIGINT)

    _, told = process.communicate(timeout=PATIENCE)

    assert (process.returncode, told) == (-signal.SIGINT, b"")


def _reads_stdin(pid: int) -> bool:
    """Whether the process waits in read(2) on descriptor 0."""
    try:
        return Path(f"/proc/{pid}/syscall").read_text().split()[:2] == ["0", "0x0"]
    except OSError:
        return False


# --- things that are written twice, because the client cannot import the rest ---


def test_client_and_daemon_agree_on_where_the_socket_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert client.sockets() == sockets.candidates()


@pytest.mark.parametrize(
    "text", ["5s", "250ms", "1m30s", "1h30m", "1.5s", "2d", "0", "-1s", "x", "5", "1..5s", ""]
)
@pytest.mark.parametrize("form", ["--timeout=", "--timeout"])
def test_client_and_daemon_agree_on_durations(text: str, form: str) -> None:
    argv = ["health", form + text] if form.endswith("=") else ["health", form, text]
    try:
        exact = strip(argv).timeout_ms
    except Usage:
        exact = None

    assert client.timeout_ms(argv) == min(exact or client.DEFAULT_MS, client.MAX_MS)


@pytest.mark.parametrize(
    "line",
    [
        "--db --timeout lock list",
        "--db=x --timeout 7s state get --timeout=9s",
        "--timeout 2s -- --timeout=9s",
        "--json --no-daemon --timeout 2s ping",
        "state get --timeout",
        "--timeout --",
    ],
)
def test_client_and_daemon_agree_on_flags(line: str) -> None:
    argv = line.split()
    words, flags = client.typed(argv)
    try:
        found = strip(argv)
    except Usage:  # a --timeout without its value: the daemon says so, in the usual time
        assert client.timeout_ms(argv) == client.DEFAULT_MS
        return

    assert words == [word for word in found.words[: len(words)] if word[:1] != "-"]
    assert ("--no-daemon" in flags) == found.no_daemon
    if words[:1] == ["lock"]:  # to wait for a lock is not to wait for the daemon
        waits = found.timeout_ms or client.PATIENCE_MS
        assert client.timeout_ms(argv) == waits + client.DEFAULT_MS
    else:
        assert client.timeout_ms(argv) == (found.timeout_ms or client.DEFAULT_MS)


# Programs of ours, with a bug that no check of a database finds.
BUGGY = """
import sys
from icd.features.state import store as state
def get(*_args, **_options): raise ZeroDivisionError("a bug of ours")
assert callable(state.get)
state.get = get
"""
BUGGY_ICD = f"{BUGGY}\nfrom icd.__main__ import main\nmain()"
BUGGY_ICCTL = f"{BUGGY}\nfrom icctl.client import main\nsys.exit(main(sys.argv[1:], 'icctl'))"


def test_a_bug_is_a_sentence_with_a_reference_and_the_traceback_is_in_the_log(
    initialized: Path, tmp_path: Path
) -> None:
    """Also where the native client hands over to the Python one, which it looks for beside it."""
    programs = tmp_path / "programs"
    programs.mkdir()
    python = programs / "icctl-python"
    python.write_text(f'#!/bin/sh\nexec {quote(sys.executable)} -c {quote(BUGGY_ICCTL)} "$@"\n')
    python.chmod(0o755)
    if processes.door.name == "native":
        shutil.copy(processes.door / "icctl", programs)
    else:
        (programs / "icctl").symlink_to(python)
    program = programs / "icctl"

    directly = icctl("state", "get", "k", "s", cwd=initialized, env=DIRECT, program=program)
    with running(command=[sys.executable, "-c", BUGGY_ICD]) as daemon:
        served = icctl("state", "get", "k", "s", cwd=initialized, env=through(daemon))
        told = daemon.log.read_text()

    for done in (directly, served):
        assert done.returncode == 2
        assert b"Traceback" not in done.stderr
        assert b"internal error, reference " in done.stderr
    log = (initialized / ".local" / "state" / "intercore" / "icctl.log").read_text()
    for done, text in ((directly, log), (served, told)):
        assert done.stderr.split(b"reference ")[1][:8].decode() in text
        assert "a bug of ours" in text


@pytest.mark.parametrize("mode", ["daemon", "direct"])
def test_ten_inits_at_once_make_one_database(mode: str, project: Path) -> None:
    with running() as daemon:
        env = {"INTERCORE_SOCKET": daemon.socket, "INTERCORE_MODE": mode}
        started = [popen("init", cwd=project, env=env, stdout=subprocess.PIPE) for _ in range(10)]

        outputs = [process.communicate(timeout=PATIENCE)[0] for process in started]

    assert [process.returncode for process in started] == [0] * 10
    assert set(outputs) == {b"initialized .clavain/intercore.db (schema v%d)\n" % migrate.LATEST}
    assert [p.name for p in (project / ".clavain").glob("*.backup-*")] == []


# --- deadlines, as two processes see them ---


def test_a_locked_database_is_named_through_the_daemon_too(
    initialized: Path, daemon: Daemon
) -> None:
    """The daemon is told to be done before the client stops listening."""
    lock = initialized / ".clavain" / "intercore.db.lock"
    holder = subprocess.Popen(["flock", lock, "-c", "read line"], stdin=subprocess.PIPE)
    try:
        until(lambda: subprocess.run(["flock", "-n", lock, "true"], check=False).returncode == 1)

        done = icctl(
            "state",
            "set",
            "k",
            "s",
            "--value=1",
            "--timeout=5s",
            cwd=initialized,
            env=through(daemon),
        )

        assert done.returncode == 2
        assert b"locked by process " in done.stderr
    finally:
        holder.communicate()


def test_a_daemon_that_wakes_up_too_late_does_not_overwrite_newer_data(
    initialized: Path, daemon: Daemon
) -> None:
    def write(value: str, limit: str, env: dict[str, str]) -> int:
        arguments = ("state", "set", "k", "s", f"--value={value}", f"--timeout={limit}")
        return icctl(*arguments, cwd=initialized, env=env).returncode

    os.kill(daemon.pid, signal.SIGSTOP)
    assert write("1", "300ms", {"INTERCORE_SOCKET": daemon.socket}) == 2
    assert write("2", "30s", DIRECT) == 0
    os.kill(daemon.pid, signal.SIGCONT)
    assert daemon.call("icd.ping")

    until(lambda: daemon.call("icd.status")["calls"].get("state.set") == 1)
    assert icctl("state", "get", "k", "s", cwd=initialized, env=DIRECT).stdout == b"2\n"


def test_a_program_that_does_not_know_the_lock_is_waited_for_until_the_deadline(
    initialized: Path, daemon: Daemon
) -> None:
    import sqlite3

    where = {"cwd": str(initialized), "key": "k"}
    daemon.call("state.list", **where)
    foreign = sqlite3.connect(initialized / ".clavain" / "intercore.db", isolation_level=None)
    foreign.execute("BEGIN IMMEDIATE")
    request = {"jsonrpc": "2.0", "id": 1, "method": "state.set"}
    lines = [
        json.dumps(
            {**request, "params": {**where, "scope_id": f"s{n}", "payload": 1, "deadline_ms": 400}}
        )
        for n in range(8)
    ]
    with daemon.connect() as sock:
        sock.sendall("\n".join([*lines, ""]).encode())
        replies = b""
        while replies.count(b"\n") < 8:
            replies += sock.recv(1 << 16)
    foreign.execute("ROLLBACK")
    foreign.close()

    names = {json.loads(reply)["error"]["data"]["name"] for reply in replies.splitlines()}
    assert names <= {"locked", "deadline_exceeded", "unknown_outcome"}
    daemon.call("state.set", **where, scope_id="after", payload=1)
    assert daemon.call("state.list", **where) == [{"key": "k", "scope_id": "after"}]


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-"])
def test_a_closed_descriptor_is_not_mistaken_for_a_file(closed: str, initialized: Path) -> None:
    script = f"icctl sentinel check a '' --interval=0 {closed}"
    env = {**CLEAN, "HOME": str(initialized), **DIRECT}

    done = subprocess.run(
        ["bash", "-c", script], cwd=initialized, env=env, capture_output=True, check=False
    )

    assert done.returncode == 0
    # A note of which file it is and what was in use, filled up with blanks, and nothing else.
    lock = initialized / ".clavain" / "intercore.db.lock"
    mark, _, note = lock.read_bytes().partition(b" ")
    assert int(mark) == lock.stat().st_ino
    found = Note.decode(note)
    assert found is not None
    assert note.rstrip() == found.encode()
    assert lock.stat().st_size == NOTE_BYTES


def test_verbose_shows_what_a_failing_call_did(initialized: Path, daemon: Daemon) -> None:
    for env in (DIRECT, through(daemon)):
        icctl("state", "set", "n", "s", "--value=[]", cwd=initialized, env=env)

        done = icctl("state", "incr", "n", "s", "--verbose", cwd=initialized, env=env)

        assert done.returncode == 2
        assert b"icctl: sql: SELECT" in done.stderr
        assert b"does not hold an integer" in done.stderr


def test_a_directory_that_is_not_text_works_and_shows_in_status(
    tmp_path: Path, daemon: Daemon
) -> None:
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/x\xff"))
    odd.mkdir()
    (odd / ".git").mkdir()
    (odd / "sub").mkdir()
    env = through(daemon)

    first = icctl("init", cwd=odd, env=env)
    second = icctl("init", cwd=odd / "sub", env=env)
    status = icctl("status", cwd=tmp_path, env=env)
    as_json = icctl("status", "--json", cwd=tmp_path, env=env)

    assert [first.returncode, second.returncode, status.returncode, as_json.returncode] == [0] * 4
    assert b"x\xff/.clavain/intercore.db" in second.stdout
    assert b"x\xff/.clavain/intercore.db" in status.stdout
    assert rb"x\\udcff" in as_json.stdout
