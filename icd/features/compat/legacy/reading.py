"""Reading legacy files, in directories where anybody may plant anything.

Promises
    - nothing is followed, waited for or believed: a file is read only if it is a regular one of
      our own with one name, opened without following links and without blocking, and bounded;
    - a file that changes while it is read is not taken;
    - every file is either read or refused with a reason; no name can break that.

An empty directory is as good a guard as an empty file: careful hooks use `mkdir`, because it is
atomic and does not follow links.
"""

import errno
import os
import stat

from msgspec import Struct

from icd.errors import IcError
from icd.features.compat.legacy import envelopes
from icd.features.compat.legacy.finding import Found
from icd.values import payloads
from icd.values import validation as names

# A payload's limit, and room for an envelope and for white space around it.
FILE_BYTES = payloads.PAYLOAD_BYTES + 64 * 1024

_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


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


def read(found: Found) -> Entry | Refused:
    """What a file says, or why nobody should listen."""
    try:
        scope_id = found.scope.decode()
        names.check_scope(scope_id)
        if found.pattern.interval_s is not None:
            return Entry(found, scope_id, None, _guard(found.path))
        content, identity = _content(found.path)
        if found.pattern.envelope:
            content = envelopes.payload(content)
        return Entry(found, scope_id, payloads.check(content), identity)
    except UnicodeDecodeError:
        return Refused(found, "its name is not UTF-8")
    except envelopes.Mirrored:
        return Refused(found, "intercore's own mirror wrote it", mirrored=True)
    except (Unfit, envelopes.NotAnEnvelope) as exc:
        return Refused(found, str(exc))
    except IcError as exc:
        return Refused(found, exc.message)
    except OSError as exc:
        gone = exc.errno == errno.ENOENT
        return Refused(found, "it is gone" if gone else f"cannot be read: {exc.strerror}")


def _guard(path: bytes) -> Identity:
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode):
        _judge(status)
    elif status.st_uid != os.geteuid():
        raise Unfit("belongs to another user")
    elif os.listdir(path):
        raise Unfit("is a directory that is not empty")
    return identity(status)


def _content(path: bytes) -> tuple[bytes, Identity]:
    _judge(os.lstat(path))  # before it is opened: a pipe or a device would notice
    fd = os.open(path, _OPEN)
    try:
        before = os.fstat(fd)
        _judge(before)
        content = _read(fd)
        if identity(os.fstat(fd)) != identity(before):
            raise Unfit("changed while it was read")
    finally:
        os.close(fd)
    return content, identity(before)


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


def identity(status: os.stat_result) -> Identity:
    return Identity(
        status.st_dev,
        status.st_ino,
        stat.S_IFMT(status.st_mode),
        status.st_size,
        status.st_mtime_ns,
    )


def is_mirrored(found: Found) -> bool:
    """Whether intercore wrote it itself, for others to read: then it is no legacy."""
    if not found.pattern.envelope:
        return False
    file = read(found)
    return isinstance(file, Refused) and file.mirrored
