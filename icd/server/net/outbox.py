"""What one peer is sent, and has not read yet.  Bounded for all peers together.

A transport copies what the kernel does not take at once; so it is given a part at a time, and the
rest stays here as it is.  Nothing is kept twice.

Invariants
    - what is written is sent in its order, whole, or the peer is dropped;
    - while all peers together have more than UNREAD_BYTES to read, those that have not read for the
      longest time are dropped, and a single peer may be sent whatever it has asked for.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import ClassVar

import anyio

from icd.server import limits


class Outbox:
    """What one peer has yet to read; `drop` ends the connection if all have too much of it."""

    held = 0  # bytes that peers have not read, of all outboxes together
    _unread: ClassVar["dict[Outbox, None]"] = {}  # those that have some, the oldest first

    def __init__(self, drop: Callable[[], None]) -> None:
        self.is_unread = False  # the peer has to read before it gets more
        self._drop = drop
        self._rest: deque[memoryview] = deque()
        self._given: list[bytes] = []  # ends with what the transport still has
        self._is_full = False  # the transport says so
        self._counted = 0
        self._transport: asyncio.Transport | None = None
        self._changed: anyio.Event | None = None  # while a task waits for room

    def connect(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    @property
    def unsent(self) -> bytes:
        """What the peer has not read yet, for the daemon that goes on with the conversation."""
        assert self._transport is not None
        size = self._transport.get_write_buffer_size()
        given = b"".join(self._given)[-size:] if size else b""
        return b"".join([given, *self._rest])

    def write(self, data: bytes) -> None:
        """Send it, unless the peer is gone."""
        assert self._transport is not None
        if self._transport.is_closing():
            return
        if len(data) <= limits.PART_BYTES and not self.is_unread:
            self._give(data)
        else:
            self._rest.append(memoryview(data))
            self._go_on()
        if self._is_full or self._rest:
            self._account()

    def pause(self) -> None:
        """The transport has no room."""
        self._is_full = self.is_unread = True

    def resume(self) -> None:
        """The transport has room again."""
        self._is_full = False
        self._go_on()
        self._account()
        if not self.is_unread:
            self.wake()

    async def room(self) -> bool:
        """Wait until the peer has read what it was sent; False: woken before that."""
        if self.is_unread:
            self._changed = self._changed or anyio.Event()
            await self._changed.wait()
        return not self.is_unread

    def wake(self) -> None:
        """Wake the task that waits for room, whether there is room or not."""
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    def close(self) -> None:
        self._rest.clear()
        self._given.clear()
        self._is_full = False
        self._account()
        self.wake()

    def give_up(self) -> None:
        """The peer gets nothing more."""
        self.close()
        self._drop()

    def _go_on(self) -> None:
        while self._rest and not self._is_full:
            first = self._rest[0]
            if len(first) > limits.PART_BYTES:
                self._rest[0] = first[limits.PART_BYTES :]
            else:
                self._rest.popleft()
            self._give(bytes(first[: limits.PART_BYTES]))

    def _give(self, part: bytes) -> None:
        assert self._transport is not None
        self._transport.write(part)
        size = self._transport.get_write_buffer_size()
        if size:
            self._given.append(part)
            if len(self._given) > limits.WRITES:
                self._given = [b"".join(self._given)[-size:]]
        elif self._given:
            self._given.clear()

    def _account(self) -> None:
        """Keep count of what waits to be read; if it is too much, drop who reads the least."""
        self.is_unread = self._is_full or bool(self._rest)
        size = 0
        if self.is_unread and self._transport is not None:
            size = self._transport.get_write_buffer_size() + sum(map(len, self._rest))
        if size < self._counted:  # it reads
            Outbox._unread.pop(self, None)
        if size:
            Outbox._unread.setdefault(self)
        Outbox.held += size - self._counted
        self._counted = size
        while Outbox.held > limits.UNREAD_BYTES and len(Outbox._unread) > 1:
            next(iter(Outbox._unread)).give_up()


def cut_off(transport: asyncio.Transport) -> None:
    """End a connection at once, also if its transport is in the middle of something.

    When memory runs out in a write, asyncio has begun to wait for room in the socket and knows of
    nothing to send: it would close the descriptor and go on watching its number, so that the next
    connection of that number would never be heard.
    """
    loop, fd = asyncio.get_running_loop(), transport.get_extra_info("socket").fileno()
    transport.abort()
    if fd >= 0:
        loop.remove_writer(fd)
