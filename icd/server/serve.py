"""The life of the daemon on one screen: own the socket, serve, be told to stop, drain, leave."""

import asyncio
import contextlib
import gc
import os
import resource
import shutil
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial
from typing import NoReturn

import anyio
from anyio.abc import TaskGroup

from icd import __version__, config
from icd.errors import Misconfigured
from icd.rpc import methods
from icd.rpc.method import Clock
from icd.server import limits, logs, sockets
from icd.server.about import About
from icd.server.desk import Desk
from icd.server.listener import Listener
from icd.server.logs import log
from icd.server.mirrors import Mirrors
from icd.server.mirrors import root as interband_root
from icd.server.router import Router
from icd.server.session import Session


def main(socket_path: str | None, config_file: str | None, flags: dict[str, str | None]) -> int:
    """Serve until told to stop; the exit status is returned.  `flags` are settings by name."""
    logs.set_up()
    os.umask(0o077)
    settings_file = os.path.abspath(config_file) if config_file else _user_file()
    if config_file and not os.path.exists(config_file):
        raise Misconfigured(f"there is no file {config_file}", hint="check --config")
    above = config.from_environment(os.environ) | config.from_flags(flags)
    settings = partial(config.load, settings_file, given=above)
    settings()  # complain before anything is bound
    path = sockets.choose(socket_path or os.environ.get("INTERCORE_SOCKET"))
    _raise_descriptor_limit()
    methods.every()  # what is loaded now need not be loaded by the first caller
    # Calls make no cycles; looking for them every 700 objects only costs time.
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    given = path not in sockets.candidates()
    with sockets.owned(path, given=given) as sock:
        os.chdir("/")
        anyio.run(serve, sock, path, settings, backend="asyncio")
    return 0


async def serve(sock: socket.socket, path: str, settings: Callable[[str], config.Settings]) -> None:
    async with anyio.create_task_group() as lanes:
        mirrors = Mirrors(interband_root(), Clock(), lanes)
        router = Router(settings, Clock(), lanes, mirrors.attach)
        about = About(path, router, mirrors, settings("").slow_ms)
        async with anyio.create_task_group() as tasks:
            door = Door(tasks, router, about)
            with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
                listener = Listener(sock, door.open)
                sock.listen(limits.BACKLOG)  # not before we can be told to stop
                tasks.start_soon(listener.run)
                log.info("listening", extra={"socket": path, "version": __version__})
                _greet(path)
                await anext(aiter(signals))
            log.info("stopping", extra={"sessions": about.sessions})
            listener.stop()
            await door.close()
            tasks.cancel_scope.cancel()
        with anyio.move_on_after(limits.DRAIN_SECONDS) as drained:
            await mirrors.close()
            await router.close()
        if drained.cancelled_caught:
            _leave_behind(path)
        lanes.cancel_scope.cancel()  # whoever still looks for a database


def _leave_behind(path: str) -> NoReturn:
    """A database hangs, and its thread with it: nothing but the end of the process ends that."""
    log.warning("a database does not close; leaving without it")
    with contextlib.suppress(OSError):
        os.unlink(path)
    os._exit(0)


class Door:
    """Turns accepted connections into sessions, and sees them out."""

    def __init__(self, tasks: TaskGroup, router: Router, about: About) -> None:
        self._tasks = tasks
        self._router = router
        self._about = about
        self._sessions: set[Session] = set()
        self._closing = False

    def open(self, connection: socket.socket, pid: int) -> None:
        if len(self._sessions) >= limits.SESSIONS:
            connection.close()
        else:
            self._tasks.start_soon(self._begin, connection, pid)

    async def close(self) -> None:
        """Let every session answer what it has read, for a limited time."""
        self._closing = True
        for session in list(self._sessions):
            session.stop()
        with anyio.move_on_after(limits.DRAIN_SECONDS):
            for session in list(self._sessions):
                await session.ended.wait()

    async def _begin(self, connection: socket.socket, pid: int) -> None:
        session = Session(Desk(pid, self._router, self._about), self._tasks, self._left)
        try:
            loop = asyncio.get_running_loop()
            await loop.connect_accepted_socket(lambda: session, connection)
        except OSError:  # it has left already
            connection.close()
            return
        if session.ended.is_set():
            return
        self._sessions.add(session)
        self._about.sessions = len(self._sessions)
        if self._closing:
            session.stop()

    def _left(self, session: Session) -> None:
        self._sessions.discard(session)
        self._about.sessions = len(self._sessions)


def _user_file() -> str | None:
    return config.user_file(os.environ.get("HOME"))


def _raise_descriptor_limit() -> None:
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _greet(path: str) -> None:
    """Tell a newcomer at a terminal what to do next."""
    if not sys.stderr.isatty():
        return
    prefix = "" if path in sockets.candidates() else f"export INTERCORE_SOCKET={path}\n    "
    if shutil.which("icctl") is None:
        prefix += f'export PATH="{os.path.dirname(sys.executable)}:$PATH"\n    '
    sys.stderr.write(
        f"""
icd {__version__} serves every project of yours at {path}.
In a second terminal, in a project's directory:

    {prefix}icctl init
    icctl sentinel check hello "$$" --interval=60     # allowed
    icctl sentinel check hello "$$" --interval=60     # throttled
    echo '{{"phase":"planned"}}' | icctl state set demo me
    icctl state get demo me

Stop with Ctrl-C.
"""
    )
