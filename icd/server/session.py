"""One connection: read a message, have it answered, write the reply, until the peer leaves.

Replies are written before more is read, which bounds what a peer can make us hold.  Whatever goes
wrong here ends this session and nothing else.
"""

import contextlib

import anyio

from icd.cli.invocation import Output, line
from icd.errors import IcError
from icd.server import bursts, jsonrpc, keyhole
from icd.server.desk import Desk
from icd.server.inbox import Inbox
from icd.server.peer import Gone, Peer

_FAREWELL_SECONDS = 1.0


class Session:
    def __init__(self, peer: Peer, desk: Desk) -> None:
        self._peer = peer
        self._desk = desk
        self._inbox = Inbox(peer)

    async def run(self) -> None:
        try:
            async for message in self._inbox.messages():
                if isinstance(message, bytes):
                    reply = await self._command(message)
                else:
                    reply = await bursts.answer(self._desk, message)
                await self._peer.send(reply)
        except IcError as exc:  # what the peer sends can no longer be understood
            await self._say_goodbye(exc)
        except Gone:
            pass

    def stop(self) -> None:
        """Answer what was read completely, then leave."""
        self._peer.hang_up()

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
        with anyio.move_on_after(_FAREWELL_SECONDS), contextlib.suppress(Gone):
            await self._peer.send(reply)
