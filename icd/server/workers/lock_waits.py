"""Waiting for locks in the loop: one inotify and one pidfd per holder, however many wait.

A waiter has a bell.  The kernel tells of a lock that disappears and of a holder that ends; both
only mean "look now", and whoever hears nothing looks again after a while, as a process of its own
does (`Watch` in icd/features/locks/owners.py).

Who has waited longest is rung for all who wait for the same lock: of a hundred that look, one gets
it.  When it leaves, with the lock or without, the next one is rung, sees who holds the lock now,
and hears of that holder's end.
"""

import asyncio
import ctypes
import os
import struct
from collections.abc import Iterator

from icd.features.locks import owners
from icd.features.locks.owners import Pause
from icd.values.processes import Process, look

_EVENT = struct.Struct("iIII")
_QUEUE_OVERFLOW = -1  # the descriptor of an event that stands for those that were lost


class Bell:
    """Rings until it is cleared, and wakes who waits for it."""

    def __init__(self) -> None:
        self._rings = False
        self._waiter: asyncio.Future[None] | None = None
        self.watched: tuple[int, bytes] | None = None

    def clear(self) -> None:
        self._rings = False

    def ring(self) -> None:
        self._rings = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, until: float | None = None) -> None:
        """Until it rings, or until then."""
        if self._rings:
            return
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = None if until is None else loop.call_at(until, self.ring)
        try:
            await self._waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()


class LockWaits:
    """Who waits for what; `add` is for the thread of a directory, all else for the loop."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = -1
        self._entries: dict[int, dict[bytes, dict[Bell, None]]] = {}  # in the order they came
        self._holders: dict[tuple[int, int], tuple[int, set[Bell]]] = {}

    def begin(self) -> None:
        """Have a descriptor, from the first call that has to wait."""
        if self._fd < 0 and hasattr(self._libc, "inotify_init1"):
            self._fd = self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
            if self._fd >= 0:
                asyncio.get_running_loop().add_reader(self._fd, self._hear)

    def close(self) -> None:
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def add(self, pause: Pause) -> int:
        """Have the kernel tell of a directory; negative if it does not."""
        if self._fd < 0 or not pause.entry:
            return -1
        found: int = self._libc.inotify_add_watch(
            self._fd, os.fsencode(pause.directory), owners.EVENTS
        )
        return found

    def listen(self, bell: Bell, watch: int, pause: Pause) -> bool:
        """Ring the bell for the pause; False if it was not listening before, and has to look."""
        wanted = (watch, os.fsencode(pause.entry)) if watch >= 0 else None
        if bell.watched == wanted:
            return True
        self.leave(bell)
        if wanted is not None:
            self._entries.setdefault(watch, {}).setdefault(wanted[1], {})[bell] = None
        bell.watched = wanted
        return wanted is None

    def leave(self, bell: Bell) -> None:
        if bell.watched is None:
            return
        watch, entry = bell.watched
        bell.watched = None
        known = self._entries[watch]
        del known[entry][bell]
        if known[entry]:
            next(iter(known[entry])).ring()
        else:
            del known[entry]
        if not known:
            del self._entries[watch]
            self._libc.inotify_rm_watch(self._fd, watch)

    async def rest(self, bell: Bell, pause: Pause, until: float) -> None:
        """Wait for the bell, for the end of the holder, or for the time."""
        holder = Process(pause.holder.pid, pause.holder.start) if pause.holder else None
        key = self._attend(holder, bell) if holder else None
        try:
            await bell.wait(until)
        finally:
            if key is not None:
                self._forget(key, bell)

    # --- holders ---

    def _attend(self, holder: Process, bell: Bell) -> tuple[int, int] | None:
        key = holder.pid, holder.start
        if key not in self._holders:
            try:
                fd = os.pidfd_open(holder.pid)
            except (OSError, AttributeError):
                return None  # the next look will tell
            self._holders[key] = fd, set()
            asyncio.get_running_loop().add_reader(fd, self._ended, key)
        self._holders[key][1].add(bell)
        if look(holder) != "alive":  # its number may be another's by now
            bell.ring()
        return key

    def _ended(self, key: tuple[int, int]) -> None:
        fd, bells = self._holders[key]
        asyncio.get_running_loop().remove_reader(fd)  # it stays readable
        for bell in bells:
            bell.ring()

    def _forget(self, key: tuple[int, int], bell: Bell) -> None:
        fd, bells = self._holders[key]
        bells.discard(bell)
        if not bells:
            del self._holders[key]
            asyncio.get_running_loop().remove_reader(fd)
            os.close(fd)

    # --- entries ---

    def _hear(self) -> None:
        try:
            data = os.read(self._fd, owners.EVENT_BYTES)
        except BlockingIOError:
            return
        for watch, name in _events(data):
            for bell in self._entries.get(watch, {}).get(name, {}):
                bell.ring()
                break
            if watch == _QUEUE_OVERFLOW:
                self._ring_all()

    def _ring_all(self) -> None:
        for known in self._entries.values():
            for bells in known.values():
                for bell in bells:
                    bell.ring()


def _events(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _EVENT.size <= len(data):
        watch, _mask, _cookie, size = _EVENT.unpack_from(data, at)
        at += _EVENT.size
        yield watch, data[at : at + size].rstrip(b"\0")
        at += size
