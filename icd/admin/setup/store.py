"""Files of an agent's configuration, and what we remember about those that we changed.

A project's directory is not trusted.  Below its root no link is followed, nothing but a regular
file of the caller's own is read, and no more of it than a configuration has.  A file is written as
a whole or not at all, only if it is still what was read, and a copy of what was there is kept:

    ~/.local/share/intercore/setup/<digest of the path>-<number>-<name>    copies
    ~/.local/share/intercore/setup/<digest of the path>.json               what we wrote, and what
                                                                           the file is without it

They are not kept beside the file: a project's directory is shared, and under version control.
"""

import fcntl
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec
from msgspec import Struct

from icd import files
from icd.errors import AgentConfigChanged, AgentConfigRefused, IcError

MOST_BYTES = 1024 * 1024
# Claude Code lists the user's MCP servers beside its own state, which grows to some megabytes.
OWN_BYTES = 16 * 1024 * 1024
# A record holds a file, in base64.
RECORD_BYTES = 2 * OWN_BYTES
COPIES = 10
SHARE = ".local/share/intercore/setup"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY


class Place(Struct, frozen=True):
    """A file below a directory that is there; `path` is how it is called in messages."""

    path: str
    root: str
    parts: tuple[str, ...]
    is_shared: bool  # in a project: what is made there has the usual mode


class Seen(Struct, frozen=True):
    """A file as it was read; `content` is None if there is none."""

    content: bytes | None = None
    mode: int | None = None
    group: int = -1


class Record(Struct, frozen=True):
    """`base` is what the file is without our entries, None: there is none.

    `known` are digests of what the file was with them: if it still is, `base` is the way back.
    `made` are the directories that we made for it.
    """

    path: str
    known: list[str]
    base: bytes | None
    made: list[str] = []


def below(root: str, path: str) -> Place:
    """A file of a project: no link is followed on the way from its root."""
    return Place(path, root, tuple(os.path.relpath(path, root).split(os.sep)), is_shared=True)


def own(path: str) -> Place:
    """A file of the user's own: links are followed, as people keep such files elsewhere."""
    full = os.path.realpath(path)
    root = os.path.dirname(full)
    while not os.path.isdir(root):
        root = os.path.dirname(root)
    return Place(path, root, tuple(os.path.relpath(full, root).split(os.sep)), is_shared=False)


# --- reading --------------------------------------------------------------------------------------


def read(place: Place) -> Seen:
    with _directory(place) as (fd, made):
        assert not made
        return Seen() if fd is None else _read(place, fd)


@contextmanager
def _directory(place: Place, *, make: bool = False) -> Iterator[tuple[int | None, list[str]]]:
    """The file's directory, opened step by step, and those that were made; None: it is missing."""
    made: list[str] = []
    try:
        fd = os.open(place.root, _DIRECTORY | os.O_CLOEXEC)
    except OSError as exc:
        raise _refused(place, f"{place.root} cannot be opened: {exc.strerror}") from exc
    try:
        _refuse_others(place, os.fstat(fd), place.root)
        path = place.root
        for part in place.parts[:-1]:
            path = os.path.join(path, part)
            if make:
                made += _made(place, fd, part, path)
            below = _entered(place, fd, part, path)
            if below is None:
                yield None, made
                return
            os.close(fd)
            fd = below
        yield fd, made
    finally:
        os.close(fd)


def _made(place: Place, fd: int, part: str, path: str) -> list[str]:
    try:
        os.mkdir(part, 0o777 if place.is_shared else 0o700, dir_fd=fd)
    except FileExistsError:
        return []
    except OSError as exc:
        raise _refused(place, f"{path} cannot be made: {exc.strerror}") from exc
    return [path]


def _entered(place: Place, fd: int, part: str, path: str) -> int | None:
    try:
        below = files.open_(part, _DIRECTORY, dir_fd=fd)
    except FileNotFoundError:
        return None
    except OSError as exc:
        why = "is a symbolic link" if os.path.islink(path) else f"cannot be opened: {exc.strerror}"
        raise _refused(place, f"{path} {why}") from exc
    try:
        _refuse_others(place, os.fstat(below), path)
    except BaseException:
        os.close(below)
        raise
    return below


def _refuse_others(place: Place, there: os.stat_result, path: str) -> None:
    if there.st_uid != os.geteuid():
        raise _refused(place, f"{path} belongs to another user")
    if stat.S_ISDIR(there.st_mode) and there.st_mode & stat.S_IWOTH:
        raise _refused(place, f"{path} is writable by all users", hint=f"run chmod o-w {path}")


def _read(place: Place, directory: int) -> Seen:
    try:
        fd = files.open_(place.parts[-1], dir_fd=directory)
    except FileNotFoundError:
        return Seen()
    except OSError as exc:
        told = "it is a symbolic link" if _is_link(place, directory) else exc.strerror
        raise _refused(place, f"{place.path} cannot be read: {told}") from exc
    try:
        return _content(place, fd)
    except OSError as exc:
        raise _refused(place, f"{place.path} cannot be read: {exc.strerror}") from exc
    finally:
        os.close(fd)


def _content(place: Place, fd: int) -> Seen:
    """What an open file holds, judged by what was opened."""
    there = os.fstat(fd)
    if not stat.S_ISREG(there.st_mode):
        raise _refused(place, f"{place.path} is not a regular file")
    _refuse_others(place, there, place.path)
    most = MOST_BYTES if place.is_shared else OWN_BYTES
    with open(fd, "rb", closefd=False) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise _refused(place, f"{place.path} has more than {most} bytes")
    return Seen(content, stat.S_IMODE(there.st_mode), there.st_gid)


def _is_link(place: Place, directory: int) -> bool:
    with suppress(OSError):
        there = os.stat(place.parts[-1], dir_fd=directory, follow_symlinks=False)
        return stat.S_ISLNK(there.st_mode)
    return False


def _refused(place: Place, told: str, *, hint: str | None = None) -> IcError:
    return AgentConfigRefused(told, hint=hint, path=place.path)


# --- writing --------------------------------------------------------------------------------------


def write(place: Place, seen: Seen, data: bytes) -> list[str]:
    """Replace what was read; the directories that were made for it are returned."""
    with _directory(place, make=True) as (fd, made):
        assert fd is not None
        draft = _without_draft(place, fd)
        try:
            _draft(place, seen, data, draft, fd)
            _refuse_changed(place, seen, fd)
            os.rename(draft, place.parts[-1], src_dir_fd=fd, dst_dir_fd=fd)
        except OSError as exc:
            raise _refused(place, f"cannot write {place.path}: {exc.strerror}") from exc
        finally:
            with suppress(FileNotFoundError):
                os.unlink(draft, dir_fd=fd)
        os.fsync(fd)
        return made


def _without_draft(place: Place, directory: int) -> str:
    """The name for a draft; one of a process that died over it goes: one writes at a time."""
    name = f".{place.parts[-1]}.intercore-draft"
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)
    return name


def _draft(place: Place, seen: Seen, data: bytes, name: str, directory: int) -> None:
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | files.CAREFULLY
    fd = os.open(name, flags, 0o666 if place.is_shared else 0o600, dir_fd=directory)
    with open(fd, "wb") as file:
        if seen.mode is not None:
            with suppress(PermissionError):  # a group that is no longer ours
                os.fchown(fd, -1, seen.group)
            os.fchmod(fd, seen.mode)
        file.write(data)
        file.flush()
        os.fsync(fd)


def _refuse_changed(place: Place, seen: Seen, directory: int) -> None:
    if _read(place, directory).content != seen.content:
        raise AgentConfigChanged(f"{place.path} was changed meanwhile; it was left as it is")


def delete(place: Place, seen: Seen) -> None:
    """Remove what was read."""
    with _directory(place) as (fd, _):
        if fd is not None:
            _refuse_changed(place, seen, fd)
            _without_draft(place, fd)
            os.unlink(place.parts[-1], dir_fd=fd)
            os.fsync(fd)


def prune(made: list[str]) -> None:
    """Remove directories that we made, the innermost first, unless others use them by now."""
    for path in sorted(made, key=len, reverse=True):
        with suppress(OSError):
            os.rmdir(path)


# --- what we remember -----------------------------------------------------------------------------


class Memory:
    """The records and copies in the home directory; one process at a time."""

    def __init__(self, home: str) -> None:
        self.share = os.path.join(home, SHARE)

    @contextmanager
    def locked(self) -> Iterator[None]:
        os.makedirs(self.share, mode=0o700, exist_ok=True)
        with files.opened(os.path.join(self.share, ".lock"), os.O_RDWR | os.O_CREAT) as fd:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield

    def record(self, path: str, content: bytes | None) -> tuple[Record | None, bool]:
        """What we know of a file, and whether it is still as we know it."""
        try:
            data = files.read(self._named(path), RECORD_BYTES)
            record = msgspec.json.decode(data, type=Record)
        except (OSError, msgspec.DecodeError):
            return None, False
        return record, content is not None and digest(content) in record.known

    def remember(self, record: Record) -> None:
        files.replace(self._named(record.path), msgspec.json.encode(record))

    def forget(self, path: str) -> None:
        files.remove(self._named(path))

    def copy(self, path: str, content: bytes) -> str:
        """Keep a copy; the oldest ones go."""
        start = f"{digest(os.fsencode(path))[:16]}-"
        end = f"-{os.path.basename(path)}"
        numbers = sorted(self._numbers(start, end))
        number = numbers[-1] + 1 if numbers else 1
        for old in numbers[: -(COPIES - 1)]:
            files.remove(os.path.join(self.share, f"{start}{old}{end}"))
        made = os.path.join(self.share, f"{start}{number}{end}")
        files.replace(made, content)
        return made

    def _numbers(self, start: str, end: str) -> Iterator[int]:
        for name in os.listdir(self.share):
            number = name.removeprefix(start).removesuffix(end)
            if name == f"{start}{number}{end}" and number.isdecimal():
                yield int(number)

    def _named(self, path: str) -> str:
        return os.path.join(self.share, f"{digest(os.fsencode(path))[:16]}.json")


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
