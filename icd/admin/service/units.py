"""The units of systemd: what they must say, what is there, what installing takes, what is wrong.

Promises
    - a file without our first line belongs to another author: we neither change nor remove it;
    - a file is replaced as a whole, so that systemd never reads half of one;
    - the same installation always makes the same text, so that "current" can be told;
    - `to_install` and `to_remove` decide from what is there and do nothing: a second time nothing
      is left to do, and a dry run tells what would be done.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from msgspec import Struct

from icd import __version__
from icd.admin.service import systemctl
from icd.admin.service.systemctl import State
from icd.errors import ForeignUnit, Misconfigured, ServiceFailed, from_os
from icd.features.daemon.verbs import Pong

SOCKET, SERVICE, SANDBOX = "icd.socket", "icd.service", "icd.service.d/sandbox.conf"
MARK = "# Written by 'icctl service install"
# Beside the packages in a checkout, inside this one when installed; as the library for bash.
_PLACES = [os.path.join(os.path.dirname(__file__), up, "systemd") for up in ("../..", "../../..")]
_INSTALL = "run 'icctl service install'"
_LOGS = "see 'icctl service logs'"

Found = Literal["missing", "current", "outdated", "foreign"]
Words = tuple[str, ...]  # of `systemctl --user`


class Unit(Struct, frozen=True):
    """A file of ours: where it belongs, what it must say, and what is there."""

    name: str
    path: str
    text: str
    found: Found


class Steps(Struct, frozen=True):
    """In this order: `before`, the files, `after`."""

    files: list[Unit]
    before: list[Words]
    after: list[Words]


def directory(env: Mapping[str, str]) -> str:
    """Where the user's own units lie."""
    config = env.get("XDG_CONFIG_HOME", "")
    home = env.get("HOME", "")
    if not config.startswith("/") and not home.startswith("/"):
        raise Misconfigured("HOME is not set", hint="set it to your home directory")
    return os.path.join(config if config.startswith("/") else f"{home}/.config", "systemd/user")


def look(env: Mapping[str, str], python: str) -> list[Unit]:
    """All units, the optional one last."""
    place = directory(env)
    texts = {name: text(name, python) for name in (SOCKET, SERVICE, SANDBOX)}
    return [
        Unit(name, path, wanted, _found(path, wanted))
        for name, wanted in texts.items()
        for path in [os.path.join(place, name)]
    ]


def chosen(units: Iterable[Unit], *, sandbox: bool) -> list[Unit]:
    """Those that are to be there: the sandbox if it is asked for, or was before."""
    return [u for u in units if u.name != SANDBOX or sandbox or u.found in {"current", "outdated"}]


def to_install(
    units: list[Unit], states: list[State], *, now: bool, sandbox: bool, force: bool
) -> Steps:
    wanted = chosen(units, sandbox=sandbox)
    for unit in wanted:
        if unit.found == "foreign" and not force:
            raise ForeignUnit(f"{unit.path} was not written by icctl")
    changed = [unit for unit in wanted if unit.found != "current"]
    is_stale = changed or any(state.stale for state in states)
    after: list[Words] = [("daemon-reload",)] if is_stale else []
    after += _forgiven(states)
    listens = states[0].active == "active"
    if not listens or states[0].enabled != "enabled":
        after.append(("enable", "--now", SOCKET))
    if now and listens:
        after.append(("restart", SOCKET))  # and with it the service that requires it
    return Steps(changed, [], after)


def to_remove(units: list[Unit], states: list[State]) -> Steps:
    ours = [unit for unit in units if unit.found in {"current", "outdated"}]
    names = [unit.name for unit in ours if unit.name != SANDBOX]
    before: list[Words] = [("disable", "--now", *names), *_forgiven(states)] if names else []
    return Steps(ours, before, [("daemon-reload",)] if ours else [])


def _forgiven(states: list[State]) -> list[Words]:
    """A unit that has failed too often starts no more until this is said."""
    names = (SOCKET, SERVICE)
    failed = [n for n, state in zip(names, states, strict=True) if state.active == "failed"]
    return [("reset-failed", *failed)] if failed else []


def text(name: str, python: str) -> str:
    place = next(filter(os.path.isdir, _PLACES), _PLACES[0])
    with open(os.path.join(place, name), encoding="utf-8") as file:
        return file.read().replace("@PYTHON@", quoted(python))


def quoted(path: str) -> str:
    """A path as the first word of ExecStart=, which may hold spaces, but not everything."""
    if any(char in "\"'\\" or not char.isprintable() for char in path):
        raise Misconfigured(
            f"systemd starts no program with quotes or the like in its path: {path}",
            hint="install intercore in another directory",
        )
    return '"' + path.replace("%", "%%") + '"'


def write(unit: Unit) -> None:
    draft = f"{unit.path}.{os.getpid()}.tmp"
    try:
        os.makedirs(os.path.dirname(unit.path), exist_ok=True)
        try:
            with open(draft, "w", encoding="utf-8") as file:
                file.write(unit.text)
                os.fchmod(file.fileno(), 0o644)
            os.replace(draft, unit.path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(draft)
            raise
    except OSError as exc:
        raise from_os(exc, f"write {unit.path}") from exc


def remove(unit: Unit) -> None:
    try:
        os.unlink(unit.path)
    except FileNotFoundError:
        return
    except OSError as exc:
        raise from_os(exc, f"remove {unit.path}") from exc
    if unit.name == SANDBOX:
        with contextlib.suppress(OSError):  # it holds drop-ins of the user's own
            os.rmdir(os.path.dirname(unit.path))


def _found(path: str, wanted: str) -> Found:
    if not os.path.lexists(path):
        return "missing"
    if not (os.path.isfile(path) or os.path.isdir(path)):
        return "foreign"  # a link to nowhere, a mask, a pipe: its author has plans for it
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            there = file.read()
    except OSError as exc:
        raise from_os(exc, f"read {path}") from exc
    if there == wanted:
        return "current"
    return "outdated" if there.startswith(MARK) else "foreign"


# --- status ---------------------------------------------------------------------------------------


class Row(Struct):
    name: str
    path: str
    found: str
    enabled: str
    active: str
    sub: str
    result: str


class Report(Struct):
    """`works`: systemd listens, and the daemon that it started answers."""

    works: bool
    socket: str
    units: list[Row]
    daemon: Pong | None
    problems: list[str]


def examine(env: Mapping[str, str], python: str) -> Report:
    """Whether the service works: its units, what systemd makes of them, and who answers."""
    states = systemctl.states(env, SOCKET, SERVICE)
    found = chosen(look(env, python), sandbox=False)
    socket = systemctl.socket_path(env)
    problems = [*_of_units(found), *_of_states(states)]
    daemon = None
    try:
        daemon = systemctl.ping(env, socket)
    except ServiceFailed as exc:
        problems.append(exc.message)
    states = systemctl.states(env, SOCKET, SERVICE)  # the question may have started the daemon
    problems += _of_daemon(daemon, states)
    works = daemon is not None and states[0].active == "active" and daemon.pid == states[1].pid
    rows = [
        Row(u.name, u.path, u.found, state.enabled, state.active, state.sub, state.result)
        for u, state in zip(found, [*states, State()], strict=False)
    ]
    return Report(works, socket, rows, daemon, problems)


def _of_units(found: list[Unit]) -> Iterator[str]:
    for unit in found:
        if unit.found == "missing":
            yield f"{unit.name} is not installed; {_INSTALL}"
        elif unit.found == "outdated":
            yield f"{unit.path} is of another installation or version; {_INSTALL}"
        elif unit.found == "foreign" and unit.name != SANDBOX:
            yield f"{unit.path} was not written by icctl; {_INSTALL} --force to replace it"


def _of_states(states: list[State]) -> Iterator[str]:
    for name, state in zip((SOCKET, SERVICE), states, strict=True):
        if state.stale:
            yield f"systemd has not read {name} again; {_INSTALL}"
        if state.active == "failed":
            status = f", exit {state.status}" if state.status else ""
            yield f"{name} has failed ({state.result}{status}); {_LOGS}, then {_INSTALL}"
    if states[0].load == "loaded" and states[0].active == "inactive":
        yield f"{SOCKET} is stopped; {_INSTALL}"
    elif states[0].load == "loaded" and states[0].enabled != "enabled":
        yield f"{SOCKET} will not be there after the next login; {_INSTALL}"


def _of_daemon(daemon: Pong | None, states: list[State]) -> Iterator[str]:
    if daemon is None:
        if states[0].active == "active":
            yield f"no daemon answers; {_LOGS}"
    elif daemon.pid != states[1].pid:
        yield f"systemd did not start the icd that answers (pid {daemon.pid}); stop it"
    elif daemon.version != __version__:
        told = f"icd {daemon.version} runs, {__version__} is installed"
        yield f"{told}; run 'icctl service reload'"
