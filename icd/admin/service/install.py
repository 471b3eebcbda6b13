"""What it takes to install or remove the service: which files change, and what systemctl is told.

Decided from what is there, without doing any of it; so that a second time nothing is left to do,
and a dry run tells what would be done.
"""

from msgspec import Struct

from icd.admin.service.systemctl import State
from icd.admin.service.units import SANDBOX, SERVICE, SOCKET, Unit, chosen
from icd.errors import ForeignUnit

Command = tuple[str, ...]  # words of `systemctl --user`


class Steps(Struct, frozen=True):
    """In this order: `before`, the files, `after`."""

    files: list[Unit]
    before: list[Command]
    after: list[Command]


def to_install(
    units: list[Unit], states: list[State], *, now: bool, sandbox: bool, force: bool
) -> Steps:
    wanted = chosen(units, sandbox=sandbox)
    for unit in wanted:
        if unit.found == "foreign" and not force:
            raise ForeignUnit(f"{unit.path} was not written by icctl")
    changed = [unit for unit in wanted if unit.found != "current"]
    after: list[Command] = []
    if changed or any(state.stale for state in states):
        after.append(("daemon-reload",))
    after += _forgiven(states)
    listening = states[0].active == "active"
    if not listening or states[0].enabled != "enabled":
        after.append(("enable", "--now", SOCKET))
    if now and listening:
        after.append(("restart", SOCKET))  # and with it the service that requires it
    return Steps(changed, [], after)


def to_remove(units: list[Unit], states: list[State]) -> Steps:
    ours = [unit for unit in units if unit.found in {"current", "outdated"}]
    names = [unit.name for unit in ours if unit.name != SANDBOX]
    before: list[Command] = [("disable", "--now", *names)] if names else []
    before += _forgiven(states) if names else []
    return Steps(ours, before, [("daemon-reload",)] if ours else [])


def _forgiven(states: list[State]) -> list[Command]:
    """A unit that has failed too often starts no more until this is said."""
    names = (SOCKET, SERVICE)
    failed = [n for n, state in zip(names, states, strict=True) if state.active == "failed"]
    return [("reset-failed", *failed)] if failed else []
