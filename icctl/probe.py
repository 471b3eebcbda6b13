"""Looking at sockets for `icctl doctor`, which has to tell apart what a call need not.

Nothing is removed but a socket without a listener, under the lock of its owner.
"""

import fcntl
import json
import os
import stat
import sys
import time
from _socket import AF_UNIX, SO_PEERCRED, SOCK_STREAM, SOL_SOCKET, socket

from icctl import client, messages
from icd.admin.doctor.context import Seen, Sight
from icd.admin.doctor.daemon import lock_path

REQUEST = b'{"jsonrpc":"2.0","id":1,"method":"icd.status","params":{}}\n'
# A report of a daemon with a hundred databases is a tenth of it.
REPLY_BYTES = 4 * 1024 * 1024


def sight() -> Sight:
    return Sight(look=look, clear=clear)


def look(deadline: float) -> list[Seen]:
    """Ask at every path where a daemon may listen; each gets the same share of the time."""
    places = client.sockets()
    share = (deadline - time.monotonic()) / len(places)
    return [_look(path, time.monotonic() + share) for path in places]


def _look(path: str, deadline: float) -> Seen:
    if len(os.fsencode(path)) > client.PATH_BYTES:
        return Seen(path, "too long")
    try:
        sock = socket(AF_UNIX, SOCK_STREAM)
    except OSError as exc:
        return Seen(path, "forbidden", error=exc.strerror or str(exc))
    try:
        return _asked(sock, path, deadline) if client.is_ours(path) else _ignored(path)
    except OSError as exc:
        return _failed(path, exc, None)
    finally:
        sock.close()


def _ignored(path: str) -> Seen:
    what, why = messages.why_ignored(path)
    return Seen(path, "ignored", error=f"ignoring the {what}: {why}")


def _asked(sock: socket, path: str, deadline: float) -> Seen:
    pid: int | None = None
    try:
        _limit(sock, deadline)
        sock.connect(path)
        pid, uid = _peer(sock)
        if uid != os.geteuid():
            return Seen(path, "stranger")
        sock.sendall(REQUEST)
        report = json.loads(_line(sock, deadline))["result"]
        return Seen(path, "answers", pid=pid, report=dict(report))
    except (TimeoutError, BlockingIOError):  # also a queue that is full
        return Seen(path, "silent", pid=pid)
    except OSError as exc:
        return _failed(path, exc, pid)
    except (ValueError, KeyError, TypeError, RecursionError):
        return Seen(path, "nonsense", pid=pid)


def _failed(path: str, exc: OSError, pid: int | None) -> Seen:
    if pid is not None:  # it listened, and then hung up
        return Seen(path, "nonsense", pid=pid)
    if exc.errno == client.ECONNREFUSED:
        return Seen(path, "refused")
    if exc.errno in client.ABSENT:
        return Seen(path, "absent")
    if exc.errno in client.FORBIDDEN:
        return Seen(path, "forbidden", error=exc.strerror or str(exc))
    return Seen(path, "failed", error=exc.strerror or str(exc))


def _line(sock: socket, deadline: float) -> bytes:
    parts: list[bytes] = []
    size = 0
    while size < REPLY_BYTES and not (parts and parts[-1].endswith(b"\n")):
        _limit(sock, deadline)
        part = sock.recv(65536)
        if not part:
            break
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def _limit(sock: socket, deadline: float) -> None:
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise TimeoutError
    sock.settimeout(remaining)


def _peer(sock: socket) -> tuple[int, int]:
    """Pid and uid of the process that listens."""
    found = sock.getsockopt(SOL_SOCKET, SO_PEERCRED, 12)
    return int.from_bytes(found[:4], sys.byteorder), int.from_bytes(found[4:8], sys.byteorder)


def clear(path: str) -> str:
    """Remove a stale socket, or say why not; under the owner lock, or a daemon may lose its own."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    lock = os.open(lock_path(path), flags, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _look(path, time.monotonic() + 1).outcome != "refused":
            return "another process listens there now"
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return "it is not a socket"
        os.unlink(path)
    except BlockingIOError:
        return "a daemon is about to listen there"
    finally:
        os.close(lock)
    return ""
