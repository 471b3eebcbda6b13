"""A daemon without systemd: `service start`, `stop` and `ensure`, and what it has of its starter."""

import contextlib
import fcntl
import json
import os
import random
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from icd import __version__
from icd.server.logs import LOG_BYTES
from tests.support import mounts, processes
from tests.support.processes import CLEAN, PATIENCE, Daemon, icctl, links, until
from tests.support.systemd import Systemd

AT_ONCE = 20
CALLERS, CALLS = 3, 15
# What a hook is promised where a call takes no time, and how many calls it may take where it does.
LIMIT_SECONDS, LIMIT_CALLS = 1.0, 10


class Place:
    """A home and a socket, and the daemons that were started for it."""

    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="icbg-", dir="/tmp"))
        self.socket = self.home / "run" / "icd.sock"
        self.log = self.home / ".local" / "state" / "intercore" / "icd.log"
        self.env = {"HOME": str(self.home), "INTERCORE_SOCKET": str(self.socket)}

    def service(self, *words: str, **env: str) -> "subprocess.CompletedProcess[bytes]":
        return icctl("service", *words, cwd=self.home, env={**self.env, **env})

    def begin(self, *words: str, **options: object) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [processes.door / "icctl", "service", *words],
            **{"cwd": self.home, "env": {**CLEAN, **self.env}, "stdin": subprocess.DEVNULL, **options},
        )  # fmt: skip

    def settings(self, text: str) -> None:
        file = self.home / ".config" / "intercore" / "config.toml"
        file.parent.mkdir(parents=True)
        file.write_text(text)

    @property
    def pid(self) -> int:
        return int(self.socket.with_suffix(".lock").read_text())

    def answers(self) -> bool:
        return icctl("ping", cwd=self.home, env=self.env).returncode == 0

    def refuses(self) -> bool:
        with socket.socket(socket.AF_UNIX) as sock:
            return sock.connect_ex(str(self.socket)) != 0

    def daemons(self) -> list[int]:
        """Those that were started for this place, and live."""
        wanted = f"INTERCORE_SOCKET={self.socket}".encode()
        return [pid for pid in _processes() if wanted in _read(pid, "environ") and _is_daemon(pid)]

    def close(self) -> None:
        for pid in self.daemons():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: not self.daemons())
        shutil.rmtree(self.home)


def _zombies() -> set[int]:
    return {pid for pid in _processes() if _fields(pid)[:2] == ["Z", str(os.getpid())]}


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _is_daemon(pid: int) -> bool:
    return b"\0serve\0--exit-idle\0--log-to-file" in _read(pid, "cmdline")


def _fields(pid: int) -> list[str]:
    """State, parent, group and session, of /proc/PID/stat."""
    return _read(pid, "stat").decode().rpartition(") ")[2].split()[:4]


def _status(pid: int) -> dict[str, str]:
    lines = _read(pid, "status").decode().splitlines()
    return dict(line.split(":\t") for line in lines if ":\t" in line)


@pytest.fixture
def place() -> Iterator[Place]:
    found = Place()
    yield found
    found.close()


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Systemd]:
    with tempfile.TemporaryDirectory(prefix="icd-", dir="/tmp") as runtime:
        found = Systemd(tmp_path, Path(runtime))
        yield found
        found.close()


# --- start and stop -------------------------------------------------------------------------


def test_start_starts_a_daemon_that_answers_and_stop_ends_it(place: Place, door: Path):
    started = place.service("start")

    pid = place.pid
    assert (started.returncode, started.stderr) == (0, b"")
    assert started.stdout.decode() == f"started icd {__version__} (pid {pid}) at {place.socket}\n"
    assert place.answers()

    stopped = place.service("stop")

    assert (stopped.returncode, stopped.stderr) == (0, b"")
    assert stopped.stdout.decode() == f"stopped icd (pid {pid})\n"
    assert place.daemons() == []
    assert not place.socket.exists()


def test_a_second_start_finds_it_running(place: Place):
    assert place.service("start").returncode == 0

    again = place.service("start")
    as_json = place.service("start", "--json")

    told = f"already running: icd {__version__} (pid {place.pid}) at {place.socket}\n"
    assert (again.returncode, again.stdout.decode()) == (0, told)
    assert json.loads(as_json.stdout) == {
        "started": False, "pid": place.pid, "version": __version__, "socket": str(place.socket),
    }  # fmt: skip
    assert place.daemons() == [place.pid]


def test_of_several_starts_at_once_one_says_that_it_started_it(place: Place):
    running = [place.begin("start", stdout=subprocess.PIPE, text=True) for _ in range(4)]
    said = sorted(each.communicate(timeout=PATIENCE)[0] for each in running)

    assert [line.split(" icd ")[0] for line in said] == ["already running:"] * 3 + ["started"]
    assert {line.partition("(")[2] for line in said} == {f"pid {place.pid}) at {place.socket}\n"}


def test_stop_ends_a_daemon_that_hangs_once_it_goes_on(place: Place, door: Path):
    """It does not answer, and is told to stop all the same; its end is waited for."""
    place.service("start")
    pid = place.pid
    os.kill(pid, signal.SIGSTOP)

    stopping = place.begin("stop", stdout=subprocess.PIPE)
    until(lambda: int(_status(pid)["ShdPnd"], 16) & 1 << (signal.SIGTERM - 1))
    os.kill(pid, signal.SIGCONT)

    assert stopping.communicate(timeout=PATIENCE)[0].decode() == f"stopped icd (pid {pid})\n"


def test_start_says_that_a_daemon_hangs(daemon: Daemon, tmp_path: Path, door: Path):
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        done = icctl("service", "start", cwd=tmp_path, env={"INTERCORE_SOCKET": daemon.socket})
    finally:
        os.kill(daemon.pid, signal.SIGCONT)

    assert done.returncode == 2
    assert b"service start: a daemon listens at " in done.stderr


def test_stop_without_a_daemon_says_so(place: Place):
    done = place.service("stop")
    as_json = place.service("stop", "--json")

    assert (done.returncode, done.stdout) == (0, b"no daemon is running\n")
    assert json.loads(as_json.stdout) == {"pid": None}


def test_start_outlasts_a_daemon_that_is_about_to_end(place: Place):
    """It holds the lock and does not listen any more: who comes now is told that it runs already."""
    place.socket.parent.mkdir(mode=0o700)
    with place.socket.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("1\n")
        lock.flush()
        starting = place.begin("start", stdout=subprocess.PIPE)
        until(
            lambda: place.log.exists() and b"is already running (pid 1)" in place.log.read_bytes()
        )

    assert starting.communicate(timeout=PATIENCE)[0].startswith(b"started icd ")
    assert place.daemons() == [place.pid]


def test_stop_ends_a_daemon_in_the_foreground(daemon: Daemon, tmp_path: Path):
    done = icctl("service", "stop", cwd=tmp_path, env={"INTERCORE_SOCKET": daemon.socket})

    assert (done.returncode, done.stdout.decode()) == (0, f"stopped icd (pid {daemon.pid})\n")
    assert daemon.process is not None
    assert daemon.process.wait(PATIENCE) == 0


def test_a_daemon_of_systemd_is_used_and_left_to_systemctl(
    systemd: Systemd, tmp_path: Path, door: Path
):
    env = {**systemd.env, "INTERCORE_SOCKET": str(systemd.socket)}
    assert icctl("service", "install", cwd=tmp_path, env=env, timeout=200).returncode == 0
    pid = int((systemd.notes / "pid").read_text())

    started, ensured, stopped = (
        icctl("service", verb, cwd=tmp_path, env=env) for verb in ("start", "ensure", "stop")
    )

    assert started.stdout.decode().startswith(f"already running: icd {__version__} (pid {pid}) at ")
    assert (ensured.returncode, ensured.stdout, ensured.stderr) == (0, b"", b"")
    assert (stopped.returncode, stopped.stdout) == (2, b"")
    assert stopped.stderr.decode() == (
        f"icctl: service stop: systemd runs icd (pid {pid});"
        " stop it with: systemctl --user stop icd.socket icd.service\n"
    )
    assert icctl("ping", cwd=tmp_path, env=env).returncode == 0


def test_a_socket_of_systemd_is_enough_for_ensure(place: Place, door: Path):
    """No daemon runs, but systemd listens, and starts one for the next call."""
    place.socket.parent.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place.socket))
        listener.listen()

        done = place.service("ensure")

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert place.daemons() == []


def test_a_listener_that_is_no_daemon_is_not_stopped(place: Place):
    """Whatever a lock file says: it names another process, and neither is told to end."""
    place.socket.parent.mkdir(mode=0o700)
    with subprocess.Popen(["sleep", "60"]) as other, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place.socket))
        listener.listen()
        place.socket.with_suffix(".lock").write_text(f"{other.pid}\n")

        done = place.service("stop")

        assert done.returncode == 2
        assert b"does not hold the lock of a daemon; see 'icctl doctor'" in done.stderr
        assert other.poll() is None
        other.kill()


def test_a_start_that_fails_says_why(place: Place):
    place.settings("exit_idle_seconds = -1\n")

    done = place.service("start")

    assert (done.returncode, done.stdout) == (2, b"")
    assert b"service start: icd does not start: " in done.stderr
    assert b"exit_idle_seconds" in done.stderr
    assert done.stderr.decode().endswith(f"; see {place.log}\n")
    assert b"exit_idle_seconds" in place.log.read_bytes()


# --- what it has of its starter -------------------------------------------------------------


@pytest.mark.parametrize("verb", ["start", "ensure"])
def test_it_has_nothing_of_its_starter(place: Place, door: Path, verb: str):
    """All but three descriptors are ends of a pipe whose reader waits for the starter's end."""
    reading, writing = os.pipe()
    opened = [writing, *(os.dup(writing) for _ in range(20))]
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGUSR1])
    try:
        starter = place.begin(verb, pass_fds=opened, stdout=reading_end(), umask=0,
                              env={**CLEAN, **place.env, "CLAUDE_SESSION_ID": "s", "PYTHONPATH": "/x",
                                   "SECRET": "x", "LC_ALL": "C.UTF-8"})  # fmt: skip
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        for fd in opened:
            os.close(fd)

    assert os.read(reading, 1) == b""  # all writers have ended
    assert starter.wait(PATIENCE) == 0
    os.close(reading)
    until(place.answers)
    pid = place.pid
    _state, parent, group, session = _fields(pid)
    assert int(parent) != os.getpid()
    assert session == group != str(pid)  # it can never get a terminal
    assert not any(link.startswith("pipe:") for link in links(pid))
    standard = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in range(3)]
    assert standard == ["/dev/null", str(place.log), str(place.log)]
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    environment = dict(e.partition(b"=")[::2] for e in _read(pid, "environ").split(b"\0") if e)
    assert environment.keys() == {b"PATH", b"LANG", b"HOME", b"LC_ALL", b"INTERCORE_SOCKET"}
    status = _status(pid)
    assert status["Umask"] == "0077"
    assert int(status["SigBlk"], 16) == 0
    assert stat.S_IMODE(place.log.stat().st_mode) == 0o600
    assert place.service("stop").returncode == 0  # so SIGTERM reaches it


def reading_end() -> int:
    """Something to write to that is no terminal and no pipe of ours."""
    return subprocess.DEVNULL


def test_a_relative_socket_is_meant_from_the_directory_of_the_starter(place: Place, door: Path):
    done = place.service("ensure", INTERCORE_SOCKET="run/icd.sock")

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    until(place.answers)


def test_it_works_where_the_callers_children_are_not_waited_for(place: Place, door: Path):
    script = 'trap "" CHLD; exec "$0" service ensure'
    done = subprocess.run(["/bin/sh", "-c", script, door / "icctl"], env={**CLEAN, **place.env},
                          cwd=place.home, capture_output=True, check=False)  # fmt: skip

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    until(place.answers)


# --- ensure ---------------------------------------------------------------------------------


def test_twenty_at_once_start_one_daemon_and_none_waits_long(place: Place, door: Path):
    ends: list[tuple[int, bytes, bytes]] = []
    zombies = _zombies()  # of tests before this one

    def longest() -> float:
        took: list[float] = []

        def call() -> None:
            began = time.monotonic()
            process = place.begin("ensure", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            said = process.communicate(timeout=PATIENCE)
            took.append(time.monotonic() - began)
            ends.append((process.returncode, *said))

        threads = [threading.Thread(target=call) for _ in range(AT_ONCE)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return max(took)

    starting = longest()
    until(place.answers)
    started = longest()

    assert ends == [(0, b"", b"")] * AT_ONCE * 2
    assert starting < LIMIT_SECONDS + LIMIT_CALLS * started
    until(lambda: place.daemons() == [place.pid])  # who lost has ended
    assert _zombies() <= zombies


def test_after_a_kill_it_starts_another(place: Place, door: Path):
    place.service("ensure")
    until(place.answers)
    first = place.pid
    os.kill(first, signal.SIGKILL)
    until(place.refuses)  # a process that dies has its socket for longer than its memory

    done = place.service("ensure")

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    until(place.answers)
    assert place.pid != first


def test_with_a_daemon_the_native_client_starts_no_other_program(daemon: Daemon, tmp_path: Path):
    native = processes.DOORS / "native" / "icctl"
    if not native.exists():
        pytest.skip("no C compiler: the native client was not built")
    alone = tmp_path / "icctl"  # nothing is beside it that could be started
    shutil.copy(native, alone)

    done = icctl(
        "service", "ensure", cwd=tmp_path, env={"INTERCORE_SOCKET": daemon.socket}, program=alone
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_program_that_is_missing_is_one_line(place: Place, tmp_path: Path):
    native = processes.DOORS / "native" / "icctl"
    if not native.exists():
        pytest.skip("no C compiler: the native client was not built")
    alone = tmp_path / "icctl"
    shutil.copy(native, alone)

    done = icctl("service", "ensure", cwd=place.home, env=place.env, program=alone)

    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr.decode() == (
        f"icctl: service ensure: cannot start {tmp_path}/icd: No such file or directory; reinstall intercore\n"
    )


@pytest.mark.parametrize("size", [0, 100, 300_000])
def test_it_reads_the_event_of_an_agent(daemon: Daemon, tmp_path: Path, door: Path, size: int):
    """Who writes more than a pipe holds must neither hang nor hear that there is no reader."""
    process = subprocess.Popen([door / "icctl", "service", "ensure"], stdin=subprocess.PIPE,
                               env={**CLEAN, "INTERCORE_SOCKET": daemon.socket}, cwd=tmp_path)  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(b"x" * size)
    process.stdin.close()

    assert process.wait(PATIENCE) == 0


def test_input_that_does_not_end_is_not_waited_for(daemon: Daemon, tmp_path: Path, door: Path):
    reading, writing = os.pipe()

    done = subprocess.run([door / "icctl", "service", "ensure"], stdin=reading, cwd=tmp_path, check=False,
                          env={**CLEAN, "INTERCORE_SOCKET": daemon.socket}, timeout=PATIENCE)  # fmt: skip

    assert done.returncode == 0
    os.close(reading)
    os.close(writing)


def test_a_daemon_that_is_stopped_does_not_hold_it_up(daemon: Daemon, tmp_path: Path, door: Path):
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        done = icctl("service", "ensure", cwd=tmp_path, env={"INTERCORE_SOCKET": daemon.socket})
    finally:
        os.kill(daemon.pid, signal.SIGCONT)

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_wrong_setting_is_one_line_and_no_failure_of_the_hook(place: Place, door: Path):
    place.settings("exit_idle_seconds = -1\n")

    done = place.service("ensure")

    assert (done.returncode, done.stdout) == (0, b"")
    if done.stderr:  # on a slow machine it ends before the daemon has said so
        assert done.stderr.startswith(b"icctl: service ensure: ")
        assert done.stderr.count(b"\n") == 1
    until(lambda: place.log.exists() and b"exit_idle_seconds" in place.log.read_bytes())


def test_a_stderr_without_a_reader_is_no_failure_of_the_hook(place: Place, door: Path):
    place.settings("exit_idle_seconds = -1\n")
    reading, writing = os.pipe()
    os.close(reading)

    process = place.begin("ensure", stderr=writing)
    os.close(writing)

    assert process.wait(PATIENCE) == 0


def test_used_wrongly_it_says_so(place: Place, door: Path):
    done = place.service("ensure", "now")

    assert done.returncode == 3
    assert place.daemons() == []


def test_with_flags_it_does_the_same(place: Place, door: Path):
    done = place.service("ensure", "--json")

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    until(place.answers)


def test_an_ordinary_call_starts_no_daemon(place: Place, initialized: Path, door: Path):
    done = icctl("state", "list", "x", cwd=initialized, env=place.env)

    assert done.returncode == 0
    assert place.daemons() == []


# --- its log --------------------------------------------------------------------------------


def plant_a_link(log: Path) -> None:
    log.symlink_to(log.parent / "elsewhere")


def plant_a_directory_link(log: Path) -> None:
    log.parent.rmdir()
    (log.parents[1] / "elsewhere").mkdir()
    log.parent.symlink_to("elsewhere")


def plant_a_second_name(log: Path) -> None:
    (log.parent / "elsewhere").write_bytes(b"precious")
    log.hardlink_to(log.parent / "elsewhere")


def open_its_directory(log: Path) -> None:
    log.parent.chmod(0o777)


@pytest.mark.parametrize(
    "plant",
    [plant_a_link, plant_a_directory_link, os.mkfifo, Path.mkdir, plant_a_second_name, open_its_directory],
    ids=["link", "directory-link", "fifo", "directory", "second-name", "open"],
)  # fmt: skip
@pytest.mark.parametrize("verb", ["start", "ensure"])
def test_a_log_that_a_stranger_could_have_planted_is_refused(
    place: Place, initialized: Path, plant, verb
):
    state = initialized / "state"
    log = state / "intercore" / "icd.log"
    log.parent.mkdir(parents=True)
    plant(log)

    done = place.service(verb, XDG_STATE_HOME=str(state))

    assert done.returncode == {"start": 2, "ensure": 0}[verb]
    assert done.stdout == b""
    if done.stderr or verb == "start":  # on a slow machine, ensure ends before
        assert b"cannot log to " in done.stderr
        assert done.stderr.count(b"\n") == 1
    failures = place.socket.with_name("start-ups")
    until(lambda: failures.exists() and b"cannot log to " in failures.read_bytes())
    until(lambda: not place.daemons())
    assert not (log.parent / "elsewhere").exists() or plant is plant_a_second_name
    if plant is plant_a_second_name:
        assert log.read_bytes() == b"precious"


def test_without_a_home_nothing_is_guessed(place: Place):
    env = {name: value for name, value in {**CLEAN, **place.env}.items() if name != "HOME"}

    done = subprocess.run([processes.door / "icctl", "service", "start"], env=env, cwd=place.home,
                          capture_output=True, check=False)  # fmt: skip

    assert done.returncode == 2
    assert b"HOME is not set" in done.stderr


def test_a_full_disk_costs_lines_and_not_the_daemon(place: Place):
    with mounts.small("64k") as full:
        state = str(full / "state")
        os.makedirs(f"{state}/intercore", mode=0o700)
        with contextlib.suppress(OSError), open(full / "all", "wb", buffering=0) as file:
            while file.write(b"x" * 4096):
                pass

        done = place.service("start", XDG_STATE_HOME=state)
        assert (done.returncode, done.stderr) == (0, b"")
        assert place.answers()
        os.unlink(full / "all")
        until(lambda: _has_lines(place, Path(state) / "intercore" / "icd.log"))

        assert place.service("stop", XDG_STATE_HOME=state).returncode == 0


def _has_lines(place: Place, log: Path) -> bool:
    """Make it say something; once there is room again, it is in the log."""
    icctl("service", "reload", cwd=place.home, env=place.env)
    return log.exists() and b'"level"' in log.read_bytes()


def test_its_log_has_a_limit_also_while_it_runs(place: Place):
    """What is longer is put aside once; what a user removes is written anew."""
    assert place.service("start").returncode == 0
    with place.log.open("ab") as file:
        file.write(b"x" * LOG_BYTES)

    until(lambda: _says_more(place) and place.log.stat().st_size < LOG_BYTES)

    aside = place.log.with_name("icd.log.1")
    assert aside.stat().st_size > LOG_BYTES
    place.log.unlink()
    until(lambda: _says_more(place) and place.log.exists())
    assert stat.S_IMODE(place.log.stat().st_mode) == 0o600
    assert os.readlink(f"/proc/{place.pid}/fd/2") == str(place.log)


def _says_more(place: Place) -> bool:
    return icctl("service", "reload", cwd=place.home, env=place.env).returncode == 0


def test_it_goes_on_with_its_log_after_a_reload(place: Place):
    assert place.service("start").returncode == 0
    pid = place.pid

    assert place.service("reload").returncode == 0

    assert place.pid == pid
    assert os.readlink(f"/proc/{pid}/fd/2") == str(place.log)
    assert b"--exit-idle" in _read(pid, "cmdline")
    assert not any(link.startswith("pipe:") for link in links(pid))


# --- idle -----------------------------------------------------------------------------------


def test_it_exits_when_it_is_idle(place: Place, door: Path):
    place.settings("exit_idle_seconds = 0.2\n")
    place.service("ensure")

    until(lambda: place.log.exists() and b'"why":"idle"' in place.log.read_bytes())
    until(lambda: not place.daemons())
    assert not place.socket.exists()


def test_no_call_is_lost_when_it_exits(place: Place, initialized: Path, door: Path):
    """Calls come at every moment of its idleness and its end; each is executed, and once."""
    place.settings("exit_idle_seconds = 0.05\nidle_seconds = 0.05\nclose_idle_seconds = 0.05\n")
    env = {**place.env, "HOME": str(place.home)}
    failed: list[bytes] = []

    def call(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(CALLS):
            time.sleep(chance.uniform(0.0, 0.3))
            place.service("ensure")
            time.sleep(chance.uniform(0.0, 0.2))
            done = icctl("state", "incr", "n", "s", cwd=initialized, env=env)
            if done.returncode or done.stderr:
                failed.append(done.stderr)

    threads = [threading.Thread(target=call, args=[seed]) for seed in range(CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failed == []
    counted = icctl("state", "get", "n", "s", cwd=initialized, env=env)
    assert int(counted.stdout) == CALLS * CALLERS
    assert place.log.read_bytes().count(b'"why":"idle"') >= 2
