"""Where settings come from: two files, the environment, flags; a later one wins."""

import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from icd.config.settings import DEFAULTS, Settings
from icd.errors import Misconfigured
from icd.printable import spelled

if TYPE_CHECKING:
    from icd.config.files import File, Problem

USER_FILE = ".config/intercore/config.toml"
PROJECT_FILE = "intercore.toml"

# What the environment can set, too; `icd serve` has a flag for each.
VARIABLES = {"durability": "INTERCORE_DURABILITY", "idle_seconds": "INTERCORE_IDLE_SECONDS"}

# Settings of the one daemon, or of the user, not of a database.
OF_THE_DAEMON = {"exit_idle_seconds", "slow_ms", "hook_seconds", "auto_spawn", "vectors_max_mib"}

Given = dict[str, object]  # values by setting, judged


def load(
    user: str | None,
    project: str | None = None,
    given: Given | None = None,
    *,
    tell: Callable[[str], None] | None = None,
) -> Settings:
    """What the files say, the user's before the project's, and then what was given.

    `tell` is told in a sentence of what is ignored of a project's file.
    """
    values: dict[str, object] = {}
    for file in read(user, project):
        if file.problems:
            raise Misconfigured(str(file.problems[0]))
        _merge(values, file.values)
        if tell is not None and file.ignored:
            more = len(file.ignored) - 1
            tell(str(file.ignored[0]) + (f" (and {more} more)" if more else ""))
    values.update(given or {})
    return msgspec.convert(values, Settings) if values else DEFAULTS


def read(user: str | None, project: str | None) -> "Iterator[File]":
    """Those of the files that are there, each with all that is wrong in it.

    What a project's file says and may not say is not among its values.
    """
    # A link to nowhere is a mistake, too: its settings would silently not hold.
    user, project = (path if path and os.path.lexists(path) else None for path in (user, project))
    if user or project:
        # Most machines have no such file, and every direct call pays for an import.
        from icd.config import projects

        yield from projects.read(user, project)


def from_environment(env: Mapping[str, str]) -> Given:
    """An empty variable counts as unset."""
    given = {name: env.get(variable) for name, variable in VARIABLES.items()}
    return {
        name: _judged(name, text, f"${VARIABLES[name]}") for name, text in given.items() if text
    }


def check_environment(env: Mapping[str, str]) -> "list[Problem]":
    """Everything that is wrong, where `from_environment` stops at the first."""
    from icd.config.files import Problem

    found = []
    for variable in VARIABLES.values():
        try:
            from_environment({variable: env.get(variable, "")})
        except Misconfigured as exc:
            place, _, sentence = exc.message.partition(": ")
            found.append(Problem(place, None, sentence))
    return found


def from_flags(flags: Mapping[str, str | None]) -> Given:
    return {
        name: _judged(name, text, f"--{name.replace('_', '-')}")
        for name, text in flags.items()
        if text is not None
    }


def user_file(home: str | None) -> str | None:
    return os.path.join(home, USER_FILE) if home else None


def project_file(database: str) -> str:
    return os.path.join(os.path.dirname(database), PROJECT_FILE)


def _merge(values: dict[str, object], found: dict[str, object]) -> None:
    """Table by table: a project that says one thing about the mirror keeps the rest."""
    for name, value in found.items():
        known = values.get(name)
        if isinstance(known, dict) and isinstance(value, dict):
            _merge(known, value)
        else:
            values[name] = value


def _judged(name: str, text: str, place: str) -> object:
    try:
        return getattr(msgspec.convert({name: spelled(text)}, Settings, strict=False), name)
    except msgspec.ValidationError as exc:
        sentence = str(exc).partition(" - at ")[0]
        raise Misconfigured(f"{place}: {sentence}", hint="correct it, or leave it out") from exc
