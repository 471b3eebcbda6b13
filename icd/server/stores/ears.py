"""Waiting for a change of the database that a caller means, whichever that is by now.

A database may be opened, closed, deleted or replaced while somebody waits; the ear goes with the
caller's words, not with the file.
"""

from collections.abc import Callable
from typing import Self

import anyio

from icd.app.call import Topic
from icd.app.invocation import LOOK_AGAIN_SECONDS
from icd.server import limits
from icd.server.stores.notify import Signal
from icd.server.stores.store import Store


class Ear:
    """`find` gives the open store that is meant; None while it is not open."""

    def __init__(self, find: Callable[[], Store | None], topic: Topic) -> None:
        self._find = find
        self._signal = Signal(topic)
        self._store: Store | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._move(None)

    def listen(self) -> bool:
        """From now on; to be called before each look.  Whether there is anything to listen to."""
        self._move(self._find())
        self._signal.renew()
        return self._store is not None

    async def wait(self, patience: float | None) -> None:
        """For a change, or for so long; None: for as long as it takes."""
        longest = limits.REST_SECONDS if patience is None else min(patience, limits.REST_SECONDS)
        if self._store is None:  # nobody would tell us of its creation
            longest = min(longest, LOOK_AGAIN_SECONDS)
        with anyio.move_on_after(longest):
            await self._signal.wait()

    def _move(self, store: Store | None) -> None:
        if store is not self._store:
            if self._store is not None:
                self._store.changes.remove(self._signal)
            if store is not None:
                store.changes.add(self._signal)
            self._store = store
