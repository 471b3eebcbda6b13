"""The units of systemd: what they say for this installation, and what lies in the user's directory.

Promises
    - a file without our first line is somebody else's, and neither changed nor removed by us;
    - a file is replaced as a whole, so that systemd never reads half of one;
    - the same installation always makes the same text, so that "current" can be told.
"""

import contextlib
import os
from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct

from icd.errors import Misconfigured, from_os

SOCKET, SERVICE, SANDBOX = "icd.socket", "icd.service", "icd.service.d/sandbox.conf"
MARK = "# Written by 'icctl service install"
# Beside the packages in a checkout, inside this one when installed; as the library for bash.
_PLACES = [os.path.join(os.path.dirname(__file__), up, "systemd") for up in ("../..", "../../..")]

Found = Literal["missing", "current", "outdated", "foreign"]


class Unit(Struct, frozen=True):
    """A file of ours: where it belongs, what it must say, and what is there."""

    name: str
    path: str
    text: str
    found: Found


def directory(env: Mapping[str, str]) -> str:
    """Where the user's own units lie."""
    config = env.get("XDG_CONFIG_HOME", "")
    home = env.get("HOME", "")
    if not config.startswith("/") and not home.startswith("/"):
        raise Misconfigured("HOME is not set", hint="set it to your home directory")
    return os.path.join(config if config.startswith("/") else f"{home}/.config", "systemd/user")


def look(env: Mapping[str, str], python: str) -> list[Unit]:
    """All units, the optional one last."""
    place = directory(env)
    texts = {name: text(name, python) for name in (SOCKET, SERVICE, SANDBOX)}
    return [
        Unit(name, path, wanted, _found(path, wanted))
        for name, wanted in texts.items()
        for path in [os.path.join(place, name)]
    ]


def chosen(units: Iterable[Unit], *, sandbox: bool) -> list[Unit]:
    """Those that are to be there: the sandbox if it is asked for, or was before."""
    return [u for u in units if u.name != SANDBOX or sandbox or u.found in {"current", "outdated"}]


def text(name: str, python: str) -> str:
    place = next(filter(os.path.isdir, _PLACES), _PLACES[0])
    with open(os.path.join(place, name), encoding="utf-8") as file:
        return file.read().replace("@PYTHON@", quoted(python))


def quoted(path: str) -> str:
    """A path as the first word of ExecStart=, which may hold spaces, but not everything."""
    if any(char in "\"'\\" or not char.isprintable() for char in path):
        raise Misconfigured(
            f"systemd starts no program with quotes or the like in its path: {path}",
            hint="install intercore in another directory",
        )
    return '"' + path.replace("%", "%%") + '"'


def write(unit: Unit) -> None:
    draft = f"{unit.path}.{os.getpid()}.tmp"
    try:
        os.makedirs(os.path.dirname(unit.path), exist_ok=True)
        try:
            with open(draft, "w", encoding="utf-8") as file:
                file.write(unit.text)
                os.fchmod(file.fileno(), 0o644)
            os.replace(draft, unit.path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(draft)
            raise
    except OSError as exc:
        raise from_os(exc, f"write {unit.path}") from exc


def remove(unit: Unit) -> None:
    try:
        os.unlink(unit.path)
    except FileNotFoundError:
        return
    except OSError as exc:
        raise from_os(exc, f"remove {unit.path}") from exc
    if unit.name == SANDBOX:
        with contextlib.suppress(OSError):  # it holds drop-ins of the user's own
            os.rmdir(os.path.dirname(unit.path))


def _found(path: str, wanted: str) -> Found:
    if not os.path.lexists(path):
        return "missing"
    if not (os.path.isfile(path) or os.path.isdir(path)):
        return "foreign"  # a link to nowhere, a mask, a pipe: whoever made it has plans for it
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            there = file.read()
    except OSError as exc:
        raise from_os(exc, f"read {path}") from exc
    if there == wanted:
        return "current"
    return "outdated" if there.startswith(MARK) else "foreign"
