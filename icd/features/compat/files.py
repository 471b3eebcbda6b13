"""Legacy files: found by name, read, and removed, where other users may plant anything.

A *document* holds JSON; it becomes state.  A *guard* means something by existing since its mtime;
it becomes a sentinel, once-only (interval 0) or with the interval that its hooks ask with.  The
part of the name where the pattern has its `*` is the scope.

Only a client looks at them: files are the caller's, and so are its rights to them.

Promises
    - nothing is followed, waited for or believed: a file is read only if it is a regular one of
      our own with one name, opened without following links and without blocking, and bounded;
    - a file that changes while it is read is not taken;
    - every file is either read or refused with a reason; no name can break that;
    - only the file that was read is removed.

An empty directory is as good a guard as an empty file: careful hooks use `mkdir`, because it is
atomic and does not follow links.

A producer may write again between the look and the removal.  So the file is first renamed to a
secret name; what has been moved is then looked at again, and put back unless it is what was
imported.  A producer that creates the file anew meanwhile keeps its own.  A lease proves that no
process still has it open for writing; file systems without leases leave a moment in which such a
writer's last words are lost.
"""

import contextlib
import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterator

import msgspec
from msgspec import Struct

from icd import config
from icd.errors import IcError, UnreadableInput
from icd.features import interband
from icd.files import opened
from icd.values import payloads
from icd.values.validation import check_scope

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


# A payload's limit, and room for an envelope and for white space around it.
FILE_BYTES = payloads.PAYLOAD_BYTES + 64 * 1024


class Identity(Struct, frozen=True):
    """What tells a file from one that has taken its place or was written again."""

    dev: int
    ino: int
    kind: int
    size: int
    mtime_ns: int


class Entry(Struct, frozen=True):
    """A file that may be imported; `payload` is None for a guard."""

    found: Found
    scope_id: str
    payload: str | None
    identity: Identity

    @property
    def mtime_ms(self) -> int:
        return max(self.identity.mtime_ns // 1_000_000, 0)

    @property
    def table(self) -> str:
        return "sentinels" if self.payload is None else "state"

    @property
    def forgotten(self) -> int:
        """Bytes of a guard: they mean nothing to it, and are not imported."""
        regular = self.identity.kind == stat.S_IFREG
        return self.identity.size if self.payload is None and regular else 0


class Refused(Struct, frozen=True):
    """`mirrored`: intercore wrote it itself, so it is no legacy."""

    found: Found
    reason: str
    mirrored: bool = False


class Unfit(Exception):
    """Why a file is refused."""


class Mirrored(Unfit):
    """It says what the database said; importing it would be a circle."""


# --- reading --------------------------------------------------------------------------------------


def read(found: Found) -> Entry | Refused:
    """What a file says, or why it is refused."""
    try:
        scope_id = found.scope.decode()
        check_scope(scope_id)
        if found.pattern.interval_s is not None:
            return Entry(found, scope_id, None, _guard(found.path))
        content, identity = _content(found.path)
        if found.pattern.envelope:
            content = unwrapped(content)
        return Entry(found, scope_id, payloads.check(content), identity)
    except UnicodeDecodeError:
        return Refused(found, "its name is not UTF-8")
    except Unfit as exc:
        return Refused(found, str(exc), isinstance(exc, Mirrored))
    except IcError as exc:
        return Refused(found, exc.message)
    except OSError as exc:
        gone = exc.errno == errno.ENOENT
        return Refused(found, "it is gone" if gone else f"cannot be read: {exc.strerror}")


def is_mirrored(found: Found) -> bool:
    """Whether intercore wrote it itself, for others to read: then it is no legacy."""
    if not found.pattern.envelope:
        return False
    file = read(found)
    return isinstance(file, Refused) and file.mirrored


class _Envelope(Struct):
    """JSON around a payload, as the statusline reads it."""

    version: str
    payload: msgspec.Raw
    source: object = None


def unwrapped(content: bytes) -> bytes:
    """The payload as it is written in an interband envelope."""
    try:
        envelope = msgspec.json.decode(content, type=_Envelope)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise Unfit("is not an interband envelope") from None
    if envelope.source == interband.SOURCE:
        raise Mirrored("intercore's own mirror wrote it")
    if envelope.version.partition(".")[0] != "1":
        raise Unfit("is an interband envelope of another version than 1")
    found = bytes(envelope.payload)
    if not found.startswith(b"{"):
        raise Unfit("is an interband envelope whose payload is not an object")
    return found


def _guard(path: bytes) -> Identity:
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode):
        _judge(status)
    elif status.st_uid != os.geteuid():
        raise Unfit("belongs to another user")
    elif os.listdir(path):
        raise Unfit("is a directory that is not empty")
    return _identity(status)


def _content(path: bytes) -> tuple[bytes, Identity]:
    _judge(os.lstat(path))  # before it is opened: a pipe or a device would notice
    with opened(path, os.O_RDONLY | os.O_NOCTTY) as fd:
        before = os.fstat(fd)
        _judge(before)
        content = _read(fd)
        if _identity(os.fstat(fd)) != _identity(before):
            raise Unfit("changed while it was read")
    return content, _identity(before)


def _judge(status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise Unfit("is a symbolic link")
    if status.st_uid != os.geteuid():
        raise Unfit("belongs to another user")
    if stat.S_ISDIR(status.st_mode):
        raise Unfit("is a directory")
    if not stat.S_ISREG(status.st_mode):
        raise Unfit("is not a regular file")
    if status.st_nlink > 1:
        raise Unfit("has a second name (a hard link)")


def _read(fd: int) -> bytes:
    """Everything, unless it is too much."""
    content = b""
    while chunk := os.read(fd, FILE_BYTES + 1 - len(content)):
        content += chunk
        if len(content) > FILE_BYTES:
            raise Unfit(f"is larger than {FILE_BYTES} bytes")
    return content


def _identity(status: os.stat_result) -> Identity:
    kind = stat.S_IFMT(status.st_mode)
    return Identity(status.st_dev, status.st_ino, kind, status.st_size, status.st_mtime_ns)


# --- removing -------------------------------------------------------------------------------------


def remove(entry: Entry) -> str | None:
    """Remove the file; None if it is gone, else why it was left."""
    path = entry.found.path
    aside = os.path.join(os.path.dirname(path), b".icctl-" + os.urandom(8).hex().encode())
    try:
        os.rename(path, aside)
    except FileNotFoundError:
        return None
    except OSError as exc:
        return f"cannot be removed: {exc.strerror}"
    try:
        return _remove(entry, aside)
    except OSError as exc:
        return f"cannot be removed: {exc.strerror}"
    finally:
        if os.path.lexists(aside):
            _put_back(aside, path)


def _remove(entry: Entry, aside: bytes) -> str | None:
    if _identity(os.lstat(aside)) != entry.identity:
        return "has changed since it was read"
    if entry.identity.kind == stat.S_IFDIR:
        os.rmdir(aside)
        return None
    with opened(aside) as fd:
        if _is_being_written(fd) or _identity(os.fstat(fd)) != entry.identity:
            return "is being written"
        os.unlink(aside)
    return None


def _is_being_written(fd: int) -> bool:
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as exc:
        return exc.errno == errno.EAGAIN
    return False


def _put_back(aside: bytes, path: bytes) -> None:
    """Where it was, unless a newer one is there by now."""
    if not stat.S_ISREG(os.lstat(aside).st_mode):
        try:
            os.rename(aside, path)
        except OSError:  # a guard stands there again
            with contextlib.suppress(OSError):
                os.rmdir(aside)
        return
    try:
        os.link(aside, path)
    except FileExistsError:
        pass
    except OSError:  # a file system without links
        os.rename(aside, path)
        return
    os.unlink(aside)
