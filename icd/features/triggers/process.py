"""One run of one hook: a process of its own that nothing waits for longer than agreed.

Promises
    - the environment is a person's shell, and the event; nothing of the host: what a daemon was
      started with is its own, such as sockets and watchdogs of a service manager, what one daemon
      leaves to the next, tokens of the user who started it; so names are taken from a list;
    - the input is complete before the process starts: it is a file in memory, so no pipe has to be
      fed, and a hook that does not read it holds nothing up;
    - the process leads a session of its own, and when it ends, or its time is up, whatever is left
      of its group is killed: what shall live longer must leave the group (`setsid`);
    - a process that keeps the output open after that is not waited for;
    - of the output only the end is kept, and who writes far too much finds the pipe closed.
"""

import os
import resource
import select
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from errno import EAGAIN, EMFILE, ENFILE, ENOMEM

from msgspec import Struct

from icd.features.triggers.store import HOOK, Delivery, Done

PASSED_ON = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "XDG_RUNTIME_DIR"}
    # How the hook's own calls find the daemon that their caller would find.
    | {"INTERCORE_SOCKET", "INTERCORE_MODE"}
)
# A fact is a name or an identifier; what is longer is in the JSON, in full.
FACT_CHARACTERS = 1000

# Enough for what a failing script has to say; a log is not a store.
OUTPUT_BYTES = 4096
# Who writes more than this is cut off.
FLOOD_BYTES = 1024 * 1024
READ_BYTES = 65_536
# What was killed ends at once, unless the kernel is busy for it; that is not waited for.
DEATH_SECONDS = 1.0
# What programs are used to; the daemon's own limit is far above it, and some programs look at
# every descriptor that they could have.
DESCRIPTORS = 1024
UMASK = 0o022

NO_ROOM = (EAGAIN, ENOMEM, EMFILE, ENFILE)

_SIGNALS = {int(each): each.name for each in signal.Signals}
_STOPPED = "was stopped with the daemon"


class Outcome(Struct, frozen=True):
    """`status` as subprocess has it: negative for a signal; `problem` is empty if all went well."""

    status: int | None
    problem: str = ""
    output: bytes = b""
    is_cut: bool = False  # there was more output
    is_stopped: bool = False  # through no fault of its own: it shall run again


class NotStarted(OSError):
    """The machine had no room for a process; try again later."""


def deliver(
    delivery: Delivery,
    program: str,
    *,
    project: str,
    database: str,
    own: Mapping[str, str],
    seconds: float,
    stop: int | None = None,
) -> Outcome:
    """Run what was trusted with the event on its stdin; `own`: this process's environment."""
    env = _environment(own, project=project, database=database, delivery=delivery)
    event = delivery.event.encode() + b"\n"
    return run(program, event, project=project, env=env, seconds=seconds, stop=stop)


def done(delivery: Delivery, outcome: Outcome) -> Done:
    return Done(delivery.hook, delivery.seq, delivery.run_id, outcome.problem, outcome.status)


def run(
    program: str,
    event: bytes,
    *,
    project: str,
    env: dict[str, str],
    seconds: float,
    stop: int | None = None,
) -> Outcome:
    """Run the program to its end.  `stop`: a descriptor that becomes readable to end it early."""
    try:
        process, reading = _start(program, event, project=project, env=env)
    except OSError as exc:
        if exc.errno in NO_ROOM:
            raise NotStarted(str(exc.strerror)) from exc
        return Outcome(None, f"cannot be started: {exc.strerror}")
    watch = _Watch(reading, stop)
    problem = "cannot be watched"
    try:
        problem = watch.wait(process.pid, seconds)
    finally:
        status = _end(process)
        watch.read_rest()
    return Outcome(
        status,
        problem or _problem(status),
        watch.output,
        is_cut=watch.size > len(watch.output),
        is_stopped=problem == _STOPPED,
    )


def _environment(
    own: Mapping[str, str], *, project: str, database: str, delivery: Delivery
) -> dict[str, str]:
    passed = {name: value for name, value in own.items() if _is_passed_on(name)}
    facts = {
        HOOK: delivery.hook,
        "INTERCORE_PROJECT": project,
        "INTERCORE_DB": database,
        "INTERCORE_EVENT_SEQ": str(delivery.seq),
        "INTERCORE_EVENT_SOURCE": _fact(delivery.source),
        "INTERCORE_EVENT_TYPE": _fact(delivery.type),
        "INTERCORE_EVENT_RUN": _fact(delivery.run_id),
    }
    if delivery.redelivery:
        facts["INTERCORE_REDELIVERY"] = "1"
    return passed | facts


def _is_passed_on(name: str) -> bool:
    return name in PASSED_ON or name.startswith("LC_")


def _fact(text: str) -> str:
    """An environment holds no NUL."""
    return text[:FACT_CHARACTERS].replace("\0", "")


def _start(
    program: str, event: bytes, *, project: str, env: dict[str, str]
) -> "tuple[subprocess.Popen[bytes], int]":
    """The process, and where to read what it says."""
    with open(os.memfd_create("event", os.MFD_CLOEXEC), "wb") as stdin:
        stdin.write(event)
        stdin.seek(0)
        reading, writing = os.pipe()
        # Children inherit the mask of the thread that starts them.
        mask = signal.pthread_sigmask(signal.SIG_SETMASK, ())
        try:
            process = subprocess.Popen(  # noqa: S603 -- the user trusts it
                [program],
                stdin=stdin,
                stdout=writing,
                stderr=writing,
                cwd=project,
                env=env,
                umask=UMASK,
                start_new_session=True,
            )
        except BaseException:
            os.close(reading)
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            os.close(writing)
    _limit_descriptors(process.pid)
    return process, reading


def _limit_descriptors(pid: int) -> None:
    """Just after its start: in a process with threads nothing of ours can run before the exec."""
    with suppress(OSError):
        soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        if soft == resource.RLIM_INFINITY or soft > DESCRIPTORS:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, hard))


class _Watch:
    """Reads what a process says until it ends."""

    def __init__(self, reading: int, stop: int | None) -> None:
        self.output = b""
        self.size = 0
        self._reading = reading
        self._stop = stop
        self._is_closed = False
        os.set_blocking(reading, False)

    def wait(self, pid: int, seconds: float) -> str:
        """Wait until the process ends, or return why it has to."""
        deadline = time.monotonic() + seconds
        poll = select.poll()
        poll.register(self._reading, select.POLLIN)
        if self._stop is not None:
            poll.register(self._stop, select.POLLIN)
        ended = os.pidfd_open(pid)
        poll.register(ended, select.POLLIN)
        try:
            while True:
                left = deadline - time.monotonic()
                ready = [fd for fd, _ in poll.poll(max(0, left) * 1000)]
                if ended in ready:
                    return ""
                if self._stop in ready:
                    return _STOPPED
                if left <= 0:
                    return f"took longer than {seconds:g} s, and was killed"
                if self._reading in ready and self._read() == b"":
                    poll.unregister(self._reading)
        finally:
            os.close(ended)

    def read_rest(self) -> None:
        """What is there already; a process that still holds the other end is not waited for."""
        while self._read():
            pass
        self._close()

    def _read(self) -> bytes | None:
        """None: nothing at the moment; empty: nothing any more."""
        if self.size > FLOOD_BYTES:
            self._close()
        if self._is_closed:
            return b""
        try:
            chunk = os.read(self._reading, READ_BYTES)
        except BlockingIOError:
            return None
        self.size += len(chunk)
        self.output = (self.output + chunk)[-OUTPUT_BYTES:]
        return chunk

    def _close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            os.close(self._reading)


def _end(process: "subprocess.Popen[bytes]") -> int | None:
    """Kill what is left of its group; its status, unless it cannot even be killed."""
    # It was not reaped yet, so the number is still that of its group.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        return process.wait(DEATH_SECONDS)
    except subprocess.TimeoutExpired:
        return None


def _problem(status: int | None) -> str:
    if status is None:
        return "did not end after SIGKILL"
    if status < 0:
        return f"was killed by {_SIGNALS.get(-status, f'signal {-status}')}"
    return f"exited with {status}" if status else ""
