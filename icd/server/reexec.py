"""From one `icd` to the next without losing a call: the same process goes on with other code.

What outlives the exec: the owner lock, the listening socket with the peers in its backlog, and
every connection with the requests that were not answered yet.  A memfd lists them.

Invariants
    - nothing that was read completely is left unanswered, and nothing is answered by both;
    - signals that arrive meanwhile are delivered to the next one.
"""

import os
import signal
import socket
import sys
import threading
from typing import NoReturn

import msgspec

from icd import __version__
from icd.errors import Misconfigured
from icd.server.net.socket_claim import Identity, SocketClaim
from icd.server.workers import threads

FORMAT = 1  # what the memfd holds; a daemon takes over from one that writes the same
VARIABLE = "ICD_HANDOVER"
HELD_BACK = threads.SIGNALS


class Connection(msgspec.Struct):
    """A peer in the middle of its conversation.

    `unsent`: what it did not read of our replies yet; `unread`: what it sent and we did not parse;
    `again`: the frame of a command that goes on, to be carried out again, what it showed last, and
    the place from which to go on.
    """

    fd: int
    is_keyhole: bool | None
    unsent: bytes = b""
    unread: bytes = b""
    again: bytes = b""
    shown: bytes = b""
    place: bytes = b""


class Handover(msgspec.Struct):
    """What a daemon leaves to the next."""

    connections: list[Connection] = []
    databases: list[str] = []  # those that must be open without a caller
    previous: str = ""  # version
    failure: str = ""  # why the new code could not be executed
    path: str = ""
    passed: bool = False
    bound: Identity | None = None  # the file of the socket, when it was ours
    lock: int = -1
    listener: int = -1
    format: int = FORMAT


def command() -> list[str]:
    """The command line that this daemon was started with, for what is installed by now."""
    flags = ["-P"]
    if sys.flags.ignore_environment:
        flags.append("-E")
    if sys.flags.no_user_site:
        flags.append("-s")
    return [sys.executable, *flags, "-m", "icd", *sys.argv[1:]]


def execute(claim: SocketClaim, handover: Handover, directory: str) -> NoReturn:
    """Become the installed code.  An OSError leaves everything as it was."""
    handover.path, handover.passed, handover.bound = claim.path, claim.passed, claim.bound
    handover.lock, handover.listener = claim.lock, claim.sock.fileno()
    handover.previous = __version__
    kept = [handover.lock, handover.listener, *(left.fd for left in handover.connections)]
    memory = os.memfd_create("icd-handover", 0)  # not closed by the exec
    try:
        with os.fdopen(os.dup(memory), "wb") as file:
            file.write(msgspec.msgpack.encode(handover))
        for fd in kept:
            os.set_inheritable(fd, True)  # noqa: FBT003
        os.chdir(directory)
        os.execve(sys.executable, command(), {**os.environ, VARIABLE: str(memory)})  # noqa: S606
    except OSError:
        os.close(memory)
        for fd in kept:
            os.set_inheritable(fd, False)  # noqa: FBT003
        os.chdir("/")
        raise


def take_over() -> tuple[SocketClaim, Handover] | None:
    """What this process left to itself before the exec; None if it was no daemon then."""
    given = os.environ.pop(VARIABLE, "")
    if not given.isdigit():
        return None
    with os.fdopen(int(given), "rb") as file:
        file.seek(0)
        handover = msgspec.msgpack.decode(file.read(), type=Handover)
    if handover.format != FORMAT:  # preflight has compared them, so no daemon of ours wrote it
        raise Misconfigured(f"cannot take over from icd {handover.previous}", hint="restart icd")
    for fd in (handover.lock, handover.listener, *(left.fd for left in handover.connections)):
        os.set_inheritable(fd, False)  # noqa: FBT003
    sock = socket.socket(fileno=handover.listener)
    sock.settimeout(0)
    claim = SocketClaim(handover.path, handover.lock, sock, passed=handover.passed)
    claim.bound = handover.bound  # another socket may have its path by now
    return claim, handover


def hold_signals() -> None:
    """Keep signals pending from the moment when this daemon stops to handle them."""
    signal.pthread_sigmask(signal.SIG_BLOCK, HELD_BACK)


def pass_on(signals: list[signal.Signals]) -> None:
    """Leave signals to the next daemon, once they are held back; this thread keeps them."""
    for told in signals:
        signal.pthread_kill(threading.get_ident(), told)


def release_signals() -> None:
    """Deliver pending signals, once a receiver is open."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD_BACK)
