"""A daemon without systemd: start one in the background, and stop the one that runs.

Which daemon is meant, its socket says: the process that listens there and its owner lock beside it
name the same pid, or it is not stopped.  So it is never a number out of a project.  One that
systemd runs is left to systemctl: systemd would go on listening, and start it for the next call.
"""

import os
import select
import signal
import time

from msgspec import Struct

from icd import config, files
from icd.admin.doctor.context import Seen
from icd.admin.service import detach, systemd
from icd.app import render
from icd.app.invocation import Output, World
from icd.errors import NoSystemd, ServiceFailed

# A cold start on a busy machine.
START_SECONDS = 20.0
# icd drains for 5 s, waits 6 s for hooks and 2 s for mirrored files; the rest is a slow disk.
STOP_SECONDS = 20.0
# A daemon that is there answers within milliseconds.
LOOK_SECONDS = 5.0
PID_BYTES = 32
# How often to look whether another caller has started the daemon.
TURN_SECONDS = 0.05


class Started(Struct):
    """`started`: by this command; else it ran already."""

    started: bool
    pid: int
    version: str
    socket: str


class Stopped(Struct):
    """`pid`: of the daemon that was stopped, or null if there was none."""

    pid: int | None


def start(world: World) -> Output:
    deadline = time.monotonic() + START_SECONDS
    found = _daemon(world)
    if found is None:
        _take_turn(deadline)
        found = _daemon(world)
    if found is not None:
        return _told(world, found, started=False)
    while found is None:
        said = _attempt(deadline)
        if not said and time.monotonic() > deadline:
            said = f"it does not answer after {START_SECONDS:.0f} seconds"
        if said:
            raise ServiceFailed(f"icd does not start: {said}", hint=_see_log(world))
        found = _daemon(world)
    return _told(world, found, started=True)


def stop(world: World) -> Output:
    seen = next((each for each in _look(world) if each.pid is not None), None)
    if seen is None or seen.pid is None:
        return render.to_json(Stopped(None)) if world.json else render.text("no daemon is running")
    if _owner(seen.path) != seen.pid:
        told = f"process {seen.pid} listens at {seen.path}, and does not hold the lock of a daemon"
        raise ServiceFailed(told, hint="see 'icctl doctor'")
    if _is_of_systemd(world, seen.pid):
        hint = f"stop it with: systemctl --user stop {systemd.SOCKET} {systemd.SERVICE}"
        raise ServiceFailed(f"systemd runs icd (pid {seen.pid})", hint=hint)
    _end(seen.pid)
    if world.json:
        return render.to_json(Stopped(seen.pid))
    return render.text(f"stopped icd (pid {seen.pid})")


def ensure(world: World) -> Output:
    """For a command line that the client did not recognise at once, such as one with --json."""
    detach.ensure(lambda: any(map(_is_alive, _look(world))), world.program)
    return Output(0)


# --- who is there ---------------------------------------------------------------------------------


def _look(world: World) -> list[Seen]:
    assert world.sight is not None  # only a caller's own process comes here
    found: list[Seen] = world.sight().look(time.monotonic() + LOOK_SECONDS)
    return found


def _is_alive(seen: Seen) -> bool:
    return seen.outcome in {"answers", "silent"}


def _daemon(world: World) -> Seen | None:
    """The daemon that answers, if there is one; one that hangs is an error."""
    found = next(filter(_is_alive, _look(world)), None)
    if found is not None and found.outcome == "silent":
        raise ServiceFailed(f"a daemon listens at {found.path}, and does not answer")
    return found


def _owner(socket: str) -> int | None:
    """The pid in the owner lock of a socket; its directory is ours, or it had been ignored."""
    try:
        with files.opened(f"{socket.removesuffix('.sock')}.lock") as fd:
            return int(os.read(fd, PID_BYTES))
    except (OSError, ValueError):
        return None


def _is_of_systemd(world: World, pid: int) -> bool:
    try:
        return systemd.states(world.env, systemd.SOCKET, systemd.SERVICE)[1].pid == pid
    except (NoSystemd, ServiceFailed):
        return False


# --- its start and its end ------------------------------------------------------------------------


def _take_turn(deadline: float) -> None:
    """Of several callers one starts the daemon, and the others find it there.

    Who waited long enough goes on without its turn: the daemon's own lock decides.
    """
    while not detach.take_turn(wait=False) and time.monotonic() < deadline:
        time.sleep(TURN_SECONDS)


def _attempt(deadline: float) -> str:
    """Start one, and wait until it listens or has ended; why it failed, if it says so.

    One that ends without a word has left its place to another, which may be about to listen, or to
    end: then there is no daemon, and the next attempt is the right one.
    """
    try:
        return detach.last_line(_hear(detach.start(), deadline))
    except OSError as exc:
        raise ServiceFailed(f"no process can be started: {exc.strerror}", hint="retry") from exc


def _hear(listening: int, deadline: float) -> bytes:
    """What a daemon says until it listens, has ended or takes too long."""
    poll, said = select.poll(), b""
    poll.register(listening, select.POLLIN)
    try:
        while poll.poll(max(0.0, 1000 * (deadline - time.monotonic()))):
            data = os.read(listening, detach.LINE_BYTES)
            if not data:
                break
            said = (said + data)[-detach.LINE_BYTES :]
    finally:
        os.close(listening)
    return said


def _end(pid: int) -> None:
    """Have it stop, and wait for its end: a number may be another process's by then."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except OSError as exc:
        raise ServiceFailed(
            f"icd (pid {pid}) cannot be stopped: {exc.strerror}", hint=f"stop it with: kill {pid}"
        ) from exc
    try:
        signal.pidfd_send_signal(process, signal.SIGTERM)
        poll = select.poll()
        poll.register(process, select.POLLIN)
        if not poll.poll(1000 * STOP_SECONDS):
            told = f"icd (pid {pid}) has not ended after {STOP_SECONDS:.0f} seconds"
            raise ServiceFailed(told, hint=f"end it with: kill -KILL {pid}")
    except ProcessLookupError:
        pass
    finally:
        os.close(process)


# --- what is told ---------------------------------------------------------------------------------


def _told(world: World, seen: Seen, *, started: bool) -> Output:
    about = seen.report or {}
    found = Started(started, int(about["pid"]), str(about["version"]), seen.path)
    if world.json:
        return render.to_json(found)
    verb = "started" if started else "already running:"
    return render.text(f"{verb} icd {found.version} (pid {found.pid}) at {found.socket}")


def _see_log(world: World) -> str:
    path = config.log_file(world.env)
    return f"see {path}" if path else "set HOME to your home directory"
