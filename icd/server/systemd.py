"""What systemd passes to a service, and what a service tells it.

Both are a few lines of environment and one datagram; libraries for it are larger than this file.

Its watchdog is fed after a query that goes through a thread of its own, the same way as every call:
the loop ran, a thread ran and SQLite answered.  The query touches no project, so a database that
hangs does not restart the daemon: it is isolated in its own thread, and named in the status.
"""

import contextlib
import os
import socket
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable

import anyio

from icd.errors import Misconfigured
from icd.server.stores.db_thread import DbThread

FIRST_DESCRIPTOR = 3
NAME = "icd"  # of the socket in its unit, should there be several
# Meant for this process only: no child may take them for its own.
VARIABLES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


def notify(*lines: str) -> None:
    """Tell the service manager, if there is one; it is not there to be waited for."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.settimeout(0)
        sock.sendto("\n".join(line.replace("\n", " ") for line in lines).encode(), address)


def passed_socket() -> socket.socket | None:
    """The socket that systemd listens on for us, if it started us for a caller's sake."""
    pid, count, names = (os.environ.pop(name, "") for name in VARIABLES)
    if pid != str(os.getpid()) or not count.isdigit() or not int(count):
        return None
    passed = dict(enumerate(names.split(":") if names else [], FIRST_DESCRIPTOR))
    descriptors = range(FIRST_DESCRIPTOR, FIRST_DESCRIPTOR + int(count))
    for fd in descriptors:
        os.set_inheritable(fd, False)  # noqa: FBT003
    ours = [fd for fd in descriptors if passed.get(fd) == NAME] or list(descriptors)
    if len(ours) > 1:
        raise Misconfigured(
            f"{count} sockets were passed, none named {NAME}",
            hint=f"set FileDescriptorName={NAME} in the socket unit",
        )
    sock = socket.socket(fileno=ours[0])
    if (sock.family, sock.type) != (socket.AF_UNIX, socket.SOCK_STREAM):
        raise Misconfigured(
            "the passed socket is not a Unix stream socket", hint="use ListenStream="
        )
    return sock


def _watchdog_seconds() -> float | None:
    """How often systemd must hear of us; None: it does not ask for it."""
    usec, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    if not usec.isdigit() or not int(usec) or (pid and pid != str(os.getpid())):
        return None
    return int(usec) / 1_000_000


# --- proof of life ---


async def feed(status: Callable[[], str]) -> None:
    """Report twice in every period in which we must be heard of, as systemd advises."""
    seconds = _watchdog_seconds()
    if seconds is None:
        return
    async with _pulse() as beat:
        while True:
            await beat()
            notify("WATCHDOG=1", f"STATUS={status()}")
            await anyio.sleep(seconds / 2)


async def check() -> None:
    """One beat, for code that is to show that it works."""
    async with _pulse() as beat:
        await beat()


@contextlib.asynccontextmanager
async def _pulse() -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """A query through a database thread, again and again."""
    opened: list[sqlite3.Connection] = []

    def connect() -> sqlite3.Connection:
        opened.append(sqlite3.connect(":memory:", isolation_level=None))
        return opened[0]

    async def beat() -> None:
        await lane.hop(lambda: opened[0].execute("SELECT 1").fetchone())

    lane = await DbThread.open(connect)
    try:
        yield beat
    finally:
        with anyio.CancelScope(shield=True):
            await lane.close()
