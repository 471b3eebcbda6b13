"""A connected client: bytes in, bytes out, and who it is.

Uses the event loop's own socket calls: they try first and wait only if they must, which is a third
of the price of a stream object.  aiosqlite has bound us to asyncio already.
"""

import asyncio
import contextlib
import socket


class Gone(Exception):
    """The client has left."""


class Peer:
    def __init__(self, sock: socket.socket, pid: int) -> None:
        self.pid = pid
        self._sock = sock
        self._loop = asyncio.get_running_loop()

    async def receive(self, size: int) -> bytes:
        """What has arrived, at least one byte."""
        # Give the others their turn first.  Replies then leave, and requests arrive, in groups;
        # waking a client for every single one measured eight times slower.
        await asyncio.sleep(0)
        try:
            data = await self._loop.sock_recv(self._sock, size)
        except OSError as exc:
            raise Gone from exc
        if not data:
            raise Gone
        return data

    async def send(self, data: bytes) -> None:
        try:
            await self._loop.sock_sendall(self._sock, data)
        except OSError as exc:
            raise Gone from exc

    def hang_up(self) -> None:
        """Take no more: what has arrived is read to its end, what comes later was never sent."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RD)

    def close(self) -> None:
        self._sock.close()
