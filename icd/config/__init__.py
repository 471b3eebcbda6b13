"""Settings: read once, frozen, and strict about what they do not know.

In rising order: `~/.config/intercore/config.toml` for the user, `.clavain/intercore.toml` for one
project, the environment, and flags.  The environment and the flags are those of the process that
opens the database.  Both hosts read everything the same way.

`Settings` declares what can be set, as one frozen struct with defaults; files.py reads the two
files, and `load` merges the four sources.  A mistake is an error that names its place, never a
default that is silently used.

A project may come from a stranger, so its file says only what holds for its own database: it names
no place, starts nothing, and decides nothing for the daemon of all projects.  Its text is bounded
and measured (shape.py) before it is parsed, because some documents of 64 KiB take a minute to
parse.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from icd.errors import Misconfigured
from icd.printable import spelled

if TYPE_CHECKING:
    from icd.config.files import File, Problem


class Pattern(msgspec.Struct, frozen=True):
    """Of a setting that only a file can set, which is judged by it (files.py): every direct call
    would pay for msgspec's patterns, which are compiled at once."""

    regex: str


# What a namespace, a channel or a type may be called: it becomes part of a path.
_NAME = "[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}"
_Word = Annotated[str, Pattern(rf"\A{_NAME}\Z")]
_Path = Annotated[str, Pattern(rf"\A{_NAME}/{_NAME}\Z")]

_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Channel(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True
):
    """Where the rows of one key are mirrored to; what is left out is as `CHANNELS` has it."""

    enabled: bool = True
    # `<namespace>/<channel>`: two directories below the root.
    path: _Path | None = None
    # The `type` of the envelope; else the name of the channel.
    type: _Word | None = None
    # What the envelope names as its session: the row's scope, or the session that wrote the row.
    session: Literal["scope", "writer"] | None = None
    # A row that was not written for this long is no longer mirrored; 0: as long as the row lives.
    retention_seconds: Annotated[int, msgspec.Meta(ge=0, le=3_162_240_000)] | None = None


_DAY = 86_400

# What interline and its friends read, with the retention that interband gives each channel.
CHANNELS = {
    "dispatch": Channel(
        path="clavain/dispatch", type="dispatch", session="writer", retention_seconds=_DAY // 4
    ),
    "bead": Channel(path="interphase/bead", type="bead_phase"),
    "lane": Channel(path="interphase/lane", type="lane"),
    "coordination": Channel(
        path="interlock/coordination",
        type="coordination_signal",
        session="writer",
        retention_seconds=_DAY // 2,
    ),
    "pressure": Channel(path="intercheck/pressure", type="context_pressure"),
    "budget": Channel(path="interstat/budget", type="budget_alert"),
}
RETENTION_SECONDS = _DAY


def complete(key: str, given: Channel) -> Channel:
    """The channel of a key, with nothing left open."""
    usual = CHANNELS.get(key, Channel())
    path = given.path or usual.path or ""
    retentions = (given.retention_seconds, usual.retention_seconds, RETENTION_SECONDS)
    return Channel(
        enabled=given.enabled,
        path=path,
        type=given.type or usual.type or path.rpartition("/")[2],
        session=given.session or usual.session or "scope",
        retention_seconds=next(seconds for seconds in retentions if seconds is not None),
    )


class Mirror(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which rows of state are mirrored to files that other programs read."""

    # "auto": if the user named a directory, or there is a ~/.interband.  True: make that, too.
    enabled: bool | Literal["auto"] = "auto"
    # Else the daemon's $INTERBAND_ROOT, else ~/.interband.
    root: Annotated[str, Pattern(r"\A(/[^\0]*)?\Z")] = ""
    channels: dict[str, Channel] = {}


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a person may change, with defaults."""

    # "full" survives power loss; "normal" survives every crash of a process.
    durability: Literal["normal", "full"] = "normal"
    # How long a database must be quiet before the daemon prunes and checkpoints it.
    idle_seconds: Annotated[float, msgspec.Meta(ge=0.05, le=86_400)] = 2.0
    # A database that no call needs for so long is closed by the daemon.
    close_idle_seconds: Annotated[float, msgspec.Meta(ge=0.05, le=31_536_000)] = 600.0
    # Of the backups that intercore names itself, so many are kept beside a database.
    backups_kept: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 5
    # A daemon in the background, of systemd or not, leaves after so long without work; 0: never.
    exit_idle_seconds: Annotated[float, msgspec.Meta(ge=0, le=31_622_400)] = 3600.0
    # A call that takes longer gets a line in the daemon's log; of the daemon, not of a project.
    slow_ms: Annotated[int, msgspec.Meta(ge=1, le=86_400_000)] = 250
    # Events older than this, and all but the last so many, are pruned when the daemon looks after a
    # database; 0: never.  A century, and more than fits on a disk.
    events_keep_days: Annotated[int, msgspec.Meta(ge=0, le=36_600)] = 0
    events_keep_count: Annotated[int, msgspec.Meta(ge=0, le=2**62)] = 0
    # Discoveries that were dismissed longer ago are deleted then, too; 0: never.
    discoveries_keep_days: Annotated[int, msgspec.Meta(ge=0, le=36_600)] = 0
    # A hook that takes longer is killed.  Of the user, not of a project: it may be a stranger's.
    hook_seconds: Annotated[float, msgspec.Meta(ge=0.1, le=300)] = 5.0
    # New runs start their agents when they enter `executing`.  Of the user: it starts programs.
    auto_spawn: bool = False
    # Embeddings that the daemon keeps in memory for searches, of all databases together; of the
    # daemon, not of a project.  What does not fit is read from the database for each search.
    vectors_max_mib: Annotated[int, msgspec.Meta(ge=0, le=1_048_576)] = 512
    # The effective score at which each tier of discoveries starts; what is below all is discarded.
    tier_high: _Share = 0.8
    tier_medium: _Share = 0.5
    tier_low: _Share = 0.3
    # The effective score that a discovery needs to be promoted without force.
    promotion_threshold: _Share = 0.5
    # How far a signal moves the relevance of a discovery towards 1 or 0; 0: signals are records.
    feedback_learning_rate: _Share = 0.0
    mirror: Mirror = Mirror()


DEFAULTS = Settings()


# --- where they come from: a later one wins -------------------------------------------------------

USER_FILE = ".config/intercore/config.toml"
PROJECT_FILE = "intercore.toml"
LOG_FILE = "intercore/icd.log"

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


def read(user: str | None, project: str | None) -> Iterator[File]:
    """Those of the files that are there, each with all that is wrong in it.

    What a project's file says and may not say is not among its values.
    """
    # A link to nowhere is a mistake, too: its settings would silently not hold.
    user, project = (path if path and os.path.lexists(path) else None for path in (user, project))
    if user or project:
        # Most machines have no such file, and every direct call pays for an import.
        from icd.config import files

        yield from files.read(user, project)


def from_environment(env: Mapping[str, str]) -> Given:
    """An empty variable counts as unset."""
    given = {name: env.get(variable) for name, variable in VARIABLES.items()}
    return {
        name: _judged(name, text, f"${VARIABLES[name]}") for name, text in given.items() if text
    }


def check_environment(env: Mapping[str, str]) -> list[Problem]:
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


def log_file(env: Mapping[str, str]) -> str | None:
    """Where a daemon in the background logs to; a relative path counts as unset, as XDG has it."""
    state, home = env.get("XDG_STATE_HOME", ""), env.get("HOME", "")
    places = [state, os.path.join(home, ".local/state") if home else ""]
    return next((os.path.join(p, LOG_FILE) for p in places if p.startswith("/")), None)


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
        raise Misconfigured(f"{place}: {sentence}", hint="correct or remove it") from exc
