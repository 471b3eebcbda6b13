"""The user's systemd, asked through its own programs, with the caller's environment.

Only commands that run in the caller's own process use this.  What cannot be reached is told once,
here, in one sentence.
"""

import os
import subprocess
from collections.abc import Iterator, Mapping
from shutil import which

from msgspec import Struct

from icd.errors import NoSystemd, ServiceFailed

# A restart waits for the old daemon to stop and for the new one to start, each with a limit of its
# own in the unit; whatever takes longer hangs.
PATIENCE_SECONDS = 120
PROPERTIES = (
    "Id", "LoadState", "ActiveState", "SubState", "UnitFileState", "FragmentPath",
    "NeedDaemonReload", "Result", "ExecMainStatus", "MainPID",
)  # fmt: skip
NO_JOURNAL = "the daemon then logs to where its stderr goes; see docs/service.md"


class State(Struct, frozen=True):
    """What systemd says about a unit; "" where it says nothing."""

    load: str
    active: str
    sub: str
    enabled: str
    file: str
    stale: bool  # the file has changed since systemd read it
    result: str
    status: int  # with which its process ended last
    pid: int


def environment(env: Mapping[str, str]) -> dict[str, str]:
    """Neither pager nor colours; and after su or in cron, nobody has said where the bus is."""
    quiet = {**env, "SYSTEMD_PAGER": "", "SYSTEMD_COLORS": "0", "LC_ALL": "C"}
    return {**quiet, "XDG_RUNTIME_DIR": runtime_directory(env)}


def runtime_directory(env: Mapping[str, str]) -> str:
    """What units call %t."""
    return env.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}"


def socket_path(env: Mapping[str, str]) -> str:
    """Where icd.socket listens."""
    return os.path.join(runtime_directory(env), "intercore", "icd.sock")


def no_states(*names: str) -> list[State]:
    """As if systemd knew nothing of them."""
    return [State("", "", "", "", "", stale=False, result="", status=0, pid=0) for _ in names]


def states(env: Mapping[str, str], *names: str) -> list[State]:
    """Also proves that there is a systemd to talk to."""
    words = ["show", *names, f"--property={','.join(PROPERTIES)}"]
    done = _run(env, "systemctl", "--user", *words)
    if done.returncode:
        raise NoSystemd(f"the systemd of this user cannot be reached: {_last(done.stderr)}")
    found = [_state(block) for block in done.stdout.split("\n\n") if block.strip()]
    if len(found) != len(names):
        raise ServiceFailed(f"systemctl said something unexpected: {_last(done.stdout)}")
    return found


def systemctl(env: Mapping[str, str], *words: str) -> None:
    done = _run(env, "systemctl", "--user", *words)
    if done.returncode:
        raise ServiceFailed(f"systemctl --user {' '.join(words)} failed: {_last(done.stderr)}")


def journal(env: Mapping[str, str], *words: str) -> list[str]:
    """Lines of JSON, oldest first."""
    done = _run(env, *_journalctl(*words))
    if done.returncode:
        raise ServiceFailed(f"journalctl failed: {_last(done.stderr)}", hint=NO_JOURNAL)
    return done.stdout.splitlines()


def follow(env: Mapping[str, str], *words: str) -> Iterator[str]:
    """Lines of JSON as they come, until nobody wants them any more."""
    command = _journalctl(*words, "--follow")
    with subprocess.Popen(  # noqa: S603 -- the words are ours
        _found(env, command), env=environment(env), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, text=True, errors="surrogateescape",
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            yield from process.stdout
        finally:
            process.terminate()


def _journalctl(*words: str) -> list[str]:
    # Not --user: where the journal is not kept per user, the lines are in that of the system.
    quiet = ["--user-unit=icd.service", "--output=json", "--quiet", "--no-pager"]
    return ["journalctl", *quiet, *words]


def _run(env: Mapping[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(  # noqa: S603 -- the words are ours
            _found(env, list(command)), env=environment(env), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, errors="surrogateescape", timeout=PATIENCE_SECONDS,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        sentence = f"{' '.join(command)} has not ended within {PATIENCE_SECONDS} seconds"
        raise ServiceFailed(sentence) from None


def _found(env: Mapping[str, str], command: list[str]) -> list[str]:
    program = which(command[0], path=env.get("PATH", os.defpath))
    if program is None:
        journal = {"hint": NO_JOURNAL} if command[0] == "journalctl" else {}
        raise NoSystemd(f"there is no {command[0]} here", **journal)
    return [program, *command[1:]]


def _state(block: str) -> State:
    said = dict(line.partition("=")[::2] for line in block.strip().splitlines())
    return State(
        load=said.get("LoadState", ""),
        active=said.get("ActiveState", ""),
        sub=said.get("SubState", ""),
        enabled=said.get("UnitFileState", ""),
        file=said.get("FragmentPath", ""),
        stale=said.get("NeedDaemonReload") == "yes",
        result=said.get("Result", ""),
        status=int(said.get("ExecMainStatus") or 0),
        pid=int(said.get("MainPID") or 0),
    )


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].removesuffix(".") if lines else "it did not say why"
