"""The life of the daemon on one screen: own the socket, serve, be told to stop, drain, leave."""

import asyncio
import gc
import os
import resource
import signal
import socket
import sys

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
from icd.server.router import Router
from icd.server.session import Session


def main(socket_path: str | None, config_file: str | None) -> int:
    """Serve until told to stop; the exit status is returned."""
    logs.set_up()
    os.umask(0o077)
    settings_file = os.path.abspath(config_file) if config_file else _user_file()
    if config_file and not os.path.exists(config_file):
        raise Misconfigured(f"there is no file {config_file}", hint="check --config")
    config.load(settings_file)  # complain before anything is bound
    path = sockets.choose(socket_path or os.environ.get("INTERCORE_SOCKET"))
    _raise_descriptor_limit()
    methods.every()  # what is loaded now need not be loaded by the first caller
    # Calls make no cycles; looking for them every 700 objects only costs time.
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    given = path not in sockets.candidates()
    with sockets.owned(path, given=given) as sock:
        os.chdir("/")
        anyio.run(serve, sock, path, settings_file, backend="asyncio")
    return 0


async def serve(sock: socket.socket, path: str, settings_file: str | None) -> None:
    sessions: set[Session] = set()
    async with anyio.create_task_group() as lanes:
        router = Router(settings_file, Clock(), lanes)
        about = About(path, router)
        async with anyio.create_task_group() as tasks:
            with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
                listener = Listener(sock, _Door(tasks, sessions, router, about).open)
                sock.listen(limits.BACKLOG)  # not before we can be told to stop
                tasks.start_soon(listener.run)
                log.info("listening", extra={"socket": path, "version": __version__})
                _greet(path)
                await anext(aiter(signals))
            log.info("stopping", extra={"sessions": len(sessions)})
            listener.stop()
            await _drain(sessions)
            tasks.cancel_scope.cancel()
        with anyio.move_on_after(limits.DRAIN_SECONDS):
            await router.close()
        lanes.cancel_scope.cancel()


async def _drain(sessions: set[Session]) -> None:
    """Let every session answer what it has read, for a limited time."""
    for session in list(sessions):
        session.stop()
    with anyio.move_on_after(limits.DRAIN_SECONDS):
        for session in list(sessions):
            await session.ended.wait()


class _Door:
    """Turns accepted connections into sessions."""

    def __init__(
        self, tasks: TaskGroup, sessions: set[Session], router: Router, about: About
    ) -> None:
        self._tasks = tasks
        self._sessions = sessions
        self._router = router
        self._about = about

    def open(self, connection: socket.socket, pid: int) -> None:
        if len(self._sessions) >= limits.SESSIONS:
            connection.close()
            return
        session = Session(Desk(pid, self._router, self._about), self._tasks, self._left)
        self._sessions.add(session)
        self._about.sessions = len(self._sessions)
        self._tasks.start_soon(_begin, connection, session)

    def _left(self, session: Session) -> None:
        self._sessions.discard(session)
        self._about.sessions = len(self._sessions)


async def _begin(connection: socket.socket, session: Session) -> None:
    await asyncio.get_running_loop().connect_accepted_socket(lambda: session, connection)


def _user_file() -> str | None:
    return config.user_file(os.environ.get("HOME"))


def _raise_descriptor_limit() -> None:
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _greet(path: str) -> None:
    """Tell a newcomer at a terminal what to do next."""
    if not sys.stderr.isatty():
        return
    default = path in sockets.candidates()
    prefix = "" if default else f"export INTERCORE_SOCKET={path}\n    "
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
