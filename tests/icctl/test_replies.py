"""Files that a caller names and that are no files: pipes, devices, sockets; through both doors."""

import fcntl
import os
import pty
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from tests.support.processes import CLEAN, PATIENCE, Daemon, icctl

pytestmark = pytest.mark.usefixtures("door")

NOBODY = "cannot read pipe: no process writes to it; start the writer, or raise --timeout"
# Makes stdin return at once, as some programs leave it behind, and becomes icctl.
IMPATIENT = "import os, sys; os.set_blocking(0, False); os.execvp('icctl', sys.argv)"


@pytest.fixture
def place(initialized: Path) -> Path:
    """A project with a pipe."""
    os.mkfifo(initialized / "pipe")
    return initialized


@pytest.fixture(params=["daemon", "direct"])
def env(request: pytest.FixtureRequest, any_daemon: Daemon) -> dict[str, str]:
    return {"INTERCORE_SOCKET": any_daemon.socket, "INTERCORE_MODE": request.param}


def bash(script: str, *, cwd: Path, env: dict[str, str]) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        ["bash", "-c", script],
        cwd=cwd,
        env={**CLEAN, "HOME": str(cwd), **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )


def stored(cwd: Path, env: dict[str, str]) -> bytes:
    return icctl("state", "get", "k", "s", cwd=cwd, env=env).stdout


def test_a_pipe_that_nobody_writes_to_is_waited_for_as_long_as_the_call_may_take(
    place: Path, env: dict[str, str]
) -> None:
    done = icctl("state", "set", "k", "s", "@pipe", "--timeout=3s", cwd=place, env=env)

    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode() == f"icctl: state set: {NOBODY}\n"
    assert stored(place, env) == b""


@pytest.mark.parametrize(
    "words",
    [
        "events record --source=ci --type=t --payload=@pipe",
        "run create --project=. --goal=g --phases=@pipe",
        "discovery submit --source=s --source-id=1 --title=t --metadata=@pipe",
        "discovery search --embedding=@pipe",
        "discovery profile update --keyword-weights=@pipe",
        "dispatch record d --end=pipe",
    ],
)
def test_so_it_is_for_every_command_that_reads_a_file(
    words: str, place: Path, any_daemon: Daemon
) -> None:
    env = {"INTERCORE_SOCKET": any_daemon.socket, "INTERCORE_MODE": "daemon"}

    done = icctl(*words.split(), "--timeout=3s", cwd=place, env=env)

    assert (done.returncode, done.stdout) == (2, b"")
    assert NOBODY in done.stderr.decode()


@pytest.mark.parametrize("words", ["discovery submit --from=pipe", "import pipe", "restore pipe"])
def test_where_only_a_file_will_do_a_pipe_is_refused_at_once(
    words: str, place: Path, env: dict[str, str]
) -> None:
    done = icctl(*words.split(), "--timeout=5m", cwd=place, env=env)

    assert (done.returncode, done.stdout) == (2, b"")
    assert "pipe is not a regular file; " in done.stderr.decode()


@pytest.mark.parametrize("source", ["/dev/zero", "pipe"])
def test_an_artifact_that_never_ends_or_never_begins_is_noted_without_a_digest(
    source: str, place: Path, env: dict[str, str]
) -> None:
    made = icctl("run", "create", "--project=.", "--goal=g", cwd=place, env=env)
    run = made.stdout.decode().strip()
    limit = "--timeout=3s" if source == "pipe" else "--timeout=30s"
    words = ["run", "artifact", "add", run, "--phase=p", f"--path={source}", limit]

    done = icctl(*words, cwd=place, env=env)

    listed = icctl("run", "artifact", "list", run, "--json", cwd=place, env=env).stdout
    assert done.returncode == 0, done
    assert source.encode() in listed
    assert b"sha256:" not in listed


def test_a_pipe_that_holds_too_much_for_a_digest_is_not_opened_again(
    place: Path, env: dict[str, str]
) -> None:
    """It was, and there was nobody at its other end any more."""
    script = """
        run=$(icctl run create --project=. --goal=g)
        head -c 2000000 /dev/zero > pipe 2>/dev/null &
        icctl run artifact add "$run" --phase=p --path=pipe
    """

    done = bash(script, cwd=place, env=env)

    assert done.returncode == 0, done


@pytest.mark.parametrize(
    "script",
    [
        "{ exec 4> pipe; sleep 3.5; echo '[1]' >&4; } & icctl state set k s @pipe --timeout=3s",
        "icctl state set k s @<(sleep 3.5; echo '[1]') --timeout=3s",
        "icctl state set k s @/dev/stdin --timeout=3s < <(sleep 3.5; echo '[1]')",
    ],
    ids=["a named pipe", "a substituted process", "stdin by its name"],
)
def test_whoever_writes_may_take_longer_than_the_call(
    script: str, place: Path, env: dict[str, str]
) -> None:
    done = bash(script, cwd=place, env=env)

    assert (done.returncode, done.stderr) == (0, b"")
    assert stored(place, env) == b"[1]\n"


def test_a_writer_may_come_later_than_its_reader(place: Path, env: dict[str, str]) -> None:
    script = "{ sleep 1; echo '[1]' > pipe; } & icctl state set k s @pipe --timeout=30s"

    done = bash(script, cwd=place, env=env)

    assert (done.returncode, done.stderr) == (0, b"")
    assert stored(place, env) == b"[1]\n"


@pytest.mark.parametrize("script", [": > pipe & icctl state set k s @pipe --timeout=30s",
                                    "icctl state set k s @<(:)"])  # fmt: skip
def test_a_writer_that_leaves_without_a_word_has_written_nothing(
    script: str, place: Path, env: dict[str, str]
) -> None:
    done = bash(script, cwd=place, env=env)

    assert done.returncode == 2
    assert b"invalid JSON payload" in done.stderr


def test_stdin_that_does_not_wait_is_waited_for(place: Path, env: dict[str, str]) -> None:
    """It was taken for an empty one."""
    script = f'{{ sleep 1; echo "[1]"; }} | python3 -c "{IMPATIENT}" state set k s'

    done = bash(script, cwd=place, env=env)

    assert (done.returncode, done.stderr) == (0, b"")
    assert stored(place, env) == b"[1]\n"


def test_what_is_typed_at_a_terminal_can_be_a_file(place: Path, env: dict[str, str]) -> None:
    keyboard, terminal = pty.openpty()
    try:
        os.write(keyboard, b"[1]\n\x04")

        done = icctl("state", "set", "k", "s", f"@{os.ttyname(terminal)}", cwd=place, env=env)
    finally:
        os.close(keyboard)
        os.close(terminal)

    assert (done.returncode, done.stderr) == (0, b"")
    assert stored(place, env) == b"[1]\n"


@pytest.mark.parametrize(
    "name, told",
    [
        ("/dev/zero", "payload too large: "),
        ("/dev/null", "invalid JSON payload: "),
        ("socket", "cannot read socket: it is a socket, or a missing device; "),
        (".clavain", "cannot read .clavain: Is a directory; "),
    ],
)
def test_what_is_no_file_is_refused_in_one_sentence(
    name: str, told: str, place: Path, env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")

        done = icctl("state", "set", "k", "s", f"@{name}", cwd=place, env=env)

    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode().startswith(f"icctl: state set: {told}")
    assert done.stderr.count(b"\n") == 1


def test_a_file_that_somebody_has_to_give_back_first_is_waited_for(
    initialized: Path, env: dict[str, str]
) -> None:
    """As Samba and NFS do for their clients; an open that must not wait fails then."""
    file = initialized / "leased"
    file.write_text("7")
    fd = os.open(file, os.O_RDWR)
    before = signal.signal(
        signal.SIGIO, lambda *_: fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    )
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)

        done = icctl("state", "set", "k", "s", "@leased", cwd=initialized, env=env)
    finally:
        os.close(fd)
        signal.signal(signal.SIGIO, before)

    assert (done.returncode, done.stderr) == (0, b"")
    assert stored(initialized, env) == b"7\n"
