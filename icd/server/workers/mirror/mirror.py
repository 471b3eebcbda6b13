"""Readers that cannot change keep reading files: rows of state, mirrored to interband envelopes.

One way, database to files, after the commit, and level-triggered: a change only says which rows to
read again.  What is written is what the rows are by then, so the last value is always there, and a
thousand writes in a tenth of a second are one.

Promises
    - neither the lane's transaction nor the event loop touches a file: a thread of our own does;
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
from typing import Any, TypeVar

import anyio

from icd.app.call import Params
from icd.app.dispatch import Clock
from icd.app.verb import Method
from icd.db import database
from icd.errors import IcError
from icd.features.mirror import methods
from icd.features.mirror.interband import Channel
from icd.features.state.store import Row
from icd.server import limits
from icd.server.logs import Once, log
from icd.server.stores.notify import Touched
from icd.server.stores.store import Store, inquiry
from icd.server.workers import threads
from icd.server.workers.mirror.copies import FILES, Copies, Name, Outcome, Tally
from icd.server.workers.mirror.permits import UNTRUSTED, Permit, Refusal

T = TypeVar("T")

# Less than callers have: while we wait for somebody's lock, they wait behind us.
ASK_SECONDS = 2.0


class Mirror:
    """The mirror of one database, from its first call until it is closed."""

    def __init__(
        self,
        store: Store,
        permit: Permit,
        mapping: dict[str, Channel],
        *,
        tally: Tally,
        clock: Clock,
        once: Once,
    ) -> None:
        self._store = store
        self._permit = permit
        self._mapping = mapping
        self._copies = Copies(permit.root, mapping, origin=store.path)
        self._tally = tally
        self._clock = clock
        self._once = once
        self._dirty: set[Name] = set()
        self._doing: set[Name] = set()
        self._failed: set[Name] = set()
        self._retry_at = 0.0
        self._survey_due = False
        self._swept = False
        self._is_off = False
        self.is_untrusted = False  # and there are rows that would have files
        self._wake = anyio.Event()
        self._stopping = anyio.Event()
        self._done = anyio.Event()
        store.changes.listen(self._changed)
        store.keep_while(self._has_more_to_do)

    @property
    def path(self) -> str:
        return self._store.path

    @property
    def waiting(self) -> int:
        """Rows whose files may differ from them."""
        return len(self._dirty | self._doing | self._failed)

    @property
    def left_out(self) -> int:
        """Rows without files, because their key has too many."""
        return self._copies.left_out.total()

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
            self._survey_due = True
        elif ours := {name for name in touched if name[0] in self._mapping}:
            self._dirty |= ours
        else:
            return
        self._wake.set()

    def _has_more_to_do(self) -> bool:
        """Whether the database must stay open for the sake of files.

        While the thread changes the copies, there are rows that wait for it.
        """
        return bool(self._survey_due or self.waiting or self._copies.expire())

    def _patience(self) -> float:
        """How long there can be nothing to do, unless there is news: no file has had its time."""
        if self._is_off:
            return limits.PERMIT_SECONDS if self.is_untrusted else math.inf
        moments = [math.inf]
        if self._dirty or self._survey_due:  # the database could not be read
            moments.append(limits.RETRY_SECONDS)
        if self._failed:
            moments.append(self._retry_at - time.monotonic())
        ends = [end for name, end in self._copies.ends().items() if name not in self._failed]
        if ends:
            moments.append((min(ends) - self._clock.now_ms()) / 1000)
        return max(0, min(moments))

    async def _try(self, step: Callable[[], Awaitable[None]]) -> None:
        try:
            await step()
        except IcError as exc:
            # A database that is held will be read later; one that is gone ends its mirror.
            if self._store.database.is_open and not exc.retryable:
                self._tally.fail(f"{self._store.path}: {exc.message}")
        except Exception as exc:  # noqa: BLE001 -- the mirror goes on
            log.exception("a mirror failed", extra={"path": self._store.path})
            self._tally.fail(f"{self._store.path}: {exc!r}")

    async def _catch_up(self) -> None:
        """Bring the files of all rows that may differ up to date."""
        if refusal := await self._in_thread(self._permit.refusal):
            await self._switch_off(refusal)
            return
        if self._is_off:  # until now
            self._is_off = self.is_untrusted = self._swept = False
            self._survey_due = True
        if self._failed and time.monotonic() >= self._retry_at:
            self._dirty |= self._failed
            self._failed = set()
        now_ms = self._clock.now_ms()
        over = {name for name, end in self._copies.ends().items() if end <= now_ms}
        self._dirty |= over - self._failed
        if self._survey_due:
            await self._survey()
        self._doing, self._dirty = self._dirty, set()
        try:
            await self._copy()
        finally:
            self._dirty |= self._doing
            self._doing = set()
        if not self._swept:
            sweep = partial(self._copies.sweep, now_ms=self._clock.now_ms())
            self._note(await self._in_thread(sweep))
            self._swept = True
        for key in +self._copies.left_out:
            self._once.warn("only the newest rows are mirrored", path=self._store.path, key=key)

    async def _switch_off(self, refusal: Refusal) -> None:
        """Forget what there is to do; if we may do it later, all rows are read again."""
        self._is_off = True
        self._survey_due = False
        self._dirty, self._failed = set(), set()
        self._copies.disown()
        if refusal is Refusal.UNWANTED:
            self.is_untrusted = False
        elif not self.is_untrusted and await self._has_rows():
            self.is_untrusted = True
            await self._tell()

    async def _tell(self) -> None:
        """Say that nothing is mirrored: in the log, and to the next person who runs a command."""
        self._once.warn(UNTRUSTED, path=self._store.path)
        if not await self._in_thread(self._permit.was_told):
            self._store.tell_next(UNTRUSTED, lambda: threads.start(self._permit.note_told))

    async def _has_rows(self) -> bool:
        for key in self._mapping:
            async for page in self._pages(key):
                if page:
                    return True
        return False

    async def _copy(self) -> None:
        size = methods.ROWS_AT_ONCE
        while self._doing:
            names = list(islice(self._doing, size))
            self._failed.difference_update(names)
            try:
                rows = await self._ask(methods.ROWS, methods.Rows(names))
            except IcError as exc:
                if exc.retryable or not self._store.database.is_open:
                    raise
                if size > 1:  # one of them cannot be read, and must not hold up the others
                    size = 1
                    continue
                self._note(Outcome(failed={names[0]: f"{' '.join(names[0])}: {exc.message}"}))
            else:
                outcome = await self._in_thread(
                    partial(self._update, dict(zip(names, rows, strict=True)))
                )
                if outcome is None:
                    self._wake.set()
                    return
                self._note(outcome)
            self._doing.difference_update(names)

    def _update(self, rows: dict[Name, Row | None]) -> Outcome | None:
        """None: no longer permitted.

        Asked after the rows were read: those of a file that has just taken the place of the one
        that is trusted are not written.
        """
        if self._permit.refusal():
            return None
        return self._copies.update(rows, now_ms=self._clock.now_ms())

    async def _survey(self) -> None:
        """Nobody can tell what was changed: find the rows that are not what their files are."""
        self._survey_due = False
        known = self._copies.versions()
        found: dict[Name, int] = {}
        try:
            for key in self._mapping:
                found.update(await self._newest(key))
        except BaseException:
            self._survey_due = True
            raise
        self._dirty |= {name for name, version in found.items() if known.get(name) != version}
        self._dirty |= known.keys() - found.keys()

    async def _newest(self, key: str) -> dict[Name, int]:
        """The rows of a key that are to have files, with their versions."""
        newest: list[tuple[int, str]] = []
        count = 0
        async for page in self._pages(key):
            count += len(page)
            newest = heapq.nlargest(FILES, newest + [(version, scope) for scope, version in page])
        self._copies.left_out[key] = count - len(newest)
        return {(key, scope_id): version for version, scope_id in newest}

    async def _pages(self, key: str) -> AsyncIterator[list[tuple[str, int]]]:
        retention_ms = self._mapping[key].retention_ms
        since = (self._clock.now_ms() - retention_ms) // 1000 if retention_ms else 0
        page: methods.Page = ([], "")
        while page[1] is not None:
            page = await self._ask(methods.VERSIONS, methods.Versions(key, page[1], since))
            yield page[0]

    async def _vanish(self) -> None:
        """The store has closed.  If that is because its database is gone, so are the rows."""
        if await self._in_thread(partial(database.identity, self._store.path)) is None:
            self._note(await self._in_thread(self._copies.forget_all))

    def _note(self, outcome: Outcome) -> None:
        self._tally.add(outcome)
        if outcome.removed and self._copies.is_thin:
            self._survey_due = True
            self._wake.set()
        if outcome.again:
            self._dirty |= outcome.again
            self._wake.set()
        if outcome.failed:
            self._failed |= outcome.failed.keys()
            self._retry_at = time.monotonic() + limits.RETRY_SECONDS

    async def _ask(self, method: Method[Any, Any], params: Params) -> Any:
        return await self._store.inquire(
            inquiry(self._store.path, method, params, seconds=ASK_SECONDS)
        )

    async def _in_thread(self, function: Callable[[], T]) -> T:
        """Abandoned if we are cancelled: a file system that hangs must not keep the daemon."""
        return await threads.start(function)
