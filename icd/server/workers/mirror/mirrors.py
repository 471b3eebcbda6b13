"""The mirrors of all open databases: where they write, what they did, and their orderly end."""

import os

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct

from icd.app.dispatch import Clock
from icd.config import Settings
from icd.features.daemon.report import MirrorReport
from icd.features.mirror import interband
from icd.server import limits
from icd.server.logs import Once, log
from icd.server.stores.store import Store
from icd.server.workers.mirror.copies import Tally
from icd.server.workers.mirror.mirror import Mirror
from icd.server.workers.mirror.permits import Permit


class Root(Struct, frozen=True):
    """A directory for envelopes; `is_named`: by the user, so it is made if it is not there."""

    path: str
    is_named: bool


class Mirrors:
    """`root`: where envelopes go unless the settings say otherwise; None: nowhere.

    `home`: where the user's trust is recorded; None: no database is trusted.
    """

    def __init__(self, root: Root | None, home: str | None, clock: Clock, tasks: TaskGroup) -> None:
        self._root = root
        self._home = home
        self._once = Once()
        self._clock = clock
        self._tasks = tasks
        self._tally = Tally()
        self._mirrors: set[Mirror] = set()

    def attach(self, store: Store, settings: Settings) -> None:
        """Mirror what the settings name, once the user wants it and trusts the database."""
        chosen = settings.mirror
        root = Root(chosen.root, is_named=True) if chosen.root else self._root
        mapping = interband.channels(chosen)
        if root and mapping:
            must_exist = not (root.is_named or chosen.enabled is True)
            permit = Permit(root.path, must_exist, self._home, store.path)
            mirror = Mirror(
                store, permit, mapping, tally=self._tally, clock=self._clock, once=self._once
            )
            self._tasks.start_soon(self._run, mirror)

    def report(self) -> MirrorReport:
        return MirrorReport(
            written=self._tally.written,
            removed=self._tally.removed,
            kept=self._tally.kept,
            waiting=sum(mirror.waiting for mirror in self._mirrors),
            failed=self._tally.failed,
            last_error=self._tally.last_error or None,
            left_out=sum(mirror.left_out for mirror in self._mirrors),
            untrusted=sorted(mirror.path for mirror in self._mirrors if mirror.is_untrusted),
        )

    async def close(self) -> None:
        """Let every mirror write what is still to be written, for a limited time."""
        with anyio.move_on_after(limits.FLUSH_SECONDS) as flushed:
            async with anyio.create_task_group() as tasks:
                for mirror in self._mirrors:
                    tasks.start_soon(mirror.stop)
        if flushed.cancelled_caught:
            log.warning("a mirror does not come to an end; leaving without it")

    async def _run(self, mirror: Mirror) -> None:
        self._mirrors.add(mirror)
        try:
            await mirror.run()
        finally:
            self._mirrors.discard(mirror)


def root() -> Root | None:
    """Where this process's user keeps interband files; a relative place would be nobody's."""
    given = os.environ.get("INTERBAND_ROOT")
    home = os.environ.get("HOME")
    found = given or (os.path.join(home, ".interband") if home else None)
    if found is None or not os.path.isabs(found):
        log.warning("nothing is mirrored: no INTERBAND_ROOT or HOME that is an absolute path")
        return None
    return Root(found, is_named=bool(given))
