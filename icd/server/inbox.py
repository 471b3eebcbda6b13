"""Cutting what a peer sends into messages, within limits.

The first byte of a connection tells its framing: `i` starts a keyhole frame, and no JSON.
"""

import time
from collections.abc import AsyncIterator

import anyio

from icd.errors import DeadlineExceeded, InvalidRequest, Overloaded
from icd.server import keyhole, limits
from icd.server.peer import Gone, Peer

Message = bytes | list[bytes]


class Inbox:
    """The messages of one peer: keyhole frames, or bursts of lines."""

    held = 0  # bytes of incomplete messages, of all inboxes together

    def __init__(self, peer: Peer) -> None:
        self.is_keyhole = False
        self._peer = peer
        self._buffer = bytearray()
        self._counted = 0
        self._since = 0.0

    async def messages(self) -> AsyncIterator[Message]:
        try:
            while True:
                message = self._next()
                if message is not None:
                    yield message
                elif not await self._read():
                    return
        finally:
            self._account(0)

    def _next(self) -> Message | None:
        """The next complete message in the buffer, if there is one."""
        if self.is_keyhole:
            size = keyhole.length(self._buffer)
            return None if size is None else self._take(size)
        end = self._buffer.rfind(b"\n") + 1
        if not end:
            return None
        return [line for line in self._take(end).split(b"\n") if line.strip()]

    def _take(self, size: int) -> bytes:
        message = bytes(self._buffer[:size])
        del self._buffer[:size]
        return message

    async def _read(self) -> bool:
        """Wait for more; False when there will be none."""
        self._account(len(self._buffer))
        try:
            if self._buffer:
                await self._read_the_rest()
            else:
                self._buffer += await self._peer.receive(limits.CHUNK_BYTES)
                self._since = time.monotonic()
                self.is_keyhole = self._buffer[:1] == b"i"
        except Gone:
            return False
        return True

    async def _read_the_rest(self) -> None:
        left = self._since + limits.PARTIAL_SECONDS - time.monotonic()
        with anyio.move_on_after(left):
            self._buffer += await self._peer.receive(limits.CHUNK_BYTES)
            return
        raise DeadlineExceeded("the rest of the message did not arrive in time")

    def _account(self, size: int) -> None:
        """Keep count of incomplete messages; refuse what is too much."""
        Inbox.held += size - self._counted
        self._counted = size
        if size > limits.MESSAGE_BYTES:
            raise InvalidRequest(f"a message is at most {limits.MESSAGE_BYTES} bytes")
        if size and Inbox.held > limits.PARTIAL_BYTES:
            raise Overloaded("too many incomplete messages at once")
