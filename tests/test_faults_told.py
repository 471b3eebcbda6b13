"""Each fault has a sentence: through the daemon and without one, and in docs/troubleshooting.md."""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.breakages import BREAKAGES, DIRECT, Place, World, disk_filled, small_disk
from tests.support.processes import PATIENCE, Daemon, until

PAGE = (Path(__file__).parents[1] / "docs" / "troubleshooting.md").read_text()
READ = ("state", "get", "k", "s")
WRITE = ("state", "set", "k", "s", "--value=2", "--timeout=5s")
LATE = b"did not start the call in time"


def documented(program: str) -> dict[str, str]:
    """What the page says that is printed, by what broke."""
    rows = re.findall(rf"^\| ([^|]+) \| `({program}: [^`]+)` \|", PAGE, re.MULTILINE)
    return dict(rows)


SENTENCES = documented("icctl")
(LOST,) = re.findall("`(icctl: [^`]+ while it was in use[^`]*)`", PAGE)

# A daemon has these files open already, and what is open may be used.
GOES_ON = {"database read-only", "directory read-only", "log unreadable"}
# Another file took the place of the one that is open: that is told first.
REPLACED = {"database replaced by a text"}
# A property of the process: a daemon that runs already does not get it.
OF_THE_PROCESS = {
    "database of somebody else",
    "directory of somebody else",
    "disk said to be full",
    "too few descriptors",
}


def says(sentence: str, printed: bytes) -> bool:
    """Whether all that is printed is this one line."""
    pattern = re.escape(sentence).replace("…", ".*")
    return re.fullmatch(pattern + "\n", printed.decode()) is not None


@pytest.fixture(scope="session")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a row in its database, to be copied: each command would start a Python."""
    root = tmp_path_factory.mktemp("healthy")
    (root / ".git").mkdir()
    assert World().icctl("init", cwd=root, env=DIRECT).returncode == 0
    assert World().icctl("state", "set", "k", "s", "--value=1", cwd=root, env=DIRECT).stderr == b""
    return root


@pytest.fixture
def place(tmp_path: Path, healthy: Path) -> Place:
    """A project with a row in its database, and a directory for a daemon."""
    root, runtime = tmp_path / "project", tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    return Place(_copied(healthy, root), runtime)


@pytest.fixture
def other(tmp_path: Path, healthy: Path) -> Path:
    """Another project, which nothing happens to."""
    return _copied(healthy, tmp_path / "other")


def _copied(project: Path, to: Path) -> Path:
    """Without the note in the lock, which is about the file that was copied."""
    shutil.copytree(project, to, ignore=shutil.ignore_patterns("*.lock"))
    (to / ".clavain" / "intercore.db.lock").touch(0o600)
    return to


@pytest.fixture(scope="session")
def ordinary() -> Iterator[Daemon]:
    """A daemon in a healthy world, for faults of a project: each test has a project of its own."""
    with running(World()) as daemon:
        yield daemon


@contextlib.contextmanager
def running(world: World) -> Iterator[Daemon]:
    daemon = world.daemon()
    try:
        yield daemon.start()
        if daemon.log.exists():  # unless its directory was removed
            assert "Traceback" not in daemon.log.read_text()
    finally:
        daemon.close()


def test_every_fault_is_in_the_page() -> None:
    named = {**SENTENCES, **documented("icd")}
    without_a_sentence = {
        "runtime directory removed",
        "socket unlinked",
        "database replaced",
        "database overwritten",
        "directory open to others",
        "clock ahead",
        "clock behind",
    }

    assert set(named) == set(BREAKAGES) - without_a_sentence


@pytest.mark.parametrize("fault", SENTENCES)
def test_a_fault_is_told_without_a_daemon_and_changes_nothing(fault: str, place: Place) -> None:
    with BREAKAGES[fault](place) as world:
        told = world.icctl(*WRITE, cwd=place.project, env=DIRECT)

    assert (told.returncode, told.stdout) == (2, b""), told
    assert says(SENTENCES[fault], told.stderr), told.stderr
    assert World().icctl(*READ, cwd=place.project, env=DIRECT).stdout == b"1\n"
    assert World().icctl(*WRITE, cwd=place.project, env=DIRECT).stderr == b""


@pytest.mark.parametrize("fault", sorted(set(SENTENCES) - {"too few descriptors"}))
def test_a_fault_is_told_by_a_daemon_that_serves_others_and_recovers(
    fault: str, place: Place, other: Path, ordinary: Daemon
) -> None:
    """It meets the database for the first time when the fault is there."""
    with contextlib.ExitStack() as stack:
        with BREAKAGES[fault](place) as world:
            has_own = fault in OF_THE_PROCESS or world != World()
            daemon = stack.enter_context(running(world)) if has_own else ordinary
            env = {"INTERCORE_SOCKET": daemon.socket, "INTERCORE_MODE": "daemon"}

            told = world.icctl(*WRITE, cwd=place.project, env=env)
            meanwhile = world.icctl("state", "list", "k", cwd=other, env=env)

            assert (told.returncode, told.stdout) == (2, b""), told
            assert says(SENTENCES[fault], told.stderr), told.stderr
            assert (meanwhile.returncode, meanwhile.stderr) == (0, b"")
            if world.env:  # the fault is in the daemon's own world: it must end there
                Path(world.env["WORLD"], "full").unlink()
                assert world.icctl(*READ, cwd=place.project, env=env).stdout == b"1\n"
                return

        assert world.icctl(*READ, cwd=place.project, env=env).stdout == b"1\n"
        assert world.icctl(*WRITE, cwd=place.project, env=env).stderr == b""


@pytest.mark.parametrize("fault", sorted(set(SENTENCES) - OF_THE_PROCESS))
def test_a_fault_that_strikes_a_database_in_use_is_told_and_gone_when_it_is_gone(
    fault: str, place: Place, other: Path, ordinary: Daemon
) -> None:
    with contextlib.ExitStack() as stack:
        strike = BREAKAGES[fault]
        if fault == "disk full":  # to mount another disk would replace the file that is in use
            stack.enter_context(small_disk(place))
            strike = disk_filled
        env = {"INTERCORE_SOCKET": ordinary.socket, "INTERCORE_MODE": "daemon"}
        assert World().icctl(*READ, cwd=place.project, env=env).stdout == b"1\n"

        with strike(place):
            if fault in REPLACED:
                first = World().icctl(*WRITE, cwd=place.project, env=env)
                assert (first.returncode, says(LOST, first.stderr)) == (2, True), first
            told = World().icctl(*WRITE, cwd=place.project, env=env)
            while LATE in told.stderr:  # the daemon woke up too late to tell what it waited for
                told = World().icctl(*WRITE, cwd=place.project, env=env)
            meanwhile = World().icctl("state", "list", "k", cwd=other, env=env)

        if fault in GOES_ON:
            assert (told.returncode, told.stderr) == (0, b"")
        else:
            assert (told.returncode, told.stdout) == (2, b""), told
            assert says(SENTENCES[fault], told.stderr), told.stderr
        assert (meanwhile.returncode, meanwhile.stderr) == (0, b"")
        kept = b"2\n" if fault in GOES_ON else b"1\n"
        assert World().icctl(*READ, cwd=place.project, env=env).stdout == kept
        assert World().icctl(*WRITE, cwd=place.project, env=env).stderr == b""
        assert World().icctl(*READ, cwd=place.project, env=DIRECT).stdout == b"2\n"


@pytest.mark.parametrize("fault", sorted(GOES_ON))
def test_health_tells_what_will_fail_at_the_next_opening(
    fault: str, place: Place, ordinary: Daemon
) -> None:
    env = {"INTERCORE_SOCKET": ordinary.socket, "INTERCORE_MODE": "daemon"}
    assert World().icctl("health", cwd=place.project, env=env).stdout == b"ok\n"

    with BREAKAGES[fault](place):
        told = World().icctl("health", cwd=place.project, env=env)

    sentence = SENTENCES[fault].replace("state set", "health")
    assert (told.returncode, says(sentence, told.stderr)) == (2, True), told


@pytest.mark.parametrize("fault", ["database replaced", "database overwritten"])
def test_a_database_that_was_replaced_is_told_once_and_used(
    fault: str, place: Place, ordinary: Daemon
) -> None:
    env = {"INTERCORE_SOCKET": ordinary.socket, "INTERCORE_MODE": "daemon"}
    assert World().icctl(*READ, cwd=place.project, env=env).stdout == b"1\n"

    with BREAKAGES[fault](place):
        told = World().icctl(*WRITE, cwd=place.project, env=env)
        through = World().icctl(*READ, cwd=place.project, env=env)
        direct = World().icctl(*READ, cwd=place.project, env=DIRECT)

    assert (told.returncode, told.stdout) == (2, b"")
    assert says(LOST, told.stderr), told.stderr
    assert (through.returncode, direct.returncode) == (1, 1)
    logged = f"{place.database} was {fault.split()[1]} while it was in use"
    assert logged in ordinary.log.read_text()
    back = World().icctl(*READ, cwd=place.project, env=env)  # another file once more
    assert (back.returncode, b"while it was in use" in back.stderr) == (2, True), back
    assert World().icctl(*READ, cwd=place.project, env=env).stdout == b"1\n"


def test_init_does_not_take_a_database_of_somebody_else_for_its_own(place: Place) -> None:
    """It said "initialized", and every other command went on refusing the file."""
    with BREAKAGES["database of somebody else"](place) as world:
        told = world.icctl("init", cwd=place.project, env=DIRECT)

    assert (told.returncode, told.stdout) == (2, b"")
    assert b"belongs to another user; chown it to your user" in told.stderr


def test_a_directory_that_may_not_be_entered_does_not_lead_to_another_database(
    place: Place, tmp_path: Path
) -> None:
    """One further up was used instead."""
    made = World().icctl("init", "--db=.clavain/intercore.db", cwd=tmp_path, env=DIRECT)
    assert made.returncode == 0

    with BREAKAGES["directory of somebody else"](place) as world:
        told = world.icctl("state", "list", "k", cwd=place.project, env=DIRECT)

    assert (told.returncode, told.stdout) == (2, b"")
    assert b".clavain cannot be entered" in told.stderr


def test_a_daemon_without_descriptors_for_a_database_says_so_and_recovers(place: Place) -> None:
    """Three are left: one for the call, too few for a database."""
    limit = 40
    daemon = Daemon(command=["prlimit", f"--nofile={limit}:{limit}", sys.executable, "-m", "icd"])
    where = {"cwd": str(place.project), "key": "k", "scope_id": "s"}

    def used() -> int:
        return len(os.listdir(f"/proc/{daemon.pid}/fd"))

    held: list[socket.socket] = []

    def filled() -> bool:
        """Whether three are left, and stay so: connections of before may still be on their way."""
        if used() < limit - 3:
            held.append(daemon.connect())
        elif used() > limit - 3 and held:
            held.pop().close()
        counts = set()
        for _ in range(5):
            counts.add(used())
            time.sleep(0.02)
        return counts == {limit - 3}

    try:
        daemon.start()
        until(filled)

        told = daemon.respond("state.get", **where)

        for sock in held:
            sock.close()
        assert told["error"]["data"]["name"] == "too_few_descriptors", told
        until(lambda: "result" in daemon.respond("state.get", **where))
        assert "Traceback" not in daemon.log.read_text()
    finally:
        daemon.close()


@pytest.mark.parametrize("fault", ["runtime directory removed", "socket unlinked"])
def test_without_its_socket_a_daemon_is_not_missed(fault: str, place: Place) -> None:
    with running(World()) as daemon:
        env = {"INTERCORE_SOCKET": daemon.socket}
        here = Place(place.project, daemon.home)

        with BREAKAGES[fault](here):
            found = World().icctl(*READ, cwd=place.project, env=env)

        assert (found.returncode, found.stdout, found.stderr) == (0, b"1\n", b"")


def test_where_sockets_are_forbidden_commands_run_by_themselves(
    place: Place, ordinary: Daemon
) -> None:
    with BREAKAGES["no Unix sockets"](place) as world:
        env = {"INTERCORE_SOCKET": ordinary.socket}

        wrote = world.icctl(*WRITE, cwd=place.project, env=env)
        asked = world.icctl("ping", cwd=place.project, env=env)

        assert (wrote.returncode, wrote.stderr) == (0, b"")
        assert asked.returncode == 1
        assert World().icctl(*READ, cwd=place.project, env=env).stdout == b"2\n"


@pytest.mark.parametrize("fault", documented("icd"))
def test_a_daemon_that_cannot_serve_says_why(fault: str, place: Place) -> None:
    with BREAKAGES[fault](place) as world:
        command = [*world.prefix, sys.executable, "-m", "icd", "serve", "--socket", place.socket]
        told = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False)

    # What forbids sockets may be gone at the next start; a directory mends itself by nobody.
    status = 2 if fault == "no Unix sockets" else 78
    assert (told.returncode, told.stdout) == (status, b"")
    assert says(documented("icd")[fault], told.stderr), told.stderr
