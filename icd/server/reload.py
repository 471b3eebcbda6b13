"""Reload: continue with the installed code without losing a call, if that can be done.

A reload that cannot be done without losing a call is not done: new code that does not start, or a
database that does not answer, leave everything as it was, and the caller is told why.
"""

import asyncio
import os
import subprocess
import time
from collections.abc import Awaitable, Callable
from functools import partial

import anyio
import msgspec

from icd import __version__
from icd.app.call import Answer
from icd.errors import ReloadRefused
from icd.features.daemon.verbs import Reloaded
from icd.server import limits, reexec, systemd
from icd.server.logs import log
from icd.server.reexec import Handover
from icd.server.workers import threads

Done = subprocess.CompletedProcess[bytes]


class Preflight(msgspec.Struct):
    """What new code says of itself; see `icd serve --preflight`."""

    version: str
    handover: int


class Reload:
    """`directory`: where the daemon was started, which relative paths on its command line mean.

    `inherited`: what the daemon before us left.
    """

    def __init__(self, directory: str, inherited: Handover) -> None:
        self._directory = directory
        self._inherited = inherited
        self._early: list[asyncio.Future[Answer]] = []
        self._late: list[asyncio.Future[Answer]] = []
        self._under_way: Answer | None = None  # for a caller that joins a reload under way
        self._wanted = anyio.Event()

    async def ask(self, *, early: bool) -> Answer:
        """Reload; answered once the new code is known to run, if `early`.

        Else only a refusal is: the next daemon carries out the command again, and answers it.
        """
        if early and self._under_way is not None:
            return self._under_way  # or we would wait for it to end, and it for us
        told: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        (self._early if early else self._late).append(told)
        self.order()
        return await told

    def order(self) -> None:
        self._wanted.set()

    async def wanted(self) -> None:
        await self._wanted.wait()
        self._wanted = anyio.Event()

    def outcome(self) -> Answer:
        """The answer to those who asked the daemon before us to reload."""
        if self._inherited.failure:
            return Answer(error=ReloadRefused(self._inherited.failure))
        previous = self._inherited.previous or __version__
        return Answer(result=Reloaded(version=__version__, previous=previous, pid=os.getpid()))

    async def attempt(
        self, quiesce: Callable[[], Awaitable[str]], hung: Callable[[], list[str]]
    ) -> bool:
        """Whether everything is ready for the other code; `quiesce` says what is in the way.

        With a file open on a file system that hangs, no process can become another program.
        """
        try:
            found = await self._preflight(hung)
            reloaded = Reloaded(version=found.version, previous=__version__, pid=os.getpid())
            self._under_way = Answer(result=reloaded)
            self._tell(self._early, self._under_way)
            systemd.notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
            await self._quiesce(quiesce)
        except ReloadRefused as exc:
            self._under_way = None
            log.error("not reloaded: %s", exc.message)
            systemd.notify("READY=1", f"STATUS=not reloaded: {exc.message}")
            self._tell(self._early, Answer(error=exc))
            self._tell(self._late, Answer(error=exc))
            return False
        log.info("reloading", extra={"from": __version__, "to": found.version})
        return True

    async def _preflight(self, hung: Callable[[], list[str]]) -> Preflight:
        """Have the new code show, in a process of its own, that it starts and can take over."""
        env = {k: v for k, v in os.environ.items() if k not in ("NOTIFY_SOCKET", "WATCHDOG_USEC")}
        start = partial(_start, [*reexec.command(), "--preflight"], self._directory, env)
        done = await _unless(hung, start)
        if done.returncode:
            last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2][:500]
            raise ReloadRefused(f"the new version does not start: {last}")
        try:
            found = msgspec.json.decode(done.stdout, type=Preflight)
        except msgspec.DecodeError as exc:
            raise ReloadRefused("the new version does not report its version") from exc
        if found.handover != reexec.FORMAT:
            raise ReloadRefused(f"icd {found.version} cannot take over from icd {__version__}")
        return found

    async def _quiesce(self, quiesce: Callable[[], Awaitable[str]]) -> None:
        for _ in range(limits.RELOAD_ATTEMPTS):
            obstacle = await quiesce()
            if not obstacle:
                return
            await anyio.sleep(limits.RELOAD_PAUSE_SECONDS)
        raise ReloadRefused(obstacle)

    def _tell(self, waiting: list[asyncio.Future[Answer]], answer: Answer) -> None:
        for told in waiting:
            if not told.done():
                told.set_result(answer)
        waiting.clear()


async def _unless(hung: Callable[[], list[str]], start: Callable[[], Done]) -> Done:
    """Start a child in a thread, because its parent waits until it has become another program."""
    started = threads.start(start)
    try:
        while not started.done():
            if hung():
                raise ReloadRefused(f"{hung()[0]} does not answer")
            await asyncio.wait([started], timeout=limits.GRACE_SECONDS)
        return started.result()
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise ReloadRefused(f"the new version does not start: {exc}") from exc
    finally:
        started.cancel()


def _start(command: list[str], directory: str, env: dict[str, str]) -> Done:
    return subprocess.run(  # noqa: S603 -- the command that started us
        command,
        cwd=directory,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=limits.PREFLIGHT_SECONDS,
        start_new_session=True,
        check=False,
    )
