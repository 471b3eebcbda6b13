"""Which module holds which rows; a module is loaded when its noun is first used."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from icd.app.parser import Commands, Leaf
from icd.app.verb import Command, Method, Verb

if TYPE_CHECKING:
    from icd.app.verb import Typed

# Nouns with verbs or other nouns below them, then commands that stand alone; in the order of the
# usage text.
GROUPS = {
    "state": ("features.state.verbs", "small JSON documents by key and scope"),
    "sentinel": ("features.sentinels.verbs", "rate limits: one claim per interval"),
    "events": ("features.events.verbs", "the event log"),
    "events cursor": ("features.events.verbs", "positions of consumers in the event log"),
    "interspect": ("features.events.interspect", "events about agents"),
    "run": ("features.runs.verbs.runs", "units of work and their phases"),
    "run agent": ("features.runs.verbs.agents", "agents of a run"),
    "run action": ("features.runs.verbs.actions", "what is to be done in each phase of a run"),
    "run artifact": ("features.runs.verbs.artifacts", "artifacts of a run"),
    "gate": ("features.gates.verbs", "conditions between the phases of a run"),
    "dispatch": ("features.dispatches.verbs", "agent processes and their results"),
    "lock": ("features.locks.verbs", "locks between processes, without a database"),
    "lease": ("features.leases.verbs", "claims with a deadline and a fencing token"),
    "coordination": ("features.coordination.verbs", "reservations of files"),
    "session": ("features.sessions.verbs", "what agents' sessions work on and use"),
    "lane": ("features.lanes.verbs", "streams of work and their issues"),
    "compat": ("features.compat.verbs", "migration from legacy temporary files"),
    "discovery": ("features.discoveries.verbs", "findings of scanners"),
    "hook": ("features.hook.verbs", "commands that an agent's hooks run, and answers to it"),
    "triggers": ("features.triggers.verbs", "the project's programs that run after an event"),
    "guard": ("admin.guard.verbs", "refuse commits of files that other sessions hold"),
    "config": ("features.config", "the settings"),
    "db": ("features.database.verbs", "the database file"),
    "service": ("admin.service.verbs", "the daemon, with systemd or without"),
}
# What is meant where options follow a noun instead of a verb.
UNSAID = {"hook": "run"}
# Nouns by a name that they had: agents call something else a hook by now.
ALIASES = {"hooks": "triggers"}
SINGLES = {
    "init": "features.database.verbs",
    "health": "features.database.verbs",
    "version": "features.database.verbs",
    "backup": "features.database.backup",
    "restore": "features.database.backup",
    "export": "features.database.dump",
    "import": "features.database.dump",
    "hold": "features.locks.hold",
    "wait": "features.events.wait",
    "statusline": "features.statusline.verbs",
    "ping": "features.daemon.verbs",
    "status": "features.daemon.verbs",
    "metrics": "features.daemon.verbs",
    "doctor": "admin.doctor.verbs",
    "setup": "admin.setup.verbs",
    "mcp": "mcp.verbs",
    "top": "top.verbs",
    "trust": "features.trust",
    "lib-path": "features.shell",
    "completion": "features.shell",
}


# Nouns and verbs of newer originals that are not ours, and what to use instead: policy, or another
# product.
DECLINED = {
    "agency": "it decides who may do what; record decisions as events",
    "autonomy": "it is policy; keep it in state, or in your own settings",
    "cost": "it is policy; 'icctl run tokens' and 'icctl run budget' count",
    "events list-agency": "'icctl events tail --source=agency' lists such events",
    "goal": "'icctl run create --goal' has the goal of a run",
    "portfolio": "'icctl run list --all-projects' lists the runs of a database",
    "publish": "it is a release pipeline, another product",
    "receipt": "record what was done with 'icctl events record'",
    "route": "which model or agent does a task is policy",
    "run replay": "'icctl run events' and 'icctl run snapshot' tell what happened",
    "scheduler": "'icctl dispatch' starts agents; when is your decision",
    "situation": "'icctl statusline' and 'icctl run snapshot' tell what is under way",
}
# Options of theirs, by command.
_ESCALATE = "which model tries next is policy; 'icctl dispatch retry ID --model=M' names it"
_SCHEDULE = "'icctl dispatch spawn' starts an agent now; when is your decision"
DECLINED_OPTIONS = {
    "run create": {
        "--goal-id": "--goal says what a run is for, and --bead what it is about",
        "--projects": "a run has one project; create one in each",
    },
    "dispatch retry": dict.fromkeys(
        ("--escalate", "--chain-key", "--failure-mode", "--failure-detail"), _ESCALATE
    ),
    "dispatch spawn": {
        **dict.fromkeys(("--scheduled", "--scheduler-session"), _SCHEDULE),
        "--sandbox-spec": "--sandbox passes a word to the agent, which enforces it",
    },
}


# The first words of methods.
METHODS = {
    "state": "features.state.verbs",
    "sentinel": "features.sentinels.verbs",
    "events": "features.events.verbs",
    "cursor": "features.events.verbs",
    "run": "features.runs.verbs.runs",
    "agent": "features.runs.verbs.agents",
    "artifact": "features.runs.verbs.artifacts",
    "action": "features.runs.verbs.actions",
    "gate": "features.gates.verbs",
    "compat": "features.compat.verbs",
    "statusline": "features.statusline.verbs",
    "db": "features.database.verbs",
    "backup": "features.database.backup",
    "dump": "features.database.dump",
    "hook": "features.triggers.verbs",
    "dispatch": "features.dispatches.verbs",
    "lease": "features.leases.verbs",
    "coordination": "features.coordination.verbs",
    "session": "features.sessions.verbs",
    "lane": "features.lanes.verbs",
    "discovery": "features.discoveries.verbs",
    "config": "features.config",
    "icd": "features.daemon.verbs",
    "rpc": "features.daemon.verbs",
    "cli": "features.daemon.verbs",
}


# What a host does whenever it may have loaded a noun; see icd/server/structs.py.
after_load: list[Callable[[], None]] = []
_methods: dict[str, dict[str, Method[Any, Any]]] = {}
_commands: dict[str, Commands] = {}


def modules() -> list[str]:
    """The modules with the rows of all nouns, of methods and of commands."""
    nouns = (module for module, _ in GROUPS.values())
    return sorted({f"icd.{module}" for module in (*METHODS.values(), *SINGLES.values(), *nouns)})


# --- methods ---


def find(name: str) -> Method[Any, Any] | None:
    noun = name.partition(".")[0]
    return table(noun).get(name) if noun in METHODS else None


def table(noun: str) -> dict[str, Method[Any, Any]]:
    """The methods of a noun by name; two of the same name are refused when the module loads."""
    if noun not in _methods:
        rows = _rows(METHODS[noun])
        found = [r for r in rows if isinstance(r, Method) and r.name.partition(".")[0] == noun]
        by_name = {row.name: row for row in found}
        assert len(by_name) == len(found), f"a method of {noun} is defined twice"
        _methods[noun] = by_name
    return _methods[noun]


def every() -> list[Method[Any, Any]]:
    return [method for noun in METHODS for method in table(noun).values()]


# --- commands ---


def noun(words: list[str]) -> str | None:
    """The noun that a command line begins with, the longer one if there are two."""
    first = ALIASES.get(words[0], words[0])
    return next((n for n in (" ".join([first, *words[1:2]]), first) if n in GROUPS), None)


def verbs(noun: str) -> Commands:
    """The commands below a noun, by name."""
    if noun not in _commands:
        rows = [row for row in _typed(GROUPS[noun][0]) if row.command.rpartition(" ")[0] == noun]
        _commands[noun] = Commands(rows)
    return _commands[noun]


def below(noun: str) -> list[str]:
    """The nouns that stand below another one, by their last word."""
    return [name.rpartition(" ")[2] for name in GROUPS if name.rpartition(" ")[0] == noun]


def single(name: str) -> Leaf:
    if name not in _commands:
        _commands[name] = Commands([r for r in _typed(SINGLES[name]) if r.command == name])
    return _commands[name][name]


def commands() -> dict[str, Leaf]:
    """All commands by their full name."""
    found = {f"{noun} {verb}": command for noun in GROUPS for verb, command in verbs(noun).items()}
    return found | {name: single(name) for name in SINGLES}


def _typed(module: str) -> list[Typed]:
    """The rows of a module that can be typed."""
    return [row for row in _rows(module) if isinstance(row, Verb | Command)]


def _rows(module: str) -> list[Any]:
    rows: list[Any] = import_module(f"icd.{module}").VERBS
    for look in after_load:
        look()
    return rows
