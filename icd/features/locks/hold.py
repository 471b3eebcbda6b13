"""hold: run a command under a lock, and give the lock back however the command ends.

The lock belongs to the process that becomes the command, from before it does.  So it lives as long
as the command does, also if we are killed: then the command goes on, and holds its lock until it
ends; after that the lock's owner is provably dead.

The native client does the same (icctl/hold.c), and asks the daemon for the lock in the name of the
child that it has made.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import Annotated, NoReturn

from msgspec import Struct
from msgspec.structs import replace

from icd.app.invocation import Caller, Grant, Local, Output, Served, World
from icd.app.verb import Argument, Command
from icd.errors import CannotRun, IcError, Usage
from icd.features.locks import directory, owners, store
from icd.features.locks.directory import Place
from icd.features.locks.owners import Steps
from icd.features.locks.verbs import Name, Scope, deadline, fits, request

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


class Hold(Struct):
    """Run COMMAND while holding the lock NAME of SCOPE, and release it afterwards.

    Waits for the lock for --timeout, 1s by default, which must precede --.
    Signals are forwarded.
    The command itself owns the lock: if this process is killed, the command keeps it until it ends.
    Exits with the command's status; or with 1, without running it, if the lock is still held:
    stderr names the owner.
    """

    name: Name
    scope: Scope
    command: Annotated[
        tuple[str, ...],
        Argument("COMMAND", "Command to run.", nargs=-1, usage="-- COMMAND [ARGUMENT]..."),
    ] = ()


def ask_hold(world: World, f: Hold) -> Local:
    if not f.command:
        raise Usage("no command given", hint="put it after --")
    directory.check_words(f.name, f.scope)
    place = directory.place(world.env)

    def run(_ask: Caller) -> Output:
        status = hold(place, f.name, f.scope, [*f.command], deadline=deadline(world))
        return Output(status, borrowed=True)

    served = _served(world, place, f) if world.child else None
    return Local(run, is_about_project=False, served=served)


def _served(world: World, place: Place, f: Hold) -> Served:
    """Take the lock for the child of a client, which runs the command and releases it itself."""
    child = world.child or 0

    def steps() -> Steps[Output]:
        owner = owners.of_process(child, owners.here(), int(time.time()))
        asked = replace(owner, request=request(world))
        yield from store.acquiring(place, f.name, f.scope, asked, deadline=deadline(world))
        release = ["lock", "release", f"--owner={owner.owner}", "--", f.name, f.scope]
        return Output(0, grant=Grant([*f.command], release))

    return Served(place.base, partial(fits, world, place), steps)


def hold(place: Place, name: str, scope: str, command: list[str], *, deadline: float) -> int:
    """The exit status of the command; 128 and the number of the signal that ended it."""
    child = Child(command)
    give_back = take(place, name, scope, child, deadline=deadline)
    return child.run(give_back)


def take(
    place: Place, name: str, scope: str, child: "Child", *, deadline: float
) -> Callable[[], None]:
    """Take the lock for a child that waits; what gives it back is returned."""
    owner = owners.of_process(child.pid, owners.here(), int(time.time()))
    try:
        store.acquire(place, name, scope, owner, deadline=deadline)
    except BaseException:
        child.dismiss()
        raise
    return partial(_give_back, place, name, scope, owner)


class Child:
    """A process that waits, and then is the command, or ends."""

    def __init__(self, command: list[str]) -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # else we would not learn how it ended
        self._command = command
        gate, self._go = os.pipe()
        self._failure, failed = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._go)
            os.close(self._failure)
            _become(command, gate, failed)
        os.close(gate)
        os.close(failed)

    def dismiss(self) -> None:
        os.close(self._go)  # it ends by itself
        os.close(self._failure)
        os.waitpid(self.pid, 0)

    def run(self, afterwards: Callable[[], None]) -> int:
        """The exit status of the command, once it has ended."""
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON | {signal.SIGCHLD})
            with contextlib.suppress(BrokenPipeError):  # it was killed while we waited
                os.write(self._go, b"!")
            os.close(self._go)
            status = _attend(self.pid)
        finally:
            afterwards()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON | {signal.SIGCHLD})
        reason = os.read(self._failure, 100)
        os.close(self._failure)
        if reason:
            raise CannotRun(f"cannot run {self._command[0]}: {os.strerror(int(reason))}")
        return status


def _become(command: list[str], gate: int, failed: int) -> NoReturn:
    """In the new process: wait until it may, then be the command."""
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
        pid, status = os.waitpid(child, os.WNOHANG)  # first: no signal tells of an end before
        if pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        told = signal.sigwaitinfo(PASSED_ON | {signal.SIGCHLD})
        # From a process; the kernel tells the whole group of a terminal.
        if told.si_signo != signal.SIGCHLD and told.si_code <= 0:
            os.kill(child, told.si_signo)


def _give_back(place: Place, name: str, scope: str, owner: owners.Owner) -> None:
    # The owner is dead, so the next who asks gets the lock in any case: a failure here is no reason
    # to keep the command's exit status from the caller.
    with contextlib.suppress(IcError):
        store.release(place, name, scope, owner)


VERBS = [
    Command(
        "hold",
        Hold,
        ask_hold,
        summary="Run a command while holding a lock.",
        examples=[
            "icctl hold deploy web -- ./deploy.sh web",
            "icctl hold build main --timeout=10m -- make -j4",
        ],
    ),
]
