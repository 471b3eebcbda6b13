"""Which database does a caller mean, and what is set for it: questions to the file system.

Each is asked in a thread of its own, never in the loop and never in a shared pool: one hung mount
must not hold up the callers of other projects.  Nor may it collect threads: from the same place,
only a few look at a time, and later callers wait for one of them to return.
"""

import asyncio
import os
import time
from collections.abc import Callable
from functools import partial

import anyio

from icd import config
from icd.db import paths, permissions
from icd.db.paths import Where
from icd.errors import DeadlineExceeded, Overloaded
from icd.server import limits
from icd.server.workers import threads

Found = tuple[str, config.Settings]
Settings = Callable[[str], config.Settings]


class Resolver:
    """`settings` reads what holds for the project with that file of settings."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._places: dict[Where, anyio.CapacityLimiter] = {}
        self._threads = 0

    async def find(self, where: Where, *, create: bool, deadline: float) -> Found:
        """The path of the database and its settings; `create`: of the one that would be made."""
        with anyio.move_on_after(deadline - time.monotonic()):
            place = self._places.setdefault(where, anyio.CapacityLimiter(limits.LOOKUPS_AT_ONCE))
            token = object()
            try:
                await place.acquire_on_behalf_of(token)
                looking = self._start(where, create=create)
                looking.add_done_callback(partial(self._ended, where, place, token))
            except BaseException:
                self._leave(where, place, token)
                raise
            return await asyncio.shield(looking)
        raise DeadlineExceeded(f"finding the database of {where.cwd} takes too long")

    def _start(self, where: Where, *, create: bool) -> "asyncio.Future[Found]":
        if self._threads >= limits.LOOKUPS:
            raise Overloaded("too many database lookups are pending")
        looking = threads.start(partial(_find, where, self._settings, create=create))
        self._threads += 1
        return looking

    def _ended(
        self,
        where: Where,
        place: anyio.CapacityLimiter,
        token: object,
        looking: "asyncio.Future[Found]",
    ) -> None:
        looking.exception()  # retrieved, or asyncio complains: the caller may have left
        self._threads -= 1
        self._leave(where, place, token)

    def _leave(self, where: Where, place: anyio.CapacityLimiter, token: object) -> None:
        if token in place.statistics().borrowers:
            place.release_on_behalf_of(token)
        facts = place.statistics()
        if not (facts.borrowed_tokens or facts.tasks_waiting):
            self._places.pop(where, None)


def _find(where: Where, settings: Settings, *, create: bool) -> Found:
    find = paths.target if create else paths.resolve
    path = paths.canonical(find(where))
    permissions.refuse_others(os.path.dirname(path))
    return path, settings(config.project_file(path))
