"""The life of the daemon on one screen: own the socket, serve, be told to stop, drain, leave."""

import gc
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import NoReturn

import anyio
import msgspec

from icd import __version__, config
from icd.app import registry
from icd.app.call import Clock
from icd.errors import AlreadyRunning, Misconfigured
from icd.server import handover, limits, logs, modules, systemd, watchdog
from icd.server.handover import Estate
from icd.server.lifecycle import Life
from icd.server.logs import log
from icd.server.metrics.status import About
from icd.server.net import socket_claim as sockets
from icd.server.net.connections import Door
from icd.server.net.handler import Desk
from icd.server.net.socket_claim import Claim
from icd.server.reload import Preflight, Reload
from icd.server.stores.registry import Router
from icd.server.workers.dispatches.observers import Observers
from icd.server.workers.hooks import Hooks, home
from icd.server.workers.mirror import Mirrors
from icd.server.workers.mirror_files import root as interband_root
from icd.server.workers.once import Once

ReadSettings = Callable[..., config.Settings]


def main(
    socket_path: str | None,
    config_file: str | None,
    flags: dict[str, str | None],
    *,
    preflight: bool = False,
) -> int:
    """Serve until told to stop; the exit status is returned.  `flags` are settings by name."""
    directory = _directory()
    logs.set_up()
    os.umask(0o077)
    # A child that hangs before it has become another program would hold up all of us; see reload.
    subprocess._USE_VFORK = False  # type: ignore[misc]  # noqa: SLF001 -- as its manual says
    settings = _settings(config_file, flags)
    settings()  # complain before anything is bound
    modules.load_all()  # an upgrade may replace the files from now on
    registry.every()
    if preflight:
        return _show_preflight()
    _raise_descriptor_limit()
    # Calls make no cycles; looking for them every 700 objects only costs time.
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    claim, estate = handover.take_over() or (_claim(socket_path), Estate())
    os.chdir("/")
    left: Estate | None = estate
    try:
        while left is not None:
            left = anyio.run(serve, claim, settings, left, directory, backend="asyncio")
    finally:
        claim.release()
    return 0


async def serve(
    claim: Claim, settings: ReadSettings, estate: Estate, directory: str
) -> Estate | None:
    """Until told to stop, or until we are other code; if that fails, the estate to go on with."""
    with anyio.open_signal_receiver(*handover.HELD_BACK) as signals:
        handover.release_signals()
        async with anyio.create_task_group() as lanes:
            mirrors = Mirrors(interband_root(), home(), Clock(), lanes)
            hooks = Hooks(home(), lambda: claim.path, lanes)
            observers = Observers(lanes)
            attach = (mirrors.attach, hooks.attach, observers.attach)
            router = Router(settings, Clock(), lanes, attach, settings().vectors_max_mib)
            about = About(claim.path, router, mirrors, hooks, settings().slow_ms)
            reload = Reload(directory, estate)
            async with anyio.create_task_group() as tasks:
                door = Door(tasks, about, lambda pid: Desk(pid, router, about, reload))
                life = Life(
                    claim,
                    tasks,
                    door=door,
                    router=router,
                    hooks=hooks,
                    about=about,
                    reload=reload,
                    exit_idle_seconds=settings().exit_idle_seconds,
                )
                lanes.start_soon(life.obey, signals)
                door.take_up(estate.connections)
                router.open_again(estate.databases)
                claim.sock.listen(limits.BACKLOG)  # not before we can be told to stop
                _announce(claim.path, estate)
                left = await life.run()
                if left is None:
                    systemd.notify("STOPPING=1", "STATUS=stopping")
                    await door.close()
                tasks.cancel_scope.cancel()
            databases = router.needed
            await hooks.close()
            await _close(claim, mirrors, router, hand_over=left is not None)
            if left is not None:
                handover.hold_signals()
                await anyio.sleep(0.001)  # what arrived just before is heard now
                handover.pass_on(life.too_late)
                # From here: to wait for our own tasks is to wait for a database that hangs.
                heirloom = Estate(left, databases)
                _become_new(claim, heirloom, directory)
            lanes.cancel_scope.cancel()  # whoever still looks for a database
    return None if left is None else heirloom


def _settings(config_file: str | None, flags: dict[str, str | None]) -> ReadSettings:
    if config_file and not os.path.exists(config_file):
        raise Misconfigured(f"there is no file {config_file}", hint="check --config")
    path = os.path.abspath(config_file) if config_file else _user_file()
    above = config.from_environment(os.environ) | config.from_flags(flags)
    return partial(config.load, path, given=above, tell=Once().warn)


def _directory() -> str:
    """Where we were started, which may be gone by now: then relative paths mean nothing."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "/"


def _claim(socket_path: str | None) -> Claim:
    try:
        passed = systemd.passed_socket()
        if passed is not None:
            return sockets.take(passed)
        return sockets.claim(sockets.choose(socket_path or os.environ.get("INTERCORE_SOCKET")))
    except AlreadyRunning as exc:
        # To a service manager it is a success, but only after we said so.
        systemd.notify("READY=1", f"STATUS={exc.message}")
        raise


def _show_preflight() -> int:
    """What `reload` of another daemon wants to know: that we start, and what we are."""
    anyio.run(watchdog.check, backend="asyncio")
    said = msgspec.json.encode(Preflight(version=__version__, handover=handover.FORMAT))
    sys.stdout.write(said.decode())
    return 0


def _become_new(claim: Claim, left: Estate, directory: str) -> None:
    """Does not return, unless it fails: then we go on where we left off."""
    try:
        handover.execute(claim, left, directory)
    except OSError as exc:
        log.error("not reloaded: %s", exc)
        left.failure = f"the new code does not start: {exc}"


def _announce(path: str, estate: Estate) -> None:
    log.info("listening", extra={"socket": path, "version": __version__})
    systemd.notify("READY=1", f"STATUS=listening at {path}", f"MAINPID={os.getpid()}")
    if not estate.previous:
        _greet(path)


async def _close(claim: Claim, mirrors: Mirrors, router: Router, *, hand_over: bool) -> None:
    """Databases that do not close are left behind: the exec ends their threads, or the exit.

    For the exec everything is answered already, and others wait: then they get less time for it.
    """
    patience = limits.FLUSH_SECONDS if hand_over else limits.DRAIN_SECONDS
    with anyio.move_on_after(patience) as drained:
        await mirrors.close()
        await router.close()
    if drained.cancelled_caught:
        log.warning("a database does not close; leaving without it")
        if not hand_over:
            _leave_behind(claim)


def _leave_behind(claim: Claim) -> NoReturn:
    """Nothing but the end of the process ends a thread that hangs."""
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
