"""One connection: read a message, have it answered, write the reply, until the peer leaves.

Replies are written before more is read, which bounds what a peer can make us hold.  Whatever goes
wrong here ends this session and nothing else.
"""

import contextlib

import anyio
from anyio.abc import UNIXSocketStream

from icd.cli.invocation import Output, line
from icd.errors import IcError
from icd.server import bursts, jsonrpc, keyhole
from icd.server.desk import Desk
from icd.server.inbox import Inbox

_GONE = (anyio.BrokenResourceError, anyio.ClosedResourceError)
_FAREWELL_SECONDS = 1.0


class Session:
    def __init__(self, stream: UNIXSocketStream, desk: Desk) -> None:
        self._stream = stream
        self._desk = desk
        self._inbox = Inbox(stream)

    async def run(self) -> None:
        try:
            async for message in self._inbox.messages():
                if isinstance(message, bytes):
                    reply = await self._command(message)
                else:
                    reply = await bursts.answer(self._desk, message)
                await self._stream.send(reply)
        except IcError as exc:  # what the peer sends can no longer be understood
            await self._say_goodbye(exc)
        except _GONE:
            pass

    def stop(self) -> None:
        """Answer what was read completely, then leave."""
        self._inbox.stop()

    async def _command(self, frame: bytes) -> bytes:
        try:
            invocation = keyhole.invocation(frame)
        except IcError as exc:
            return keyhole.reply(Output(exc.exit, b"", line("icctl", "", exc)))
        return keyhole.reply(await self._desk.command(invocation, size=len(frame)))

    async def _say_goodbye(self, error: IcError) -> None:
        if self._inbox.is_keyhole:
            reply = keyhole.reply(Output(error.exit, b"", line("icctl", "", error)))
        else:
            reply = jsonrpc.failure(None, error) + b"\n"
        with anyio.move_on_after(_FAREWELL_SECONDS), contextlib.suppress(*_GONE):
            await self._stream.send(reply)
