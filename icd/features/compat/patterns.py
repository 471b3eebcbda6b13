"""Which legacy files there are and what they mean, by name alone: nothing is opened.

A *document* holds JSON; it becomes state.  A *guard* means something by existing since its mtime;
it becomes a sentinel, once-only (interval 0) or with the interval that its hooks ask with.  The
part of the name where the pattern has its `*` is the scope.

Only a client looks at them: files are the caller's, and so are its rights to them.
"""

import errno
import os
import re
from collections.abc import Iterator

from msgspec import Struct

from icd import config
from icd.errors import UnreadableInput

FOLDER = "/tmp"
INTERBAND = ".interband"  # in the home directory
# Hidden files, and the turns that lib-intercore.sh takes at a guard.
_IGNORED = re.compile(rb"\A\.|\.due-[0-9]+\Z")


class Pattern(Struct, frozen=True):
    """`interval_s`: None for a document.  `unnamed`: the scope where the `*` is empty."""

    key: str
    prefix: bytes
    suffix: bytes = b""
    interval_s: int | None = None
    ttl_ms: int = 0
    unnamed: bytes = b""
    envelope: bool = False

    def scope(self, name: bytes) -> bytes | None:
        """The scope that a file of this name is about; None if it is another kind of file."""
        if not (name.startswith(self.prefix) and name.endswith(self.suffix)):
            return None
        if len(name) < len(self.prefix) + len(self.suffix):
            return None
        return name[len(self.prefix) : len(name) - len(self.suffix)] or self.unnamed


# In the legacy directory.
FILES = [
    # All sessions share one; its hooks ask with the scope "global".
    Pattern("autopub", b"clavain-autopub", b".lock", interval_s=60, unnamed=b"global"),
    Pattern("bead", b"clavain-bead-", b".json"),
    Pattern("catalog_remind", b"clavain-catalog-remind-", b".lock", interval_s=0),
    Pattern("compound_throttle", b"clavain-compound-last-", interval_s=300),
    # A cache: its readers take nothing older than a minute.
    Pattern("discovery_brief", b"clavain-discovery-brief-", b".cache", ttl_ms=60_000),
    Pattern("dispatch", b"clavain-dispatch-", b".json"),
    Pattern("drift_throttle", b"clavain-drift-last-", interval_s=600),
    # Touched by its hooks and never read: a guard, whatever its name suggests.
    Pattern("handoff", b"clavain-handoff-", interval_s=0),
    Pattern("stop", b"clavain-stop-", interval_s=0),
]
# Below the interband root, <namespace>/<channel>/<scope>.json, the payload in an envelope.
CHANNELS = {key: channel.path or "" for key, channel in config.CHANNELS.items()}

KEYS = sorted({pattern.key for pattern in FILES} | CHANNELS.keys())


class Found(Struct, frozen=True):
    """A name that matches a pattern; nothing is known about the file yet but its time."""

    pattern: Pattern
    path: bytes
    scope: bytes
    mtime_ms: int

    @property
    def key(self) -> str:
        return self.pattern.key

    @property
    def shown(self) -> str:
        return shown(self.path)


def find(env: dict[str, str], cwd: str, key: str | None = None) -> list[Found]:
    """Everything that matches, newest first: where two files mean one row, the newer one wins."""
    folder = os.path.join(cwd, env.get("INTERCORE_LEGACY_DIR") or FOLDER)
    found = list(_matches(folder, [p for p in FILES if key in (None, p.key)]))
    home = env.get("HOME")
    root = env.get("INTERBAND_ROOT") or (os.path.join(home, INTERBAND) if home else None)
    for channel, path in CHANNELS.items():
        if root is not None and key in (None, channel):
            envelopes = Pattern(channel, b"", b".json", envelope=True)
            found += _matches(os.path.join(cwd, root, path), [envelopes], optional=True)
    return sorted(found, key=lambda file: (-file.mtime_ms, file.path))


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
        return max(file.stat(follow_symlinks=False).st_mtime_ns // 1_000_000, 0)
    except OSError:  # it is gone by now; reading it tells so
        return 0


def shown(path: bytes) -> str:
    """A path on one line of text, whatever bytes it is made of."""
    text = path.decode("utf-8", "surrogateescape")
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    if "\udc80" <= char <= "\udcff":  # a byte that is no text
        return f"\\x{ord(char) - 0xDC00:02x}"
    return char.encode("unicode_escape").decode()
