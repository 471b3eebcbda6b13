"""Which legacy files there are, by name alone: nothing is opened."""

import errno
import os
import re
from collections.abc import Iterator

from msgspec import Struct

from icd.errors import UnreadableInput
from icd.features.compat.legacy.patterns import (
    CHANNELS,
    FILES,
    FOLDER,
    INTERBAND,
    Pattern,
    envelopes,
)

# Hidden files, and the turns that lib-intercore.sh takes at a guard.
_IGNORED = re.compile(rb"\A\.|\.due-[0-9]+\Z")


class Found(Struct, frozen=True):
    """A name that matches a pattern; nothing is known about the file yet but its time."""

    pattern: Pattern
    path: bytes
    scope: bytes
    mtime_ms: int


def find(env: dict[str, str], cwd: str, key: str | None = None) -> list[Found]:
    """Everything that matches, newest first: where two files mean one row, the newer one wins."""
    folder = os.path.join(cwd, env.get("INTERCORE_LEGACY_DIR") or FOLDER)
    found = list(_matches(folder, [p for p in FILES if key in (None, p.key)]))
    root = _interband_root(env)
    for channel, path in CHANNELS.items():
        if root is not None and key in (None, channel):
            place = os.path.join(cwd, root, path)
            found += _matches(place, [envelopes(channel)], optional=True)
    return sorted(found, key=lambda file: (-file.mtime_ms, file.path))


def _interband_root(env: dict[str, str]) -> str | None:
    home = env.get("HOME")
    return env.get("INTERBAND_ROOT") or (os.path.join(home, INTERBAND) if home else None)


def _matches(folder: str, patterns: list[Pattern], *, optional: bool = False) -> Iterator[Found]:
    try:
        with os.scandir(os.fsencode(folder)) as files:
            for file in files:
                for pattern in patterns:
                    scope = pattern.scope(file.name)
                    if scope is not None and not _IGNORED.search(file.name):
                        yield Found(pattern, file.path, scope, _mtime_ms(file))
    except OSError as exc:
        if not (optional and exc.errno in (errno.ENOENT, errno.ENOTDIR)):
            raise UnreadableInput(
                f"cannot read the directory {shown(os.fsencode(folder))}: {exc.strerror}",
                hint="check INTERCORE_LEGACY_DIR and INTERBAND_ROOT",
            ) from exc


def _mtime_ms(file: os.DirEntry[bytes]) -> int:
    try:
        return _ms(file.stat(follow_symlinks=False).st_mtime_ns)
    except OSError:  # it is gone by now; whoever reads it will say so
        return 0


def shown(path: bytes) -> str:
    """A path on one line of text, whatever bytes it is made of."""
    text = path.decode("utf-8", "surrogateescape")
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    if "\udc80" <= char <= "\udcff":  # a byte that is no text
        return f"\\x{ord(char) - 0xDC00:02x}"
    return char.encode("unicode_escape").decode()


def _ms(nanoseconds: int) -> int:
    return max(nanoseconds // 1_000_000, 0)
