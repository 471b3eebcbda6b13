"""Whether the service works: its units, what systemd makes of them, and who answers."""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from icd.admin.service import systemctl as systemd
from icd.admin.service import units
from icd.admin.service.ping import knock
from icd.admin.service.systemctl import State
from icd.admin.service.units import SANDBOX, SERVICE, SOCKET, Unit
from icd.errors import ServiceFailed
from icd.features.daemon.verbs import Pong

_INSTALL = "run 'icctl service install'"
_LOGS = "see 'icctl service logs'"


class Row(Struct):
    name: str
    path: str
    found: str
    enabled: str = ""
    active: str = ""
    sub: str = ""
    result: str = ""


class Report(Struct):
    """`works`: systemd listens, and the daemon that it started answers."""

    works: bool
    socket: str
    units: list[Row]
    daemon: Pong | None
    problems: list[str]

    def lines(self) -> Iterator[str]:
        for row in self.units:
            state = f"{row.active} ({row.sub})" if row.active else ""
            yield f"{row.name}\t{row.found}\t{row.enabled}\t{state}".rstrip()
        if self.daemon is not None:
            yield f"icd {self.daemon.version} (pid {self.daemon.pid}) answers at {self.socket}"
        yield from (f"problem: {problem}" for problem in self.problems)


def examine(env: Mapping[str, str], python: str, version: str) -> Report:
    states = systemd.states(env, SOCKET, SERVICE)
    found = units.chosen(units.look(env, python), sandbox=False)
    socket = systemd.socket_path(env)
    problems = [*_of_units(found), *_of_states(states)]
    try:
        daemon = knock(env, socket)
    except ServiceFailed as exc:
        daemon = None
        problems.append(exc.message)
    states = systemd.states(env, SOCKET, SERVICE)  # the question may have started the daemon
    doubts = list(_of_daemon(daemon, states, version))
    works = daemon is not None and states[0].active == "active" and daemon.pid == states[1].pid
    rows = list(map(_row, found, [*states, None][: len(found)]))
    return Report(works, socket, rows, daemon, problems + doubts)


def _row(unit: Unit, state: State | None) -> Row:
    if state is None:
        return Row(unit.name, unit.path, unit.found)
    about = state.enabled, state.active, state.sub, state.result
    return Row(unit.name, unit.path, unit.found, *about)


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


def _of_daemon(daemon: Pong | None, states: list[State], version: str) -> Iterator[str]:
    if daemon is None:
        if states[0].active == "active":
            yield f"no daemon answers; {_LOGS}"
    elif daemon.pid != states[1].pid:
        yield f"systemd did not start the icd that answers (pid {daemon.pid}); stop it"
    elif daemon.version != version:
        yield f"icd {daemon.version} runs, {version} is installed; run 'icctl service reload'"
