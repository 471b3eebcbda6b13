"""The user's systemd: its state, its journal, and whether the daemon that it starts answers.

All of it is asked through programs, in the caller's own process and environment.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from shutil import which
from typing import Any

import msgspec
from msgspec import Struct, field

from icd.errors import NoSystemd, ServiceFailed
from icd.features.daemon.verbs import Pong
from icd.printable import escaped

# A restart waits for the old daemon to stop and for the new one to start, each with a limit of its
# own in the unit; whatever takes longer hangs.
PATIENCE_SECONDS = 120
# A cold start on a busy machine; a daemon that is there answers within milliseconds.
ANSWER_SECONDS = 20
# The client notices its deadline itself; this is for a machine that hangs.
MARGIN_SECONDS = 20
NO_JOURNAL = "the daemon then logs to where its stderr goes; see docs/service.md"
# Not --user: where the journal is not kept per user, the lines are in that of the system.
_JOURNALCTL = (
    "journalctl", "--user-unit=icd.service", "--output=json", "--quiet", "--no-pager",
)  # fmt: skip
_CLIENT = "import sys; from icctl.client import main; sys.exit(main(sys.argv[1:], 'icctl'))"
# The levels of syslog, from 0; ours has five names for them.
_LEVELS = ("critical", "critical", "critical", "error", "warning", "info", "info", "debug")


# --- systemctl ------------------------------------------------------------------------------------


class State(Struct, frozen=True):
    """What systemd says about a unit; as declared here where it says nothing."""

    load: str = field(default="", name="LoadState")
    active: str = field(default="", name="ActiveState")
    sub: str = field(default="", name="SubState")
    enabled: str = field(default="", name="UnitFileState")
    result: str = field(default="", name="Result")
    # With which its process ended last.
    status: int = field(default=0, name="ExecMainStatus")
    pid: int = field(default=0, name="MainPID")
    needs_reload: str = field(default="", name="NeedDaemonReload")

    @property
    def stale(self) -> bool:
        """The file has changed since systemd read it."""
        return self.needs_reload == "yes"


def runtime_directory(env: Mapping[str, str]) -> str:
    """What units call %t."""
    return env.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}"


def socket_path(env: Mapping[str, str]) -> str:
    """Where icd.socket listens."""
    return os.path.join(runtime_directory(env), "intercore", "icd.sock")


def states(env: Mapping[str, str], *names: str) -> list[State]:
    """Also proves that there is a systemd to talk to."""
    properties = ",".join(each.encode_name for each in msgspec.structs.fields(State))
    done = _run(env, "systemctl", "--user", "show", *names, f"--property={properties}")
    if done.returncode:
        raise NoSystemd(f"the systemd of this user cannot be reached: {_last(done.stderr)}")
    found = [_state(block) for block in done.stdout.split("\n\n") if block.strip()]
    if len(found) != len(names):
        raise ServiceFailed(f"systemctl said something unexpected: {_last(done.stdout)}")
    return found


def _state(block: str) -> State:
    said = dict(line.partition("=")[::2] for line in block.strip().splitlines())
    known = {name: value for name, value in said.items() if value}
    return msgspec.convert(known, State, strict=False)


def systemctl(env: Mapping[str, str], *words: str) -> None:
    done = _run(env, "systemctl", "--user", *words)
    if done.returncode:
        raise ServiceFailed(f"systemctl --user {' '.join(words)} failed: {_last(done.stderr)}")


def _run(env: Mapping[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    late = f"{' '.join(command)} has not ended within {PATIENCE_SECONDS} seconds"
    return _ended(_found(env, command), _environment(env), PATIENCE_SECONDS, late)


def _ended(
    command: list[str], env: Mapping[str, str], seconds: float, late: str, cwd: str | None = None
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(  # noqa: S603 -- the words are ours
            command, env=env, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="surrogateescape", timeout=seconds, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ServiceFailed(late) from None


def _environment(env: Mapping[str, str]) -> dict[str, str]:
    """Neither pager nor colours; after su or in cron the place of the bus is not set."""
    quiet = {**env, "SYSTEMD_PAGER": "", "SYSTEMD_COLORS": "0", "LC_ALL": "C"}
    return {**quiet, "XDG_RUNTIME_DIR": runtime_directory(env)}


def _found(env: Mapping[str, str], command: tuple[str, ...]) -> list[str]:
    program = which(command[0], path=env.get("PATH", os.defpath))
    if program is None:
        journal = {"hint": NO_JOURNAL} if command[0] == "journalctl" else {}
        raise NoSystemd(f"there is no {command[0]} here", **journal)
    return [program, *command[1:]]


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].removesuffix(".") if lines else "it did not say why"


# --- the daemon -----------------------------------------------------------------------------------


def ping(env: Mapping[str, str], socket: str) -> Pong | None:
    """Who answers at a socket, asked as a hook would ask; None: no daemon.  A hang is an error."""
    # What the caller has set about intercore is about another socket, or another mode.
    plain = {name: value for name, value in env.items() if not name.startswith("INTERCORE_")}
    command = [sys.executable, "-E", "-P", "-c", _CLIENT]
    done = _ended(
        [*command, "ping", "--json", f"--timeout={ANSWER_SECONDS}s"],
        {**plain, "INTERCORE_SOCKET": socket},
        ANSWER_SECONDS + MARGIN_SECONDS,
        f"the client hangs at {socket}",
        cwd="/",
    )
    if done.returncode == 0:
        return msgspec.json.decode(done.stdout, type=Pong)
    if done.returncode == 1:
        return None
    told = done.stderr.strip().removeprefix("icctl: ") or "the client failed"
    raise ServiceFailed(f"no call goes through {socket}: {told}")


# --- the journal ----------------------------------------------------------------------------------


class _Entry(Struct):
    """What we read of a line; a message that is not text comes as bytes, a huge one as null."""

    message: str | list[int] | None = field(default=None, name="MESSAGE")
    moment: str = field(default="0", name="__REALTIME_TIMESTAMP")
    priority: str = field(default="6", name="PRIORITY")
    source: str = field(default="", name="SYSLOG_IDENTIFIER")


def journal(env: Mapping[str, str], *words: str) -> list[str]:
    """Lines of JSON, oldest first."""
    done = _run(env, *_JOURNALCTL, *words)
    if done.returncode:
        raise ServiceFailed(f"journalctl failed: {_last(done.stderr)}", hint=NO_JOURNAL)
    return done.stdout.splitlines()


def follow(env: Mapping[str, str], *words: str) -> Iterator[str]:
    """Lines of JSON as they come, until the caller wants no more."""
    with subprocess.Popen(  # noqa: S603 -- the words are ours
        _found(env, (*_JOURNALCTL, *words, "--follow")), env=_environment(env),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="surrogateescape",
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            yield from process.stdout
        finally:
            process.terminate()


def as_text(line: str) -> str | None:
    """`time level message name=value…`, and a traceback below it; None: not an entry.

    It is for a terminal, so what could command one is spelled out.
    """
    found = _decoded(line)
    if found is None:
        return None
    seconds, facts = found
    clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
    said = {name: value for name, value in facts.items() if name not in {"time", "level", "msg"}}
    traceback = str(said.pop("traceback", ""))
    words = [clock, facts["level"], facts["msg"], *(f"{n}={_word(v)}" for n, v in said.items())]
    lines = [" ".join(map(str, words)), *(f"    {text}" for text in traceback.splitlines())]
    return "\n".join(map(escaped, lines))


def as_json(line: str) -> str | None:
    """The daemon's own line as it is; those of others in the same shape."""
    found = _decoded(line)
    return None if found is None else msgspec.json.encode(found[1]).decode()


def _decoded(line: str) -> tuple[float, dict[str, Any]] | None:
    """When it was written, and its facts: ours are JSON inside JSON, and systemd adds its own."""
    try:
        entry = msgspec.json.decode(line.encode("utf-8", "replace"), type=_Entry)
    except (msgspec.DecodeError, RecursionError):
        return None
    message, seconds = entry.message, int(entry.moment) / 1_000_000
    text = bytes(message).decode("utf-8", "replace") if isinstance(message, list) else message or ""
    try:
        facts = msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, RecursionError):
        facts = None
    if not (isinstance(facts, dict) and facts.keys() >= {"level", "msg"}):
        facts = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds)),
            "level": _LEVELS[min(int(entry.priority), 7)],
            "msg": text,
            "source": entry.source,
        }
    return seconds, facts


def _word(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
