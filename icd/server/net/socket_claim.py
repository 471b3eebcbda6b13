"""Where the daemon listens, and that it is the only one.

The path is a function of the uid alone.  An owner lock beside the socket is held for life; only its
holder may remove a stale socket, because connect, unlink and bind alone let several daemons win.

A claim can be lost: a directory below /run is emptied at logout, a user tidies up, systemd puts a
socket of its own in our place.  The daemon looks from time to time, and takes its place again or
leaves it to the other.
"""

import fcntl
import os
import socket
import stat
import time

from icd.errors import AlreadyRunning, Misconfigured, PermissionRefused
from icd.server import limits

PATH_BYTES = 107

Identity = tuple[int, int]


def candidates() -> list[str]:
    """Where a daemon may listen: the same two places that `icctl` looks in."""
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


class SocketClaim:
    """Being the daemon at a path: the lock, and a bound socket.

    `passed`: the socket came from systemd, which keeps it when we leave.
    """

    def __init__(self, path: str, lock: int, sock: socket.socket, *, passed: bool) -> None:
        self.path = path
        self.lock = lock
        self.sock = sock
        self.passed = passed
        self.bound = _identity(path)

    @property
    def is_held(self) -> bool:
        return self._has_path() and self._has_lock()

    @property
    def is_taken(self) -> bool:
        """Another daemon listens where clients look first."""
        if self._has_path():
            better = candidates()[: candidates().index(self.path)] if self._is_usual() else []
            return any(_answers(path) for path in better)
        return _identity(self.path) is not None and _answers(self.path)

    def renew(self) -> None:
        """Take again what got lost; `sock` is another one then.  AlreadyRunning: others did."""
        path = choose(None) if self._is_usual() else self.path
        if path != self.path or not self._has_lock():
            try:
                lock = _lock(path)
            except AlreadyRunning:
                if path == self.path and self._has_path():
                    return  # a newcomer, who leaves as soon as it sees that we answer
                raise
            os.close(self.lock)
            self.lock = lock
        if path == self.path and self._has_path():
            return
        self.path, self.passed, self.bound = path, False, None  # where the lock is, even if we fail
        self.sock = _bind(path)
        self.bound = _identity(path)

    def release(self) -> None:
        self.sock.close()
        if not self.passed and self._has_path():
            os.unlink(self.path)
        os.close(self.lock)

    def _has_path(self) -> bool:
        return self.bound is not None and _identity(self.path) == self.bound

    def _has_lock(self) -> bool:
        found = os.fstat(self.lock)
        return _identity(_lock_path(self.path)) == (found.st_dev, found.st_ino)

    def _is_usual(self) -> bool:
        return self.path in candidates()


def claim(path: str) -> SocketClaim:
    """Bind the path.  The socket listens once the daemon can serve."""
    lock = _lock(path)
    try:
        _refuse_company(candidates() if path in candidates() else [path])
        return SocketClaim(path, lock, _bind(path), passed=False)
    except BaseException:
        os.close(lock)
        raise


def take(sock: socket.socket) -> SocketClaim:
    """Claim the path of a socket that systemd listens on.

    A daemon that was started by hand may still be there: it notices that its place was taken, and
    leaves.  Until then its callers are served by it, and ours wait in the backlog.
    """
    path = sock.getsockname()
    if not isinstance(path, str) or not path.startswith("/"):
        raise Misconfigured("the passed socket has no path", hint="use ListenStream=/…")
    sock.settimeout(0)
    until = time.monotonic() + limits.TAKEOVER_SECONDS
    lock = _lock(path, until)
    others = [p for p in candidates() if p != path] if path in candidates() else []
    while any(map(_answers, others)) and time.monotonic() < until:
        time.sleep(limits.TAKEOVER_PAUSE_SECONDS)
    try:
        _refuse_company(others)
    except BaseException:
        os.close(lock)
        raise
    return SocketClaim(path, lock, sock, passed=True)


def _refuse_company(places: list[str]) -> None:
    for path in places:
        if _answers(path):
            raise AlreadyRunning(f"a daemon already answers at {path}")


def _lock(path: str, until: float = 0) -> int:
    """Take the owner lock of a path; wait for its holder to leave until the moment `until`."""
    _private_directory(os.path.dirname(path))
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    lock = os.open(_lock_path(path), flags, 0o600)
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                pid = _owner(lock)
                os.close(lock)
                raise AlreadyRunning(f"icd is already running (pid {pid}) at {path}") from None
            time.sleep(limits.TAKEOVER_PAUSE_SECONDS)
        else:
            os.ftruncate(lock, 0)
            os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
            return lock


def _owner(lock: int) -> str:
    """Who holds the lock; one who has just got it needs a moment to write its name down."""
    for _ in range(limits.OWNER_LOOKS):
        pid = os.pread(lock, 32, 0).decode("ascii", "replace").strip()
        if pid:
            return pid
        time.sleep(limits.TAKEOVER_PAUSE_SECONDS)
    return "unknown"


def _bind(path: str) -> socket.socket:
    """Bind the path; for the holder of the lock only."""
    _private_directory(os.path.dirname(path))
    _remove_stale(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(0)
        sock.bind(path)
        os.chmod(path, 0o600)
    except BaseException:
        sock.close()
        raise
    return sock


def _private_directory(directory: str) -> None:
    os.makedirs(directory, mode=0o700, exist_ok=True)
    found = os.lstat(directory)
    if stat.S_ISLNK(found.st_mode) or found.st_uid != os.geteuid():
        raise PermissionRefused(
            f"{directory} is not a private directory of this user",
            hint="remove it, or choose another --socket",
        )
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise PermissionRefused(
            f"{directory} is open to other users", hint=f"run: chmod 700 {directory}"
        )


def _answers(path: str) -> bool:
    """Whether a daemon of ours listens; what another user could have put there is none."""
    if not _is_ours(path):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(path)
        except BlockingIOError:  # its backlog is full
            return True
        except OSError:
            return False
        return True


def _is_ours(path: str) -> bool:
    """The rule of the clients (icctl/client.py, is_ours)."""
    try:
        home, sock = os.lstat(os.path.dirname(path)), os.lstat(path)
    except OSError:
        return False
    uid = os.geteuid()
    shared = home.st_mode & 0o022 and not home.st_mode & stat.S_ISVTX
    if not stat.S_ISDIR(home.st_mode) or shared or home.st_uid not in (uid, 0):
        return False
    return stat.S_ISSOCK(sock.st_mode) and sock.st_uid == uid


def _remove_stale(path: str) -> None:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise Misconfigured(f"{path} exists and is not a socket", hint="move it away")
    os.unlink(path)


def _identity(path: str) -> Identity | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _lock_path(path: str) -> str:
    return path.removesuffix(".sock") + ".lock"


def _grandparent(path: str) -> str:
    return os.path.dirname(os.path.dirname(path))
