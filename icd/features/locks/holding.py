"""Run a command under a lock, and give the lock back whatever happens.

The lock belongs to the process that becomes the command, from before it does.  So it lives as long
as the command does, also if we are killed: then the command goes on, and holds its lock until it
ends; after that the lock's owner is provably dead.
"""

import contextlib
import os
import signal
import time
from typing import NoReturn

from icd.errors import CannotRun, IcError
from icd.features.locks import locking, owners
from icd.features.locks.places import Place

# What is sent to us is meant for the command.  From a terminal it gets them itself.
PASSED_ON = {
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
}
# Python ignores these; no other program expects that.
_IGNORED_HERE = (signal.SIGPIPE, signal.SIGXFSZ)
NOT_STARTED = 127


def hold(place: Place, name: str, scope: str, command: list[str], *, deadline: float) -> int:
    """The exit status of the command; 128 and the number of the signal that ended it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # else nobody would learn how it ended
    gate, go = os.pipe()
    failure, failed = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(go)
        os.close(failure)
        _become(command, gate, failed)
    os.close(gate)
    os.close(failed)
    owner = owners.of_process(child, owners.here(), int(time.time()))
    try:
        locking.acquire(place, name, scope, owner, deadline=deadline)
    except BaseException:
        os.close(go)  # it ends by itself
        os.waitpid(child, 0)
        raise
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON | {signal.SIGCHLD})
        with contextlib.suppress(BrokenPipeError):  # it was killed while we waited for the lock
            os.write(go, b"!")
        os.close(go)
        status = _attend(child)
    finally:
        _give_back(place, name, scope, owner)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON | {signal.SIGCHLD})
    reason = os.read(failure, 100)
    os.close(failure)
    if reason:
        raise CannotRun(f"cannot run {command[0]}: {os.strerror(int(reason))}")
    return status


def _become(command: list[str], gate: int, failed: int) -> NoReturn:
    """In the new process: wait until the lock is there, then be the command."""
    try:
        if os.read(gate, 1):
            for number in _IGNORED_HERE:
                signal.signal(number, signal.SIG_DFL)
            os.execvp(command[0], command)  # noqa: S606 -- that is what was asked for
    except OSError as exc:
        os.write(failed, str(exc.errno).encode())
    finally:
        os._exit(NOT_STARTED)


def _attend(child: int) -> int:
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)  # first: nobody tells of an end before
        if pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        told = signal.sigwaitinfo(PASSED_ON | {signal.SIGCHLD})
        # From a process; the kernel tells the whole group of a terminal.
        if told.si_signo != signal.SIGCHLD and told.si_code <= 0:
            os.kill(child, told.si_signo)


def _give_back(place: Place, name: str, scope: str, owner: owners.Owner) -> None:
    # The owner is dead, so that whoever asks gets the lock, if he has not got it already; whatever
    # is in our way now is no reason to keep the command's exit status from the caller.
    with contextlib.suppress(IcError):
        locking.release(place, name, scope, owner)
