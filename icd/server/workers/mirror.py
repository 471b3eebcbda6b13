"""Readers that cannot change keep reading files: rows of state, mirrored to interband envelopes.

One way, database to files, after the commit, and level-triggered: a change only says which rows to
read again.  What is written is what the rows are by then, so the last value is always there, and a
thousand writes in a tenth of a second are one.

Promises
    - neither the database's thread nor the event loop touches a file: a thread of our own does;
    - the file of a row is written at most once in `GAP_SECONDS`;
    - whatever goes wrong here is counted and shown in `status`, tried again, and fails no call;
    - nothing is written or removed unless the user wants a mirror and trusts the database, which is
      asked anew each time: a row is no permission.
"""

import heapq
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from itertools import islice
from typing import Any

import anyio
from anyio.abc import TaskGroup
from msgspec import structs

from icd.app.call import Params
from icd.app.dispatch import Clock
from icd.app.verb import Method
from icd.config import Settings
from icd.db import database
from icd.errors import Guard, IcError
from icd.features import interband
from icd.features.daemon.report import MirrorReport
from icd.features.interband import Channel
from icd.features.state import watch
from icd.server import limits
from icd.server.logs import Once, log
from icd.server.stores.notify import Touched
from icd.server.stores.store import Store, inquiry
from icd.server.workers import threads
from icd.server.workers.mirror_files import (
    FILES,
    UNTRUSTED,
    Files,
    Name,
    Outcome,
    Permit,
    Refusal,
    Root,
)

# Less than callers have: while we wait for a lock, they wait behind us.
ASK_SECONDS = 2.0


# --- all open databases ---------------------------------------------------------------------------


class Mirrors:
    """The mirrors of all databases: where they write, what they did, and their orderly end.

    `root`: where envelopes go unless the settings say otherwise; None: nowhere.
    `home`: where the user's trust is recorded; None: no database is trusted.
    """

    def __init__(self, root: Root | None, home: str | None, clock: Clock, tasks: TaskGroup) -> None:
        self.clock = clock
        self.once = Once()
        self._done = MirrorReport(0, 0, 0, 0, 0, None)
        self._root = root
        self._home = home
        self._tasks = tasks
        self._mirrors: set[Mirror] = set()

    def attach(self, store: Store, settings: Settings) -> None:
        """Mirror what the settings name, once the user wants it and trusts the database."""
        chosen = settings.mirror
        root = Root(chosen.root, is_named=True) if chosen.root else self._root
        mapping = interband.channels(chosen)
        if root and mapping:
            must_exist = not (root.is_named or chosen.enabled is True)
            permit = Permit(root.path, must_exist, self._home, store.path)
            self._tasks.start_soon(self._run, Mirror(store, permit, mapping, self))

    def report(self) -> MirrorReport:
        return structs.replace(
            self._done,
            waiting=sum(mirror.waiting for mirror in self._mirrors),
            left_out=sum(mirror.files.left_out.total() for mirror in self._mirrors),
            untrusted=sorted(mirror.path for mirror in self._mirrors if mirror.is_untrusted),
        )

    def add(self, outcome: Outcome) -> None:
        self._done.written += outcome.written
        self._done.removed += outcome.removed
        self._done.kept += outcome.kept
        for told in [*outcome.failed.values(), *outcome.errors]:
            self.fail(told)

    def fail(self, told: str) -> None:
        if told != self._done.last_error:  # a full disk is worth one line, not ten a second
            log.warning("a mirror failed: %s", told)
        self._done.failed += 1
        self._done.last_error = told

    async def close(self) -> None:
        """Let every mirror write what is still to be written, for a limited time."""
        with anyio.move_on_after(limits.FLUSH_SECONDS) as flushed:
            async with anyio.create_task_group() as tasks:
                for mirror in self._mirrors:
                    tasks.start_soon(mirror.stop)
        if flushed.cancelled_caught:
            log.warning("a mirror is still running; exiting without it")

    async def _run(self, mirror: "Mirror") -> None:
        self._mirrors.add(mirror)
        try:
            await mirror.run()
        finally:
            self._mirrors.discard(mirror)


# --- one database ---------------------------------------------------------------------------------


class Mirror:
    """The mirror of one database, from its first call until it is closed.

    A file system that hangs must not keep the daemon: threads are abandoned if we are cancelled.
    """

    def __init__(
        self, store: Store, permit: Permit, mapping: dict[str, Channel], mirrors: Mirrors
    ) -> None:
        self.path = store.path
        self.files = Files(permit.root, mapping, origin=store.path)
        self.is_untrusted = False  # and there are rows that would have files
        self._store = store
        self._permit = permit
        self._mapping = mapping
        self._mirrors = mirrors
        self._dirty: set[Name] = set()  # rows that were written
        self._doing: set[Name] = set()
        self._failed: set[Name] = set()
        self._survey_at = math.inf  # when to look for rows that are not what their files are
        self._swept = False
        self._is_off = False
        self._wake = anyio.Event()
        self._stopping = anyio.Event()
        self._done = anyio.Event()
        store.changes.listen(self._changed)
        store.keep_while(self._has_more_to_do)

    @property
    def waiting(self) -> int:
        """Rows whose files may differ from them."""
        return len(self._dirty | self._doing | self._failed)

    async def run(self) -> None:
        """Catch up when there is news, with a pause in between."""
        try:
            await self._wake.wait()
            while not (self._store.is_closed or self._stopping.is_set()):
                self._wake = anyio.Event()
                await self._try(self._catch_up)
                with anyio.move_on_after(limits.GAP_SECONDS):
                    await self._stopping.wait()
                with anyio.move_on_after(self._patience()):
                    await self._wake.wait()
            await self._try(self._vanish if self._store.is_closed else self._catch_up)
        finally:
            self._done.set()

    async def stop(self) -> None:
        """Write what is still to be written, then end."""
        self._stopping.set()
        self._wake.set()
        await self._done.wait()

    def _changed(self, touched: Touched) -> None:
        """Told after every commit, in the loop."""
        if touched is None:
            self._survey_at = 0.0
        elif ours := {name for name in touched if name[0] in self._mapping}:
            self._dirty |= ours
        else:
            return
        self._wake.set()

    def _survey_later(self) -> None:
        self._survey_at = min(self._survey_at, time.monotonic() + limits.RETRY_SECONDS)

    def _has_more_to_do(self) -> bool:
        """Whether the database must stay open for the sake of files.

        While the thread changes the copies, there are rows that wait for it.
        """
        if self._survey_at < math.inf or self.waiting:
            return True
        return any(copy.expires for copy in self.files.copies.values())

    def _ends(self) -> dict[Name, int]:
        """Until when files have their time, unless we failed to remove them."""
        ends = {name: copy.until_ms for name, copy in self.files.copies.items()}
        return {n: end for n, end in ends.items() if end is not None and n not in self._failed}

    def _patience(self) -> float:
        """How long there can be nothing to do, unless there is news: no file has had its time."""
        if self._is_off:
            return limits.PERMIT_SECONDS if self.is_untrusted else math.inf
        moments = [(end - self._mirrors.clock.now_ms()) / 1000 for end in self._ends().values()]
        return max(0.0, min([*moments, self._survey_at - time.monotonic()]))

    async def _try(self, step: Callable[[], Awaitable[None]]) -> None:
        with Guard(self._fail):
            await step()

    def _fail(self, exc: Exception) -> None:
        if not isinstance(exc, IcError):
            log.error("a mirror failed", exc_info=exc, extra={"path": self.path})
            self._mirrors.fail(f"{self.path}: {exc!r}")
        # A database that is held will be read later; one that is gone ends its mirror.
        elif self._store.database.is_open and not exc.retryable:
            self._mirrors.fail(f"{self.path}: {exc.message}")

    async def _catch_up(self) -> None:
        """Bring the files of all rows that may differ up to date."""
        if refusal := await threads.start(self._permit.refusal):
            await self._switch_off(refusal)
            return
        if self._is_off:  # until now
            self._is_off = self.is_untrusted = self._swept = False
            self._survey_at = 0.0
        now_ms = self._mirrors.clock.now_ms()
        over = {name for name, end in self._ends().items() if end <= now_ms}
        self._doing, self._dirty = self._dirty | over, set()
        try:
            await self._survey()
            is_done = await self._copy()
        except BaseException:
            self._survey_later()  # which finds them again
            raise
        finally:
            self._doing = set()
        if is_done and not self._swept:
            self._swept = await self._act(partial(self.files.sweep, now_ms=now_ms))
        for key in +self.files.left_out:
            self._mirrors.once.warn("only the newest rows are mirrored", path=self.path, key=key)

    async def _switch_off(self, refusal: Refusal) -> None:
        """Forget what there is to do; if we may do it later, all rows are read again."""
        self._is_off = True
        self._survey_at = math.inf
        self._dirty, self._failed = set(), set()
        if refusal is Refusal.GONE:
            return  # what was written is ours to remove, once the store has noticed
        self.files.disown()
        if refusal is Refusal.UNWANTED:
            self.is_untrusted = False
        elif not self.is_untrusted and await self._has_rows():
            self.is_untrusted = True
            # In the log, and to the next person who runs a command.
            self._mirrors.once.warn(UNTRUSTED, path=self.path)
            if not await threads.start(self._permit.was_told):
                self._store.tell_next(UNTRUSTED, lambda: threads.start(self._permit.note_told))

    async def _has_rows(self) -> bool:
        for key in self._mapping:
            async for page in self._pages(key):
                if page:
                    return True
        return False

    async def _copy(self) -> bool:
        """Bring files up to date with their rows; False: that is no longer permitted."""
        size = watch.ROWS_AT_ONCE
        while self._doing:
            names = list(islice(self._doing, size))
            self._failed.difference_update(names)
            try:
                rows = await self._ask(watch.ROWS, watch.Rows(names))
            except IcError as exc:
                if exc.retryable or not self._store.database.is_open:
                    raise
                if size > 1:  # one of them cannot be read, and must not hold up the others
                    size = 1
                    continue
                self._note(Outcome(failed={names[0]: f"{' '.join(names[0])}: {exc.message}"}))
            else:
                there = dict(zip(names, rows, strict=True))
                now_ms = self._mirrors.clock.now_ms()
                if not await self._act(partial(self.files.update, there, now_ms=now_ms)):
                    return False
            self._doing.difference_update(names)
        return True

    async def _act(self, step: Callable[[], Outcome]) -> bool:
        """Have files changed; False: that is no longer permitted.

        Asked after rows were read: those of a file that has just taken the place of the one that
        is trusted are not written.
        """
        outcome = await threads.start(lambda: None if self._permit.refusal() else step())
        if outcome is None:
            self._survey_at = 0.0
            self._wake.set()
            return False
        self._note(outcome)
        return True

    async def _survey(self) -> None:
        """If it is due, find the rows that are not what their files are."""
        is_due = self._stopping.is_set() or self._survey_at <= time.monotonic()
        if self._survey_at == math.inf or not is_due:
            return
        self._survey_at = math.inf
        known = {name: copy.version for name, copy in self.files.copies.items()}
        found: dict[Name, int] = {}
        for key in self._mapping:
            found |= await self._newest(key)
        self._doing |= {name for name, version in found.items() if known.get(name) != version}
        self._doing |= (known.keys() - found.keys()) | self._failed

    async def _newest(self, key: str) -> dict[Name, int]:
        """The rows of a key that are to have files, with their versions."""
        newest: list[tuple[int, str]] = []
        count = 0
        async for page in self._pages(key):
            count += len(page)
            newest = heapq.nlargest(FILES, newest + [(version, scope) for scope, version in page])
        self.files.left_out[key] = count - len(newest)
        return {(key, scope_id): version for version, scope_id in newest}

    async def _pages(self, key: str) -> AsyncIterator[list[tuple[str, int]]]:
        retention_ms = self._mapping[key].retention_ms
        since = (self._mirrors.clock.now_ms() - retention_ms) // 1000 if retention_ms else 0
        page: watch.Page = ([], "")
        while page[1] is not None:
            page = await self._ask(watch.VERSIONS, watch.Versions(key, page[1], since))
            yield page[0]

    async def _vanish(self) -> None:
        """The store has closed.  If that is because its database is gone, so are the rows."""
        if await threads.start(partial(database.identity, self.path)) is None:
            self._note(await threads.start(self.files.forget_all))

    def _note(self, outcome: Outcome) -> None:
        self._mirrors.add(outcome)
        self._failed |= outcome.failed.keys()
        # What failed is tried again; where a row is gone there is room for one that was left out.
        made_room = outcome.removed > outcome.displaced and self.files.left_out.total()
        if outcome.failed or made_room:
            self._survey_later()
        if outcome.again:
            self._dirty |= outcome.again
            self._wake.set()

    async def _ask(self, method: Method[Any, Any], params: Params) -> Any:
        return await self._store.inquire(inquiry(self.path, method, params, seconds=ASK_SECONDS))
