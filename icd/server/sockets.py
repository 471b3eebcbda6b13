"""Where the daemon listens, and that it is the only one.

The path is a function of the uid alone.  An owner lock beside the socket is held for life; only its
holder may remove a stale socket, because connect, unlink and bind alone let several daemons win.
"""

import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from icd.errors import IcError, Misconfigured, PermissionRefused

PATH_BYTES = 107


class AlreadyRunning(IcError):
    """The state that was asked for is reached already."""

    code, name, exit = -32045, "already_running", 0


def candidates() -> list[str]:
    """The same two places that `icctl` looks in."""
    uid = os.geteuid()
    return [f"/run/user/{uid}/intercore/icd.sock", f"/tmp/intercore-{uid}/icd.sock"]


def choose(given: str | None) -> str:
    path = given or next((p for p in candidates() if os.path.isdir(_grandparent(p))), "")
    path = os.path.abspath(path)
    if len(os.fsencode(path)) > PATH_BYTES:
        raise Misconfigured(
            f"the socket path {path} is too long", hint=f"use one of at most {PATH_BYTES} bytes"
        )
    return path


@contextmanager
def owned(path: str, *, given: bool) -> Iterator[socket.socket]:
    """A bound socket, ours alone, removed at the end.  It listens once the daemon can serve."""
    _private_directory(os.path.dirname(path))
    lock = os.open(_lock_path(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        _own(lock, path)
        for other in [path] if given else candidates():
            if _answers(other):
                raise AlreadyRunning(f"a daemon answers at {other} already")
        _remove_stale(path)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(0)
            sock.bind(path)
            os.chmod(path, 0o600)
            bound = os.stat(path)
            try:
                yield sock
            finally:
                _remove_own(path, bound)
    finally:
        os.close(lock)


def _own(lock: int, path: str) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.pread(lock, 32, 0).decode("ascii", "replace").strip()
        raise AlreadyRunning(f"icd is running already (pid {pid}) at {path}") from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)


def _private_directory(directory: str) -> None:
    os.makedirs(directory, mode=0o700, exist_ok=True)
    found = os.lstat(directory)
    if stat.S_ISLNK(found.st_mode) or found.st_uid != os.geteuid():
        raise PermissionRefused(
            f"{directory} is not a directory of our own", hint="remove it, or use another --socket"
        )
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise PermissionRefused(
            f"{directory} is open to other users", hint=f"run: chmod 700 {directory}"
        )


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(path)
        except OSError:
            return False
        return True


def _remove_stale(path: str) -> None:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise Misconfigured(f"{path} exists and is not a socket", hint="move it away")
    os.unlink(path)


def _remove_own(path: str, bound: os.stat_result) -> None:
    try:
        found = os.lstat(path)
        if (found.st_dev, found.st_ino) == (bound.st_dev, bound.st_ino):
            os.unlink(path)
    except FileNotFoundError:
        pass


def _lock_path(path: str) -> str:
    return path.removesuffix(".sock") + ".lock"


def _grandparent(path: str) -> str:
    return os.path.dirname(os.path.dirname(path))
