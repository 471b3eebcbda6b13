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


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a person may change, with the defaults that serve everybody else."""

    # "full" survives power loss; "normal" survives every crash of a process.
    durability: Literal["normal", "full"] = "normal"
    # How long a database must be quiet before the daemon prunes and checkpoints it.
    idle_seconds: Annotated[float, msgspec.Meta(ge=0.05, le=86_400)] = 2.0


DEFAULTS = Settings()


def load(*files: str | None) -> Settings:
    """Merge the files that exist; a later one wins."""
    values: dict[str, object] = {}
    for file in files:
        if file is not None and os.path.exists(file):
            values.update(_read(file))
    return msgspec.convert(values, Settings) if values else DEFAULTS


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
    for key in re.findall(r"`(?:\$\.)?([\w-]+)`", complaint):
        named = re.compile(rf"""\s*\[*\s*["']?{re.escape(key)}["']?\s*[=\].]""")
        for number, line in enumerate(text.splitlines(), start=1):
            if named.match(line):
                return number
    return 1
