"""Which module holds which command; a module is loaded when its noun is first used."""

from importlib import import_module

import click

# Nouns with verbs below them, then commands that stand alone; in the order of the usage text.
GROUPS = {
    "state": ("state", "small JSON documents by key and scope"),
    "sentinel": ("sentinels", "throttle guards: one claim per interval"),
    "compat": ("compat", "the way over from legacy temporary files"),
    "hooks": ("hooks", "programs of the project that run after a commit"),
    "config": ("config", "the settings"),
    "db": ("db", "the database file itself"),
}
SINGLES = {
    "init": "database",
    "health": "database",
    "version": "database",
    "backup": "backups",
    "restore": "backups",
    "export": "dumps",
    "import": "dumps",
    "statusline": "statusline",
    "ping": "daemon",
    "status": "daemon",
    "metrics": "metrics",
    "lib-path": "library",
    "completion": "completion",
}


def verbs(noun: str) -> dict[str, click.Command]:
    """The commands below a noun, by name."""
    return _commands(GROUPS[noun][0])


def single(name: str) -> click.Command:
    return _commands(SINGLES[name])[name]


def every() -> dict[str, click.Command]:
    """All commands by their full name."""
    found = {f"{noun} {verb}": command for noun in GROUPS for verb, command in verbs(noun).items()}
    return found | {name: single(name) for name in SINGLES}


def _commands(module: str) -> dict[str, click.Command]:
    commands: list[click.Command] = import_module(f"icd.cli.{module}").COMMANDS
    return {str(command.name): command for command in commands}
