"""How long the thread of one database has been at it, as the loop sees it.

A thread that hangs, on a mount or on somebody's lock, cannot be ended; but whoever waits for it is
told, and it is logged once when it hangs and once when it is back.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from icd.server import limits
from icd.server.logs import log


class Watch:
    """`check` is called every `GRACE_SECONDS` while the thread works."""

    def __init__(self, path: str, check: Callable[[], None]) -> None:
        self.is_working = False
        self.hung_since: float | None = None  # monotonic
        self._path = path
        self._check = check
        self._since = 0.0

    @contextmanager
    def hop(self) -> Iterator[None]:
        self._since = time.monotonic()
        self.is_working = True
        self._schedule()
        try:
            yield
        finally:
            self._timer.cancel()
            self.is_working = False
            if self.hung_since is not None:
                self._back()

    def _schedule(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(limits.GRACE_SECONDS, self._tick)

    def _tick(self) -> None:
        self._schedule()
        self._check()
        if self.hung_since is None and time.monotonic() - self._since > limits.HUNG_SECONDS:
            self.hung_since = self._since
            log.warning("database hangs", extra={"path": self._path})

    def _back(self) -> None:
        took = time.monotonic() - self._since
        self.hung_since = None
        log.warning("database is back", extra={"path": self._path, "seconds": round(took, 1)})
