"""Which module holds which command; a module is loaded when its noun is first used."""

from importlib import import_module

import click

# Nouns with verbs or other nouns below them, then commands that stand alone; in the order of the
# usage text.
GROUPS = {
    "state": ("state", "small JSON documents by key and scope"),
    "sentinel": ("sentinels", "throttle guards: one claim per interval"),
    "events": ("events", "the log of everything that happened"),
    "events cursor": ("cursors", "how far consumers of events have read"),
    "interspect": ("interspect", "events about agents"),
    "run": ("runs", "what agents work on, and in which phase it is"),
    "run agent": ("agents", "who works on a run"),
    "run artifact": ("artifacts", "what a run has produced"),
    "gate": ("gates", "whether a run may go on to its next phase"),
    "dispatch": ("dispatches", "agents that were started, and what came of them"),
    "lock": ("locks", "locks between processes, without a database"),
    "lease": ("leases", "claims of work that outlive processes"),
    "compat": ("compat", "the way over from legacy temporary files"),
    "discovery": ("discoveries", "what scanners have found"),
    "hooks": ("hooks", "programs of the project that run after a commit"),
    "config": ("config", "the settings"),
    "db": ("db", "the database file itself"),
    "service": ("service", "the daemon as a service of systemd"),
}
SINGLES = {
    "init": "database",
    "health": "database",
    "version": "database",
    "backup": "backups",
    "restore": "backups",
    "export": "dumps",
    "import": "dumps",
    "hold": "hold",
    "wait": "wait",
    "statusline": "statusline",
    "ping": "daemon",
    "status": "daemon",
    "metrics": "metrics",
    "doctor": "doctor",
    "trust": "trust",
    "lib-path": "library",
    "completion": "completion",
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
    commands: list[click.Command] = import_module(f"icd.cli.{module}").COMMANDS
    return {str(command.name): command for command in commands}
