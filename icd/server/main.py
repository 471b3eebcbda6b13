"""The life of the daemon on one screen: own the socket, serve, be told to stop, drain, leave."""

import contextlib
import gc
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from functools import partial
from importlib import import_module
from typing import NoReturn, TypeVar

import anyio
import msgspec

import icd
from icd import __version__, config
from icd.app import registry
from icd.app.dispatch import Clock
from icd.db import migrate
from icd.errors import AlreadyRunning, Guard, Misconfigured
from icd.server import limits, logs, reexec, structs, systemd
from icd.server.lifecycle import Lifecycle
from icd.server.logs import Once, Starter, log
from icd.server.metrics.status import About
from icd.server.net import socket_claim
from icd.server.net.connections import Connections
from icd.server.net.handler import Handler
from icd.server.net.listener import SHORTAGE
from icd.server.net.socket_claim import SocketClaim
from icd.server.reexec import Handover
from icd.server.reload import Preflight, Reload
from icd.server.stores.registry import Stores
from icd.server.workers import dispatch_watcher
from icd.server.workers.errands import Errands
from icd.server.workers.hooks import Hooks, home
from icd.server.workers.mirror import Mirrors
from icd.server.workers.mirror_files import root as interband_root

T = TypeVar("T")
ReadSettings = Callable[..., config.Settings]


def main(
    socket_path: str | None,
    config_file: str | None,
    flags: dict[str, str | None],
    *,
    starter: Starter,
    exit_idle: bool = False,
    preflight: bool = False,
) -> int:
    """Serve until told to stop; the exit status is returned.  `flags` are settings by name."""
    directory = _directory()
    logs.set_up(path=starter.path)
    os.umask(0o077)
    # A child that hangs before it has become another program would hold up all of us; see reload.
    subprocess._USE_VFORK = False  # type: ignore[misc]  # noqa: SLF001 -- as its manual says
    settings = _settings(config_file, flags)
    settings()  # complain before anything is bound
    structs.learn()
    registry.after_load.append(structs.learn)
    rest = _loading()
    if preflight:
        for pause in rest:
            time.sleep(pause)
        return _show_preflight()
    _raise_descriptor_limit()
    # Calls make no cycles; looking for them every 700 objects only costs time.
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()
    claim, inherited = reexec.take_over() or (_claim(socket_path), Handover())
    os.chdir("/")
    left: Handover | None = inherited
    run = partial(
        serve, claim, settings, directory=directory, starter=starter, leaves=exit_idle, rest=rest
    )
    try:
        while left is not None:
            left = anyio.run(run, left, backend="asyncio")
    finally:
        claim.release()
    return 0


async def serve(
    claim: SocketClaim,
    settings: ReadSettings,
    inherited: Handover,
    *,
    directory: str,
    starter: Starter,
    leaves: bool,
    rest: Iterator[float],
) -> Handover | None:
    """Serve until told to stop or to become other code; if that fails, what to go on with.

    `leaves`: when it is idle, also if systemd does not start it again.  `rest` loads what is left.
    """
    with anyio.open_signal_receiver(*reexec.HELD_BACK) as signals:
        reexec.release_signals()
        async with anyio.create_task_group() as background:
            # --- start up ---
            mirrors = Mirrors(interband_root(), home(), Clock(), background)
            hooks = Hooks(home(), lambda: claim.path, background)
            attach = (mirrors.attach, hooks.attach, partial(dispatch_watcher.attach, background))
            stores = Stores(settings, Clock(), background, attach, settings().vectors_max_mib)
            about = About(lambda: claim.path, stores, mirrors, hooks, settings().slow_ms)
            reload = Reload(directory, inherited)
            errands = Errands()
            async with anyio.create_task_group() as tasks:
                make = partial(
                    Handler,
                    stores=stores,
                    about=about,
                    reload=reload,
                    errands=errands,
                    tasks=tasks,
                )
                connections = Connections(tasks, about, make)
                life = Lifecycle(
                    claim, tasks, connections=connections, stores=stores, hooks=hooks, reload=reload
                )
                background.start_soon(life.obey, signals)
                connections.take_over(inherited.connections)
                stores.open_again(inherited.databases)
                life.start(settings().exit_idle_seconds, leaves=leaves)
                tasks.start_soon(systemd.feed, about.summary)
                _announce(claim.path, inherited)
                starter.release()
                tasks.start_soon(_load, rest, life)

                # --- serve ---
                left = await life.run()

                # --- shut down ---
                if left is None:
                    systemd.notify("STOPPING=1", "STATUS=stopping")
                    await connections.close()
                tasks.cancel_scope.cancel()
            handover = None if left is None else Handover(left, stores.needed)
            errands.close()
            await hooks.close()
            await _close(claim, mirrors, stores, hand_over=handover is not None)
            if handover is not None:
                reexec.hold_signals()
                await anyio.sleep(0.001)  # what arrived just before is heard now
                reexec.pass_on(life.too_late)
                # From here: to wait for our own tasks is to wait for a database that hangs.
                _become_new(claim, handover, directory)
            background.cancel_scope.cancel()  # look-ups of databases that are not needed any more
    return handover


def _settings(config_file: str | None, flags: dict[str, str | None]) -> ReadSettings:
    if config_file and not os.path.exists(config_file):
        raise Misconfigured(f"{config_file} does not exist", hint="check --config")
    path = os.path.abspath(config_file) if config_file else _user_file()
    above = config.from_environment(os.environ) | config.from_flags(flags)
    return partial(config.load, path, given=above, tell=Once().warn)


# Us; and what only a caller's own process, or a project with a server, runs: their rows, which help
# needs, the registry loads.
_LEFT_OUT = ("icd.__main__", "icd.admin.", "icd.db.postgres", "icd.mcp.", "icd.top.")


# The client that has started us asks at once; that long, nothing is loaded that it does not need.
LOAD_AFTER_SECONDS = 0.1


def _loading() -> Iterator[float]:
    """An upgrade replaces the files of an installation under the daemon that runs from them.

    What it had not loaded by then would be of the new version, amidst the old: so it loads
    everything when it has started, module by module, and stays whole until it is reloaded.
    Between two modules it says for how long others may have their turn.
    """
    names = yield from _patiently(_names)
    yield from _patiently(migrate.load)
    for name in names:
        yield from _patiently(partial(_load_one, name))
    structs.learn()  # what these have loaded of what we leave out
    gc.freeze()


def _patiently(work: Callable[[], T]) -> Generator[float, None, T]:
    """Callers may have all descriptors: that passes, and says nothing about the code."""
    while True:
        try:
            done = work()
        except OSError as exc:
            if exc.errno not in SHORTAGE:
                raise
            yield limits.SHORTAGE_SECONDS
        else:
            yield 0
            return done


def _names() -> list[str]:
    every = _modules(os.path.dirname(icd.__file__), "icd")
    return [*(n for n in every if not n.startswith(_LEFT_OUT)), *registry.modules()]


def _load_one(name: str) -> None:
    import_module(name)
    structs.learn(name)


async def _load(rest: Iterator[float], life: Lifecycle) -> None:
    """Load what the first calls do without, in between of others; or make way for a daemon that
    can: an upgrade that came too early has left us with parts of two versions."""
    await anyio.sleep(LOAD_AFTER_SECONDS)

    def leave(exc: Exception) -> None:
        log.error("cannot load all of the installed code", exc_info=exc)
        life.stop("its code is incomplete")

    with Guard(leave):
        for pause in rest:
            await anyio.sleep(pause)


def _modules(directory: str, package: str) -> Iterator[str]:
    """The names of all modules in a package; as `pkgutil` does it, in a third of the time."""
    for entry in os.scandir(directory):
        name, dot, ending = entry.name.partition(".")
        if not dot and name != "__pycache__" and entry.is_dir():
            yield from _modules(entry.path, f"{package}.{name}")
        elif ending == "py":
            yield package if name == "__init__" else f"{package}.{name}"


def _directory() -> str:
    """Where we were started, which may be gone by now: then relative paths mean nothing."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "/"


def _claim(socket_path: str | None) -> SocketClaim:
    try:
        passed = systemd.passed_socket()
        if passed is not None:
            return socket_claim.take(passed)
        return socket_claim.claim(
            socket_claim.choose(socket_path or os.environ.get("INTERCORE_SOCKET"))
        )
    except AlreadyRunning as exc:
        # To a service manager it is a success, but only after we said so.
        systemd.notify("READY=1", f"STATUS={exc.message}")
        raise


def _show_preflight() -> int:
    """Print what the reload of a running daemon asks: that this code starts, and its version."""
    anyio.run(systemd.check, backend="asyncio")
    said = msgspec.json.encode(Preflight(version=__version__, handover=reexec.FORMAT))
    sys.stdout.write(said.decode())
    return 0


def _become_new(claim: SocketClaim, left: Handover, directory: str) -> None:
    """Execute the new code.  Returns only if that fails: then we go on where we left off."""
    try:
        reexec.execute(claim, left, directory)
    except OSError as exc:
        log.error("not reloaded: %s", exc)
        left.failure = f"the new version does not start: {exc}"


def _announce(path: str, inherited: Handover) -> None:
    log.info("listening", extra={"socket": path, "version": __version__})
    systemd.notify("READY=1", f"STATUS=listening at {path}", f"MAINPID={os.getpid()}")
    if not inherited.previous:
        _greet(path)


async def _close(claim: SocketClaim, mirrors: Mirrors, stores: Stores, *, hand_over: bool) -> None:
    """Close mirrors and databases; a thread that hangs is left behind, for the exec or exit to end.

    For the exec everything is answered already, and others wait: then they get less time for it.
    """
    patience = limits.FLUSH_SECONDS if hand_over else limits.DRAIN_SECONDS
    with anyio.move_on_after(patience) as drained:
        await mirrors.close()
        await stores.close()
    if drained.cancelled_caught:
        log.warning("a database does not close; exiting without it")
        if not hand_over:
            _leave_behind(claim)


def _leave_behind(claim: SocketClaim) -> NoReturn:
    """Exit now: nothing but the end of the process ends a thread that hangs."""
    claim.release()
    os._exit(0)


def _user_file() -> str | None:
    return config.user_file(os.environ.get("HOME"))


def _raise_descriptor_limit() -> None:
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _greet(path: str) -> None:
    """Tell a newcomer at a terminal what to do next."""
    if not sys.stderr.isatty():
        return
    prefix = "" if path in socket_claim.candidates() else f"export INTERCORE_SOCKET={path}\n    "
    if shutil.which("icctl") is None:
        prefix += f'export PATH="{os.path.dirname(sys.executable)}:$PATH"\n    '
    greeting = f"""
icd {__version__} serves all your projects at {path}.
In a second terminal, in a project's directory:

    {prefix}icctl init
    icctl sentinel check hello "$$" --interval=60     # allowed
    icctl sentinel check hello "$$" --interval=60     # throttled
    echo '{{"phase":"planned"}}' | icctl state set demo me
    icctl state get demo me

Stop with Ctrl-C.
"""
    with contextlib.suppress(OSError):  # the terminal may be closed by now
        sys.stderr.write(greeting)
