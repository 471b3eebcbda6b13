"""Settings: read once, frozen, and strict about what they do not know.

`~/.config/intercore/config.toml` for the user, `.clavain/intercore.toml` for one project; the
project's file wins.  Both hosts read them the same way.
"""

import os
import re
import stat
from typing import Annotated, Literal

import msgspec

from icd.errors import Misconfigured

USER_FILE = ".config/intercore/config.toml"
PROJECT_FILE = "intercore.toml"
FILE_CHARACTERS = 65_536


# What a namespace, a channel or a type may be called: it becomes part of a path.
_Word = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}\Z")]
_Path = Annotated[
    str,
    msgspec.Meta(
        pattern=r"\A[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}/[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}\Z"
    ),
]


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


class Mirror(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which rows of state are mirrored to files that other programs read."""

    enabled: bool = True
    # Else the daemon's $INTERBAND_ROOT, else ~/.interband.
    root: Annotated[str, msgspec.Meta(pattern=r"\A(/[^\0]*)?\Z")] = ""
    channels: dict[str, Channel] = {}

    def __post_init__(self) -> None:
        for key, channel in self.channels.items():
            if channel.path is None and key not in CHANNELS:
                raise ValueError(f"the channel `{key}` needs a path")


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a person may change, with the defaults that serve everybody else."""

    # "full" survives power loss; "normal" survives every crash of a process.
    durability: Literal["normal", "full"] = "normal"
    # How long a database must be quiet before the daemon prunes and checkpoints it.
    idle_seconds: Annotated[float, msgspec.Meta(ge=0.05, le=86_400)] = 2.0
    # Of the backups that intercore names itself, so many are kept beside a database.
    backups_kept: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 5
    mirror: Mirror = Mirror()


DEFAULTS = Settings()


def load(*files: str | None) -> Settings:
    """Merge the files that exist, the user's before the project's; a later one wins."""
    values: dict[str, object] = {}
    for number, file in enumerate(files):
        if file is not None and os.path.exists(file):
            found = _read(file)
            if number:
                _refuse_root(found, file)
            _merge(values, found)
    return msgspec.convert(values, Settings) if values else DEFAULTS


def _merge(values: dict[str, object], found: dict[str, object]) -> None:
    """Table by table: a project that says one thing about the mirror keeps the rest."""
    for name, value in found.items():
        known = values.get(name)
        if isinstance(known, dict) and isinstance(value, dict):
            _merge(known, value)
        else:
            values[name] = value


def _refuse_root(found: dict[str, object], file: str) -> None:
    """A project may come from anywhere: where files are written is for the user to say."""
    mirror = found.get("mirror")
    if isinstance(mirror, dict) and "root" in mirror:
        raise Misconfigured(
            f"{file}: mirror.root can be set for all projects only",
            hint=f"set it in ~/{USER_FILE}",
        )


def user_file(home: str | None) -> str | None:
    return os.path.join(home, USER_FILE) if home else None


def project_file(database: str) -> str:
    return os.path.join(os.path.dirname(database), PROJECT_FILE)


def _read(file: str) -> dict[str, object]:
    # Imported late: most machines have no such file, and every direct call pays for an import.
    import tomllib

    try:
        text = _text(file)
        values = tomllib.loads(text)
        msgspec.convert(values, Settings)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as exc:
        raise Misconfigured(f"{file}: {exc}") from exc
    except msgspec.ValidationError as exc:
        raise Misconfigured(f"{file}:{_line(text, str(exc))}: {exc}") from exc
    return values


def _text(file: str) -> str:
    """A small regular file; a project may come from anywhere, and hold a pipe or worse."""
    with open(file, encoding="utf-8", opener=_open_at_once) as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise Misconfigured(f"{file} is not a regular file")
        text = stream.read(FILE_CHARACTERS + 1)
    if len(text) > FILE_CHARACTERS:
        raise Misconfigured(f"{file} is longer than {FILE_CHARACTERS} characters")
    return text


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def _line(text: str, complaint: str) -> int:
    """The line that the complaint is about, found by the key it names."""
    named_paths = re.findall(r"`(?:\$\.)?([\w.\[\]-]+)`", complaint)
    for key in [key for path in named_paths for key in reversed(re.findall(r"[\w-]+", path))]:
        named = re.compile(rf"""\s*(\[[\w.-]*)?["']?\b{re.escape(key)}["']?\s*[=\].]""")
        for number, line in enumerate(text.splitlines(), start=1):
            if named.match(line):
                return number
    return 1
