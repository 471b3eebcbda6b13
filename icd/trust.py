"""Which databases the user trusts: recorded in the home directory, never in the project.

Whatever lies in a project's directory may come from a stranger.  Its rows can be read and written
like any others; but a row is never a permission to start a program or to write a file elsewhere.
That needs a record outside the project:

    ~/.local/share/intercore/trust/<sha256 of the database's path>

The record names one file: its path, its inode and the time of its birth.  So it holds for the very
file that we made or that the user accepted, and not for another one that git, tar or rsync put in
its place.  The device is not part of it: its number may be another one after a reboot.

Promises
    - without a home directory, and for a file that others can write to, nothing is trusted;
    - a record that another user could have written counts as none;
    - a record is written as a whole or not at all.
"""

import os
import stat
import sys
import time
from collections.abc import Iterator, Mapping

import msgspec
from msgspec import Struct

from icd import files
from icd.files import canonical
from icd.printable import spelled

SHARE = ".local/share/intercore/trust"
# A record holds two paths of at most 4096 bytes, escaped, and some numbers.
RECORD_BYTES = 64 * 1024
# A dispatch script is a text that a person has read.
SCRIPT_BYTES = 1024 * 1024
# A machine that makes many short-lived projects keeps this many records; beyond it, those of
# databases that are gone are forgotten.
RECORDS = 1000
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH

_AT_FDCWD, _AT_SYMLINK_NOFOLLOW, _STATX_BTIME = -100, 0x100, 0x800
_STATX_BYTES = 256
# Offset and size in struct statx: the mask, and seconds and nanoseconds of the birth.
_FIELDS = ((0, 4), (80, 8), (88, 4))


class Record(Struct, frozen=True):
    """`born_ns`: None where the file system does not keep it.  `scripts`: SHA-256 by path."""

    path: str
    inode: int
    born_ns: int | None
    granted_at: int
    scripts: dict[str, str] = {}


class Unfit(Exception):
    """Why a file is not fit to be trusted."""


def allows(home: str | None, path: str) -> bool:
    """Whether what the database at `path` says may have effects outside of it."""
    return not objection(home, path)


def objection(home: str | None, path: str) -> str:
    """Why the database is not trusted; empty if it is."""
    path = canonical(path)
    record = _read(home, path)
    if record is None or record.path != spelled(path):
        return "it was not created here, or was created by an earlier version of intercore"
    try:
        there = _fit(path)
    except Unfit as exc:
        return str(exc)
    if record.inode != there.st_ino or record.born_ns != born_ns(path):
        return "it is not the file that was trusted"
    return ""


def was_trusted(home: str | None, path: str) -> bool:
    """Whether a database of that path is, or was, trusted, whatever lies there now."""
    path = canonical(path)
    record = _read(home, path)
    return record is not None and record.path == spelled(path)


def grant(home: str | None, path: str, *, scripts: Mapping[str, str] | None = None) -> Record:
    """Trust the database as it lies there, and scripts with the content of these digests.

    Scripts that were trusted before stay so unless others are given.
    Unfit: why it cannot be trusted; OSError: why that cannot be recorded.
    """
    path = canonical(path)
    inode, born = _fit(path).st_ino, born_ns(path)
    if scripts is None:
        before = _read(home, path)
        scripts = before.scripts if before else {}
    known = {spelled(canonical(script)): sha256 for script, sha256 in scripts.items()}
    record = Record(spelled(path), inode, born, int(time.time()), known)
    files.replace(os.path.join(_place(home), _name(path)), msgspec.json.encode(record) + b"\n")
    return record


def revoke(home: str | None, path: str) -> bool:
    """Trust a database no longer, also one that is gone; whether it was trusted."""
    try:
        os.unlink(os.path.join(_place(home), _name(canonical(path))))
    except (FileNotFoundError, Unfit):
        return False
    return True


def entries(home: str | None) -> list[Record]:
    """All that is recorded, by path."""
    return sorted((record for _, record in _records(home)), key=lambda record: record.path)


def made(path: str) -> str:
    """Trust a database file that this process has just made; why not, if that is impossible."""
    home = os.environ.get("HOME")
    try:
        _make_room(home)
        grant(home, path)
    except Unfit as exc:
        return str(exc)
    except OSError as exc:
        return f"cannot write to ~/{SHARE}: {exc.strerror}"
    return ""


def allows_script(home: str | None, path: str, script: str) -> bool:
    """Whether the user accepted the script, with the content that it has, for this database."""
    record = _read(home, canonical(path))
    known = record.scripts.get(spelled(canonical(script))) if record else None
    if known is None:
        return False
    try:
        return known == script_digest(script)
    except Unfit:
        return False


def script_digest(script: str) -> str:
    """The SHA-256 of a script that is fit to be trusted, judged by what was opened."""
    import hashlib

    _fit_directory(os.path.dirname(script))
    return hashlib.sha256(_content(script, SCRIPT_BYTES)).hexdigest()


def born_ns(path: str) -> int | None:
    """When the file was created; None where the kernel or the file system does not tell."""
    import ctypes  # Python before 3.15 has no statx of its own

    try:
        statx = ctypes.CDLL(None, use_errno=True).statx
    except (AttributeError, OSError):
        return None
    found = ctypes.create_string_buffer(_STATX_BYTES)
    if statx(_AT_FDCWD, os.fsencode(path), _AT_SYMLINK_NOFOLLOW, _STATX_BTIME, found):
        return None
    mask, seconds, nanoseconds = (_number(found.raw, *each) for each in _FIELDS)
    return seconds * 1_000_000_000 + nanoseconds if mask & _STATX_BTIME else None


def _number(data: bytes, offset: int, size: int) -> int:
    return int.from_bytes(data[offset : offset + size], sys.byteorder, signed=True)


def _fit(path: str) -> os.stat_result:
    """Refuse a file that another user could write to, or put another one in the place of."""
    _fit_directory(os.path.dirname(path))
    try:
        there = os.lstat(path)
    except OSError as exc:
        raise Unfit(f"{path} cannot be inspected: {exc.strerror}") from exc
    _refuse_unfit(there, path)
    return there


def _fit_directory(path: str) -> None:
    try:
        there = os.stat(path)
    except OSError as exc:
        raise Unfit(f"{path} cannot be inspected: {exc.strerror}") from exc
    _refuse_others(there, path)


def _refuse_unfit(there: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(there.st_mode):
        raise Unfit(f"{path} is not a regular file")
    _refuse_others(there, path)


def _refuse_others(there: os.stat_result, path: str) -> None:
    if there.st_uid != os.geteuid():
        raise Unfit(f"{path} belongs to another user")
    if there.st_mode & OTHERS_WRITE:
        raise Unfit(f"{path} is writable by other users; run chmod go-w")


def _place(home: str | None) -> str:
    if not home or not home.startswith("/"):
        raise Unfit("trust is recorded in the home directory, and HOME is not set")
    return os.path.join(home, SHARE)


def _name(path: str) -> str:
    import hashlib

    return hashlib.sha256(os.fsencode(path)).hexdigest()


def _read(home: str | None, path: str) -> Record | None:
    try:
        return _decoded(os.path.join(_place(home), _name(path)))
    except Unfit:
        return None


def _decoded(file: str) -> Record | None:
    """A record, if only this user can have written it."""
    try:
        return msgspec.json.decode(_content(file, RECORD_BYTES), type=Record)
    except (Unfit, msgspec.DecodeError, RecursionError):
        return None


def _content(path: str, most: int) -> bytes:
    """What a fit file holds, judged by what was opened; a pipe is never waited for."""
    try:
        fd = files.open_(path)
    except OSError as exc:
        why = "it is a symbolic link" if os.path.islink(path) else exc.strerror
        raise Unfit(f"{path} cannot be read: {why}") from exc
    try:
        _refuse_unfit(os.fstat(fd), path)
        data = b""
        while len(data) <= most and (more := os.read(fd, most + 1)):
            data += more
    except OSError as exc:
        raise Unfit(f"{path} cannot be read: {exc.strerror}") from exc
    finally:
        os.close(fd)
    if len(data) > most:
        raise Unfit(f"{path} has more than {most} bytes")
    return data


def _records(home: str | None) -> Iterator[tuple[str, Record]]:
    """Each file of a record, and what it says."""
    try:
        place = _place(home)
        names = os.listdir(place)
    except (Unfit, OSError):
        return
    for file in (os.path.join(place, name) for name in names if not name.startswith(".")):
        if (record := _decoded(file)) is not None:
            yield file, record


def _make_room(home: str | None) -> None:
    try:
        if len(os.listdir(_place(home))) < RECORDS:
            return
    except FileNotFoundError:
        return
    for file, record in _records(home):
        if not os.path.lexists(record.path):
            files.remove(file)
