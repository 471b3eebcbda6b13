"""Clients and daemons of different versions: real ones, in both directions, through both doors.

Another version is another installation: a copy of the package that says so.
"""

import contextlib
import os
import pty
import re
import shutil
import socket
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from icd import __version__
from icd.app import registry
from tests.support import processes
from tests.support.processes import CLEAN, PATIENCE, Daemon, icctl, read_all, running, until
from tests.support.restarts import marked
from tests.support.transcripts import FRAMES, replay

ROOT = Path(__file__).parent.parent
OLDER, NEWER = "0.0.1", "99.0.0"
DIRECT = {"INTERCORE_MODE": "direct"}


def install(place: Path, version: str) -> Path:
    """A copy of the package that says it is of this version."""
    shutil.copytree(ROOT / "icd", place / "icd", ignore=shutil.ignore_patterns("__pycache__"))
    about = place / "icd" / "__init__.py"
    about.write_text(about.read_text().replace(__version__, version))
    return place


@contextlib.contextmanager
def daemon_from(place: Path) -> Iterator[Daemon]:
    with running(env={"PYTHONPATH": str(place)}) as found:
        yield found


@pytest.fixture(scope="module", params=[OLDER, NEWER])
def other(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """A daemon of another version than the clients."""
    place = install(tmp_path_factory.mktemp("installed"), request.param)
    with daemon_from(place) as found:
        found.version = request.param
        assert found.call("icd.ping")["version"] == request.param
        yield found


def through(daemon: Daemon) -> dict[str, str]:
    return {"INTERCORE_SOCKET": daemon.socket, "INTERCORE_MODE": "daemon"}


def warning(daemon: Daemon) -> str:
    if daemon.version == OLDER:
        relation, hint = "older", "run 'icctl service reload'"
    else:
        relation, hint = "newer", "upgrade this icctl"
    return (
        f"icctl: warning: the daemon ({daemon.version}) is {relation}"
        f" than this icctl ({__version__}); {hint}\n"
    )


def on_a_terminal(*arguments: str, cwd: Path, env: dict[str, str]) -> tuple[int, bytes, str]:
    """Exit status, stdout, and what a person sees on a terminal that is stderr."""
    person, terminal = pty.openpty()
    process = subprocess.Popen(
        [processes.door / "icctl", *arguments], cwd=cwd, env={**CLEAN, **env},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=terminal,
    )  # fmt: skip
    os.close(terminal)
    try:
        assert process.stdout is not None
        out = process.stdout.read()
        process.stdout.close()
        seen = b""
        with contextlib.suppress(OSError):  # EIO: nobody has the terminal open any more
            while data := os.read(person, 65_536):
                seen += data
        return process.wait(PATIENCE), out, seen.decode().replace("\r\n", "\n")
    finally:
        os.close(person)
        process.kill()
        process.wait(PATIENCE)


# --- a client and a daemon of another version ---


@pytest.mark.usefixtures("door")
def test_hooks_work_and_hear_nothing_of_it(other: Daemon, initialized: Path) -> None:
    def call(*arguments: str, stdin: bytes = b"") -> tuple[int, bytes, bytes]:
        done = icctl(*arguments, cwd=initialized, env=through(other), stdin=stdin)
        return done.returncode, done.stdout, done.stderr

    assert call("sentinel", "check", "stop", "s", "--interval=60") == (0, b"allowed\n", b"")
    assert call("sentinel", "check", "stop", "s", "--interval=60") == (1, b"throttled\n", b"")
    assert call("state", "set", "k", "s", stdin=b"[1]") == (0, b"", b"")
    assert call("state", "get", "k", "s") == (0, b"[1]\n", b"")
    assert call("state", "get", "none", "s") == (1, b"", b"")
    assert call("health") == (0, b"ok\n", b"")


@pytest.mark.usefixtures("door")
def test_a_person_is_told_on_stderr_only(other: Daemon, initialized: Path) -> None:
    env = {"HOME": str(initialized), **through(other)}

    assert on_a_terminal("health", cwd=initialized, env=env) == (0, b"ok\n", warning(other))
    no = on_a_terminal("state", "get", "k", "s", cwd=initialized, env=env)
    assert no == (1, b"", warning(other))


@pytest.mark.usefixtures("door")
def test_a_person_with_a_daemon_of_the_same_version_is_told_nothing(
    daemon: Daemon, initialized: Path
) -> None:
    env = {"HOME": str(initialized), **through(daemon)}

    assert on_a_terminal("health", cwd=initialized, env=env) == (0, b"ok\n", "")


@pytest.mark.usefixtures("door")
def test_what_is_not_understood_is_a_mistake_that_names_the_versions_and_is_not_run_elsewhere(
    other: Daemon, initialized: Path
) -> None:
    env = {"INTERCORE_SOCKET": other.socket, "INTERCORE_MODE": "auto"}

    verb = icctl("state", "foresee", "k", "s", cwd=initialized, env=env)
    option = icctl("state", "set", "k", "s", "--value=1", "--gently", cwd=initialized, env=env)

    assert (verb.returncode, verb.stdout) == (3, b"")
    error, told = verb.stderr.decode().splitlines(keepends=True)
    assert error.startswith("icctl: state: unknown subcommand 'foresee'; use one of ")
    assert told == warning(other)
    assert (option.returncode, option.stdout) == (3, b"")
    assert option.stderr.decode().endswith(warning(other))
    assert icctl("state", "get", "k", "s", cwd=initialized, env=DIRECT).returncode == 1


@pytest.mark.usefixtures("door")
def test_version_and_ping_show_both_versions(other: Daemon, initialized: Path) -> None:
    version = icctl("version", "--verbose", cwd=initialized, env=through(other))
    ping = icctl("ping", "--verbose", cwd=initialized, env=through(other))

    lines = version.stdout.decode().splitlines()
    assert lines[0] == f"icctl {__version__}"
    assert lines[3] == f"daemon: {other.version}"
    assert ping.stdout.decode() == (
        f"pong\nicctl {__version__}\nicd {other.version}, pid {other.pid}\n"
    )


@pytest.mark.usefixtures("door")
def test_a_client_neither_stops_nor_replaces_a_daemon_of_another_version(
    other: Daemon, initialized: Path
) -> None:
    for arguments in (("ping",), ("bogus",), ("version", "--verbose"), ("health", "--no-daemon")):
        icctl(*arguments, cwd=initialized, env={**through(other)})

    assert other.call("icd.ping") == {"pid": other.pid, "version": other.version}


def test_a_command_of_the_callers_own_runs_there_whatever_the_daemon_is(
    other: Daemon, initialized: Path, door: Path
) -> None:
    done = icctl("compat", "status", cwd=initialized, env=through(other))

    assert (done.returncode, done.stderr) == (0, b"")


# --- what clients of the past sent ---


@pytest.mark.parametrize("name", sorted(path.name for path in FRAMES.iterdir()))
def test_frames_of_earlier_clients_are_answered_as_ever(
    name: str, other: Daemon, initialized: Path
) -> None:
    replies = [exchange(other, frame) for frame in replay(name, initialized)]

    refused = replies.pop()
    assert replies == [
        b"0 5 0\npong\n",
        b"0 0 0\n",
        b"? stdin 1114112\n",
        b"0 0 0\n",
        b'0 17 0\n{"from":"stdin"}\n',
        b"? file 1114112 6\nx.json",
        b"0 0 0\n",
        b"? file 1114112 4\nnone",
        b"2 0 %d\nicctl: state set: cannot read none: No such file or directory;"
        b" check that the file exists and that you may read it\n" % 115,
        b"0 8 0\nallowed\n",
        b"1 10 0\nthrottled\n",
        b"! local\n",
    ]
    status, out, err = map(int, refused.partition(b"\n")[0].split())
    assert status == 3
    assert refused.partition(b"\n")[2][out:].startswith(b"icctl: unknown command 'bogus'; see")
    assert len(refused.partition(b"\n")[2]) == out + err


def exchange(daemon: Daemon, frame: bytes) -> bytes:
    with daemon.connect() as sock:
        sock.sendall(frame)
        sock.shutdown(socket.SHUT_WR)
        return read_all(sock)


def test_a_client_that_does_not_tell_its_version_is_told_nothing(other: Daemon) -> None:
    assert b"warning" not in exchange(other, b"ic1 3\0y111\0d/\0abogus\0")


@pytest.mark.parametrize("version", [b"1\x1b[2J", b"\xff", b"9" * 33, b""])
def test_what_is_no_version_is_not_repeated(version: bytes, other: Daemon) -> None:
    frame = b"ic1 4\0y111\0r" + version + b"\0d/\0abogus\0"

    assert b"warning" not in exchange(other, frame)


# --- an upgrade under a running daemon ---


def test_a_daemon_whose_installation_is_replaced_stays_what_it_is(
    project: Path, tmp_path: Path
) -> None:
    """What it has not loaded by then would be new code amidst the old, and a schema of the future."""
    place = install(tmp_path / "installed", OLDER)
    loaded = marked(place / "icd", tmp_path / "loaded")
    with daemon_from(place) as daemon:
        until(loaded.exists)  # a moment after it has started
        for file in (place / "icd").rglob("*.py"):
            file.write_text("raise RuntimeError('this is code of another version')\n")
        future = place / "icd" / "db" / "migrations" / "1999_future.sql"
        future.write_text("CREATE TABLE of_the_future (x TEXT);\n")

        begun = icctl("init", cwd=project, env=through(daemon))
        told = [
            icctl(*name.split(), "--help", cwd=project, env=through(daemon))
            for name in registry.commands()
        ]
        others = [
            icctl(*line.split(), cwd=project, env=through(daemon)).stderr
            for line in ("completion bash", "completion zsh", "completion fish", "config show --origin",
                         "config check", "backup", "statusline", "state list k", "status")
        ]  # fmt: skip

    assert begun.returncode == 0, begun.stderr
    assert re.fullmatch(rb"initialized \S+ \(schema v\d{4}\)\n", begun.stdout)
    assert {done.returncode for done in told} == {0}
    assert set(others) == {b""}
    with contextlib.closing(sqlite3.connect(project / ".clavain" / "intercore.db")) as conn:
        tables = {name for (name,) in conn.execute("SELECT name FROM sqlite_schema")}
    assert "state" in tables
    assert "of_the_future" not in tables
