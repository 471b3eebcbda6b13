"""Removing a legacy file that was imported, and only that one.

A producer may write again between the look and the removal.  So the file is first renamed to a
name that nobody knows; what has been moved is then looked at again, and put back unless it is what
was imported.  Whoever creates the file anew meanwhile keeps theirs.  A lease proves that nobody
still has it open for writing; file systems without leases leave a moment in which such a writer's
last words are lost.
"""

import contextlib
import errno
import fcntl
import os
import stat

from icd.features.compat.legacy.reading import Entry, identity


def remove(entry: Entry) -> str | None:
    """None if the file is gone; else why it was left."""
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
    if identity(os.lstat(aside)) != entry.identity:
        return "was written again since it was read"
    if entry.identity.kind == stat.S_IFDIR:
        os.rmdir(aside)
        return None
    fd = os.open(aside, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if _is_being_written(fd) or identity(os.fstat(fd)) != entry.identity:
            return "is being written"
        os.unlink(aside)
    finally:
        os.close(fd)
    return None


def _is_being_written(fd: int) -> bool:
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as exc:
        return exc.errno == errno.EAGAIN
    return False


def _put_back(aside: bytes, path: bytes) -> None:
    """Where it was, unless somebody has put a newer one there by now."""
    if stat.S_ISREG(os.lstat(aside).st_mode):
        try:
            os.link(aside, path)
        except FileExistsError:
            os.unlink(aside)
            return
        except OSError:  # a file system without links
            os.rename(aside, path)
            return
        os.unlink(aside)
        return
    try:
        os.rename(aside, path)
    except OSError:  # a guard stands there again
        with contextlib.suppress(OSError):
            os.rmdir(aside)
