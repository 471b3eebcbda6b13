"""Locks through the daemon: it acts in the caller's place, and for nobody else."""

import fcntl
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from icd.features.locks import owners, store
from icd.features.locks.directory import Place
from tests.support import processes
from tests.support.mounts import mounted
from tests.support.processes import CLEAN, PATIENCE, Daemon, icctl, read_all, until
from tests.support.restarts import reload

HOST = os.uname().nodename
LOCAL = b"! local\n"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    found = Place(str(tmp_path / "locks"))
    found.make()
    return found


@pytest.fixture
def env(place: Place, any_daemon: Daemon) -> dict[str, str]:
    return {"INTERCORE_LOCK_DIR": place.base, "INTERCORE_SOCKET": any_daemon.socket}


@pytest.fixture
def held(place: Place) -> Callable[[], None]:
    """The lock is held by us; called, it is released."""
    us = owners.of_process(os.getpid(), owners.here(), int(time.time()))
    store.acquire(place, "n", "s", us, deadline=0)
    return lambda: store.release(place, "n", "s", us)


def frame(place: Place, *argv: str, parent: int | None = None, fields: tuple[str, ...] = ()):
    told = [f"p{parent or os.getppid()}", "d/", "i0123abcd", f"eINTERCORE_LOCK_DIR={place.base}"]
    all_ = [*told, *fields, *(f"a{word}" for word in argv)]
    return "".join(f"{field}\0" for field in [f"ic1 {len(all_)}", *all_]).encode()


def ask(daemon: Daemon, data: bytes) -> bytes:
    with daemon.connect() as sock:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        return read_all(sock)


def waits(daemon: Daemon) -> bool:
    """Whether a caller waits there for a lock of ours, and is told when we end."""
    return os.getpid() in processes.watched_processes(daemon.pid)


def calls(daemon: Daemon) -> set[str]:
    return set(daemon.call("icd.status")["methods"])


def waiter(env: dict[str, str], cwd: Path, *words: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [processes.door / "icctl", *words], cwd=cwd, env={**CLEAN, **env},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


# --- who answers ---


@pytest.mark.usefixtures("door")
def test_the_daemon_answers(daemon: Daemon, env: dict[str, str], tmp_path: Path) -> None:
    for words in ("lock acquire n s", "lock list", "lock stale", "lock release n s", "lock clean"):
        assert icctl(*words.split(), cwd=tmp_path, env=env).returncode == 0

    assert {name for name in calls(daemon) if name.startswith("lock.")} == {
        "lock.acquire", "lock.list", "lock.stale", "lock.release", "lock.clean",
    }  # fmt: skip


def test_a_command_under_a_lock_needs_no_python(
    daemon: Daemon, env: dict[str, str], tmp_path: Path
) -> None:
    done = icctl("hold", "n", "s", "--", "sh", "-c", "exit 7", cwd=tmp_path, env=env)

    assert done.returncode == 7
    assert {"hold", "lock.release"} <= calls(daemon)


def test_a_failure_is_counted_with_who_is_to_blame(
    daemon: Daemon, env: dict[str, str], tmp_path: Path, place: Place
) -> None:
    os.chmod(place.base, 0o777)

    refused = icctl("lock", "acquire", "n", "s", cwd=tmp_path, env=env)

    assert refused.returncode == 2
    assert "lock.acquire" in json.dumps(daemon.call("icd.status")["failures_by_caller"])


# --- for whom it acts ---


def test_a_parent_that_is_none_is_no_owner(shared_daemon: Daemon, place: Place) -> None:
    for parent in (1, os.getpid(), 2**22 - 1):
        said = ask(shared_daemon, frame(place, "lock", "acquire", "n", "s", parent=parent))

        assert said == LOCAL
    assert store.every(place) == []


def test_a_child_of_another_is_no_owner(shared_daemon: Daemon, place: Place) -> None:
    for child in (1, os.getppid(), shared_daemon.pid, os.getpid()):
        mine = child == shared_daemon.pid  # which is our child indeed
        said = ask(shared_daemon, frame(place, "hold", "n", "s", "--", "x", fields=(f"h{child}",)))

        assert said.startswith(b"* ") if mine else said == LOCAL


def test_a_command_without_a_child_is_left_to_the_caller(
    shared_daemon: Daemon, place: Place
) -> None:
    assert ask(shared_daemon, frame(place, "hold", "n", "s", "--", "true")) == LOCAL


def test_a_directory_that_no_lock_was_ever_made_in_is_left_alone(
    shared_daemon: Daemon, tmp_path: Path
) -> None:
    (tmp_path / "documents" / "n" / "s").mkdir(parents=True, mode=0o700)
    os.utime(tmp_path / "documents" / "n" / "s", (1, 1))
    (tmp_path / "documents").chmod(0o700)
    for words in (["acquire", "a", "b"], ["clean"], ["list"]):
        place = Place(str(tmp_path / "documents"))

        assert ask(shared_daemon, frame(place, "lock", *words)) == LOCAL
        assert ask(shared_daemon, frame(Place(str(tmp_path / "none")), "lock", *words)) == LOCAL
    assert [e.name for e in (tmp_path / "documents").iterdir()] == ["n"]
    assert (tmp_path / "documents" / "n" / "s").exists()
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("kind", ["--mount", "--uts", "--pid --fork"])
def test_a_caller_that_sees_another_world_does_it_itself(
    daemon: Daemon, env: dict[str, str], tmp_path: Path, place: Place, kind: str
) -> None:
    """The same path is another directory there, or a pid or a host's name means another."""
    probe = subprocess.run(["unshare", *kind.split(), "true"], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip(f"no namespaces here: {probe.stderr!r}")
    hide = f"mount -t tmpfs -o mode=700 none {place.base} && " if kind == "--mount" else ""
    script = f"{hide}icctl lock acquire n s && icctl lock list && :"

    done = subprocess.run(
        ["unshare", *kind.split(), "sh", "-c", script], cwd=tmp_path, env={**CLEAN, **env},
        capture_output=True, timeout=PATIENCE, check=False,
    )  # fmt: skip

    assert done.stdout.startswith(b"n\ts\t") or kind.startswith("--pid")
    assert "lock.acquire" not in calls(daemon)
    assert (store.every(place) == []) == (kind == "--mount")


@pytest.mark.parametrize(
    "confined",
    [
        "unshare --mount --propagation private",  # every link on the way could lead elsewhere
        "setpriv --no-new-privs",  # as sandboxes of Landlock's are
        "setpriv --groups 12345",
        "setpriv --bounding-set -all --inh-caps -all",
    ],
)
def test_a_caller_that_is_confined_does_it_itself(
    daemon: Daemon, env: dict[str, str], tmp_path: Path, place: Place, confined: str
) -> None:
    """What it may write the daemon cannot tell, so it lends nothing."""
    probe = subprocess.run([*confined.split(), "true"], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip(f"not allowed here: {probe.stderr!r}")

    done = subprocess.run(
        [*confined.split(), "sh", "-c", "icctl lock acquire n s && :"], cwd=tmp_path,
        env={**CLEAN, **env}, capture_output=True, timeout=PATIENCE, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done
    assert "lock.acquire" not in calls(daemon)


def test_a_child_whose_parent_is_killed_runs_all_of_a_command_or_nothing(
    shared_daemon: Daemon, env: dict[str, str], tmp_path: Path, held: Callable[[], None]
) -> None:
    """A pipe holds a part of a long command: its end is not the end of the command."""
    ran = tmp_path / "ran"
    words = ["x" * 100_000] * 3
    with waiter(env, tmp_path, "hold", "n", "s", "--timeout=40s", "--", "sh", "-c",
                f"echo $# > {ran}", "sh", *words) as process:  # fmt: skip
        until(lambda: waits(shared_daemon))
        here = Path(f"/proc/{process.pid}")
        (child,) = map(int, (here / "task" / here.name / "children").read_text().split())
        os.kill(child, signal.SIGSTOP)
        held()
        until(lambda: "pipe" in (here / "wchan").read_text())
        process.kill()
        process.wait(PATIENCE)
        os.kill(child, signal.SIGCONT)
        until(lambda: not Path(f"/proc/{child}").exists())

    assert not ran.exists()


# --- who leaves ---


def test_a_caller_that_hangs_up_while_it_waits_never_holds(
    daemon: Daemon, place: Place, held: Callable[[], None]
) -> None:
    with daemon.connect() as sock:
        sock.sendall(frame(place, "lock", "acquire", "n", "s", "--timeout=40s"))
        until(lambda: waits(daemon))
    until(lambda: not waits(daemon))

    held()

    assert store.every(place) == []
    assert daemon.call("icd.status")["sessions"] == 1


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    "words", ["lock acquire n s --timeout=40s", "hold n s --timeout=2m -- true"]
)
@pytest.mark.usefixtures("door")
def test_a_client_that_is_killed_while_it_waits_never_holds(
    shared_daemon: Daemon, env: dict[str, str], held: Callable[[], None], words: str, number: int
) -> None:
    place = Place(env["INTERCORE_LOCK_DIR"])
    with waiter(env, Path("/"), *words.split()) as process:
        inotify = processes.watches
        until(lambda: waits(shared_daemon) or inotify(process.pid))
        process.send_signal(number)
        process.communicate(timeout=PATIENCE)
    until(lambda: not waits(shared_daemon))

    held()

    assert process.returncode != 0
    until(lambda: not [e for e in store.every(place) if e.liveness != "dead"])


def test_what_the_caller_did_not_read_is_undone(shared_daemon: Daemon, place: Place) -> None:
    with shared_daemon.connect() as sock:
        sock.sendall(frame(place, "lock", "acquire", "n", "s"))
        sock.recv(1, socket.MSG_PEEK)
        assert len(store.every(place)) == 1

    until(lambda: store.every(place) == [])


def test_what_the_caller_read_is_not_undone(daemon: Daemon, place: Place) -> None:
    assert ask(daemon, frame(place, "lock", "acquire", "n", "s")) == b"0 0 0\n"
    with daemon.connect() as sock:
        sock.sendall(frame(place, "lock", "acquire", "n", "t"))
        assert sock.recv(100) == b"0 0 0\n"
    until(lambda: daemon.call("icd.status")["sessions"] == 1)

    assert len(store.every(place)) == 2


def test_a_successor_of_what_is_undone_is_left_alone(place: Place) -> None:
    us = owners.of_process(os.getpid(), owners.here(), 1)
    store.acquire(place, "n", "s", us, deadline=0)

    assert not owners.run(store.taking_back(place, "n", "s", "0123abcd"))
    assert len(store.every(place)) == 1


def test_a_call_that_is_repeated_finds_that_the_lock_is_its_own(
    shared_daemon: Daemon, env: dict[str, str], tmp_path: Path, place: Place
) -> None:
    """The daemon was killed between taking the lock and saying so; the client goes on alone."""
    us = os.getpid()
    owner = owners.of_process(us, owners.here(), 1)
    mine = owners.Owner(**{f: getattr(owner, f) for f in owner.__struct_fields__ if f != "request"},
                        request="abc1")  # fmt: skip
    store.acquire(place, "n", "s", mine, deadline=0)
    soon = int(time.monotonic() * 1000) + 6000
    for socket_path in (shared_daemon.socket, "/nonexistent"):
        for reason, wanted in (("l abc1", 0), ("l abc2", 1)):
            handover = f"{reason} 6000 {soon} -1 native-keyhole icctl"
            told = {**env, "INTERCORE_SOCKET": socket_path, "INTERCORE_HANDOVER": handover}
            program = processes.BIN / "icctl-python"

            done = icctl("lock", "acquire", "n", "s", "--timeout=10ms", cwd=tmp_path, env=told,
                         program=program)  # fmt: skip

            assert done.returncode == wanted


# --- the daemon leaves, or is replaced ---


@pytest.mark.parametrize("how", ["reload", "stop", "kill"])
@pytest.mark.parametrize(
    "words", ["lock acquire n s --timeout=40s", "hold n s --timeout=2m -- true"]
)
@pytest.mark.usefixtures("door")
def test_who_waits_gets_the_lock_although_the_daemon_leaves(
    daemon: Daemon, env: dict[str, str], held: Callable[[], None], words: str, how: str
) -> None:
    with waiter(env, Path("/"), *words.split()) as process:
        until(lambda: waits(daemon) or processes.watches(process.pid))
        {"reload": lambda: reload(daemon), "stop": daemon.stop, "kill": daemon.kill}[how]()
        assert process.poll() is None

        held()

        out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, out, err) == (0, b"", b"")


@pytest.mark.parametrize("how", ["reload", "stop", "kill"])
@pytest.mark.usefixtures("door")
def test_a_lock_outlives_the_daemon_that_took_it(
    daemon: Daemon, env: dict[str, str], tmp_path: Path, place: Place, how: str
) -> None:
    script = "icctl lock acquire n s; echo held; read x; icctl lock release n s; echo $?"
    with subprocess.Popen(
        ["bash", "-c", script], cwd=tmp_path, env={**CLEAN, **env},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as shell:  # fmt: skip
        assert shell.stdout is not None
        shell.stdout.readline()
        {"reload": lambda: reload(daemon), "stop": daemon.stop, "kill": daemon.kill}[how]()

        (lock,) = store.every(place)
        assert (lock.liveness, lock.owner.pid) == ("alive", shell.pid)
        assert shell.communicate(b"\n", timeout=PATIENCE)[0] == b"0\n"
    assert store.every(place) == []


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_hold_gives_back_what_a_daemon_granted_that_is_gone(
    daemon: Daemon, env: dict[str, str], tmp_path: Path, place: Place, how: str
) -> None:
    with subprocess.Popen(
        [processes.door / "icctl", "hold", "n", "s", "--", "sh", "-c", "echo held; read x; exit 4"],
        cwd=tmp_path, env={**CLEAN, **env}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        {"stop": daemon.stop, "kill": daemon.kill}[how]()

        out, err = process.communicate(b"\n", timeout=PATIENCE)

        assert (process.returncode, out, err) == (4, b"", b"")
    assert store.every(place) == []


# --- who waits with others ---


def test_a_hundred_wait_without_a_thread_or_a_watch_for_each(
    daemon: Daemon, place: Place, held: Callable[[], None]
) -> None:
    socks = [daemon.connect() for _ in range(100)]
    try:
        for number, sock in enumerate(socks):
            words = "lock", "acquire", "n", "s", "--timeout=40s", f"--owner=w{number}"
            sock.sendall(frame(place, *words).replace(b"i0123abcd", b"iabc%d" % number))
        until(lambda: daemon.call("icd.status")["sessions"] > 100 and waits(daemon))
        threads = len(os.listdir(f"/proc/{daemon.pid}/task"))
        found = processes.links(daemon.pid)

        held()
        for _ in socks:  # each in its turn
            until(lambda: store.every(place))
            (lock,) = store.every(place)
            index = int(lock.owner.owner[1:])
            assert socks[index].recv(100) == b"0 0 0\n"
            assert icctl(
                "lock", "release", "n", "s", f"--owner=w{index}", cwd=Path("/"),
                env={"INTERCORE_LOCK_DIR": place.base, "INTERCORE_SOCKET": daemon.socket},
            ).returncode == 0  # fmt: skip
    finally:
        for sock in socks:
            sock.close()

    assert threads < 12
    assert sum("inotify" in link for link in found) == 1
    assert sum("pidfd" in link for link in found) == 1


def test_a_process_that_is_stopped_with_the_flock_keeps_nobody_else_waiting(
    daemon: Daemon, env: dict[str, str], tmp_path: Path, place: Place
) -> None:
    place.make("n")
    fd = os.open(place.name("n"), os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        assert icctl("lock", "acquire", "n", "s", cwd=tmp_path, env=env).returncode == 0
        with waiter(env, tmp_path, "lock", "release", "n", "s", "--timeout=40s") as stuck:
            until(lambda: daemon.call("icd.status")["sessions"] > 1)
            for _ in range(5):
                assert icctl("lock", "acquire", "m", "s", cwd=tmp_path, env=env).returncode == 0
                assert icctl("lock", "release", "m", "s", cwd=tmp_path, env=env).returncode == 0
            assert stuck.poll() is None
            fcntl.flock(fd, fcntl.LOCK_UN)

            assert stuck.wait(PATIENCE) == 0
    finally:
        os.close(fd)
    assert "lock.release" in calls(daemon)


# --- a file system that hangs ---


def test_a_directory_that_hangs_holds_up_neither_the_daemon_nor_other_locks(
    daemon: Daemon, env: dict[str, str], tmp_path: Path
) -> None:
    with mounted() as mount:
        there = {**env, "INTERCORE_LOCK_DIR": str(mount.path / "locks")}
        for _ in range(2):  # the first makes the directory
            assert icctl("lock", "acquire", "n", "s", cwd=tmp_path, env=there).returncode == 0
            assert icctl("lock", "release", "n", "s", cwd=tmp_path, env=there).returncode == 0
        mount.hang()
        stuck = [waiter(there, tmp_path, "lock", "acquire", "n", "s") for _ in range(20)]
        until(lambda: "locks hang" in daemon.log.read_text())

        began = time.monotonic()
        for _ in range(3):
            assert icctl("lock", "acquire", "m", "s", cwd=tmp_path, env=env).returncode == 0
            assert icctl("lock", "release", "m", "s", cwd=tmp_path, env=env).returncode == 0
        took = time.monotonic() - began
        threads = len(os.listdir(f"/proc/{daemon.pid}/task"))
        mount.release()

        ended = sorted(each.wait(PATIENCE) for each in stuck)
        for each in stuck:
            each.communicate()
        assert ended[0] == 0
        assert set(ended) <= {0, 1}
        assert ended.count(0) == 1  # our process is their parent, and it is alive
        assert took < PATIENCE / 2  # the hang has no end
        assert threads < 12
        assert icctl("lock", "release", "n", "s", cwd=tmp_path, env=there).returncode == 0
