"""Which module holds which command; a module is loaded when its noun is first used."""

from importlib import import_module

import click

# Nouns with verbs or other nouns below them, then commands that stand alone; in the order of the
# usage text.
GROUPS = {
    "state": ("features.state.commands", "small JSON documents by key and scope"),
    "sentinel": ("features.sentinels.commands", "throttle guards: one claim per interval"),
    "events": ("features.events.commands", "the log of everything that happened"),
    "events cursor": ("features.events.cursor_commands", "how far consumers of events have read"),
    "interspect": ("features.interspect.commands", "events about agents"),
    "run": ("features.runs.commands", "what agents work on, and in which phase it is"),
    "run agent": ("features.runs.agent_commands", "who works on a run"),
    "run artifact": ("features.runs.artifact_commands", "what a run has produced"),
    "gate": ("features.gates.commands", "whether a run may go on to its next phase"),
    "dispatch": ("features.dispatches.commands", "agents that were started, and what came of them"),
    "lock": ("features.locks.commands", "locks between processes, without a database"),
    "lease": ("features.leases.commands", "claims of work that outlive processes"),
    "compat": ("features.compat.commands", "the way over from legacy temporary files"),
    "discovery": ("features.discoveries.commands", "what scanners have found"),
    "hooks": ("features.hooks.commands", "programs of the project that run after a commit"),
    "config": ("features.config.commands", "the settings"),
    "db": ("features.database.db_commands", "the database file itself"),
    "service": ("admin.service.commands", "the daemon as a service of systemd"),
}
SINGLES = {
    "init": "features.database.commands",
    "health": "features.database.commands",
    "version": "features.database.commands",
    "backup": "features.database.backup_commands",
    "restore": "features.database.backup_commands",
    "export": "features.database.dump_commands",
    "import": "features.database.dump_commands",
    "hold": "features.locks.hold",
    "wait": "features.events.wait",
    "statusline": "features.statusline.commands",
    "ping": "features.daemon.commands",
    "status": "features.daemon.commands",
    "metrics": "features.daemon.metrics",
    "doctor": "admin.doctor.commands",
    "trust": "features.trust.commands",
    "lib-path": "features.library.commands",
    "completion": "features.completion.commands",
}


def noun(words: list[str]) -> str | None:
    """The noun that a command line begins with, the longer one if there are two."""
    return next((n for n in (" ".join(words[:2]), words[0]) if n in GROUPS), None)


def verbs(noun: str) -> dict[str, click.Command]:
    """The commands below a noun, by name."""
    return _commands(GROUPS[noun][0])


def below(noun: str) -> list[str]:
    """The nouns that stand below another one, by their last word."""
    return [name.rpartition(" ")[2] for name in GROUPS if name.rpartition(" ")[0] == noun]


def single(name: str) -> click.Command:
    return _commands(SINGLES[name])[name]


def every() -> dict[str, click.Command]:
    """All commands by their full name."""
    found = {f"{noun} {verb}": command for noun in GROUPS for verb, command in verbs(noun).items()}
    return found | {name: single(name) for name in SINGLES}


def _commands(module: str) -> dict[str, click.Command]:
    commands: list[click.Command] = import_module(f"icd.{module}").COMMANDS
    return {str(command.name): command for command in commands}
