"""The hooks of all open databases: how many run at once, what they did, and their orderly end."""

import os
from collections.abc import Callable

import anyio
from anyio.abc import TaskGroup

from icd.config import Settings
from icd.features.daemon.report import HooksReport
from icd.features.hooks import files
from icd.features.hooks.trust import Trust
from icd.server import limits
from icd.server.logs import log
from icd.server.stores.store import Store
from icd.server.workers.hooks.deliveries import Common, Deliveries


class Hooks:
    """`home`: where the user's trust is recorded; None: nobody can be trusted."""

    def __init__(self, home: str | None, socket: Callable[[], str], tasks: TaskGroup) -> None:
        self._home = home
        self._tasks = tasks
        self._common = Common(socket)
        self._deliveries: set[Deliveries] = set()

    def attach(self, store: Store, settings: Settings) -> None:
        project = files.project(store.path)
        if self._home and project:
            trust = Trust(self._home, project)
            found = Deliveries(store, trust, settings.hook_seconds, self._common)
            self._tasks.start_soon(self._run, found)

    def report(self) -> HooksReport:
        tally = self._common.tally
        return HooksReport(
            delivered=tally.delivered,
            redelivered=tally.redelivered,
            failed=tally.failed,
            last_error=tally.last_error or None,
        )

    async def pause(self) -> bool:
        """Start no hook any more; whether those that run have ended in time."""
        self._common.is_paused = True
        with anyio.move_on_after(limits.HOOK_REST_SECONDS) as rested:
            for each in list(self._deliveries):
                await each.rest()
        return not rested.cancelled_caught

    def go_on(self) -> None:
        self._common.is_paused = False
        for each in self._deliveries:
            each.wake()

    async def close(self) -> None:
        """What is not delivered by now is left to the next daemon."""
        if not await self.pause():
            log.warning("a hook is killed, because the daemon stops")
            os.eventfd_write(self._common.stop, 1)
            await self.pause()

    async def _run(self, found: Deliveries) -> None:
        self._deliveries.add(found)
        try:
            await found.run()
        finally:
            self._deliveries.discard(found)


def home() -> str | None:
    """A relative one would be nobody's."""
    given = os.environ.get("HOME")
    return given if given and os.path.isabs(given) else None
