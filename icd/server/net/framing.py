"""Cutting what a peer sends into messages, within limits.  Knows bytes, not sockets.

The first byte of a connection tells its framing: `i` starts a keyhole frame, and no JSON.
"""

from icd.errors import InvalidRequest, Overloaded
from icd.server import limits
from icd.server.net import argv_frame as keyhole

Message = bytes | list[bytes]


class Inbox:
    """The messages of one peer: keyhole frames, or bursts of lines."""

    held = 0  # bytes of incomplete messages, of all inboxes together

    def __init__(self) -> None:
        self.is_keyhole = False
        self._fresh = True
        self._buffer = bytearray()
        self._counted = 0

    def __len__(self) -> int:
        return len(self._buffer)

    @property
    def framing(self) -> bool | None:
        """Whether the peer sends keyhole frames; None: it has not said anything."""
        return None if self._fresh else self.is_keyhole

    @property
    def unread(self) -> bytes:
        return bytes(self._buffer)

    def feed(self, data: bytes) -> None:
        if self._fresh:
            self._fresh = False
            self.is_keyhole = data[:1] == b"i"
        self._buffer += data

    def go_on(self, unread: bytes, *, is_keyhole: bool | None) -> None:
        """Where another inbox left off; None: it has never heard of its peer."""
        self._fresh, self.is_keyhole = is_keyhole is None, bool(is_keyhole)
        self._buffer += unread

    def put_back(self, lines: list[bytes]) -> None:
        """Lines that were taken and that nothing was done about: they are next."""
        if lines:
            self._buffer[:0] = b"\n".join([*lines, b""])

    def next(self) -> Message | None:
        """The next complete message, if there is one; what is incomplete must be within limits."""
        if not self._buffer:
            self._account(0)
            return None
        message = self._frame() if self.is_keyhole else self._lines()
        self._account(0 if message is not None else len(self._buffer))
        return message

    def close(self) -> None:
        self._account(0)

    def _frame(self) -> bytes | None:
        size = keyhole.length(self._buffer)
        return None if size is None else self._take(size)

    def _lines(self) -> list[bytes] | None:
        """All complete lines, or as many as are answered in one go."""
        end = self._buffer.rfind(b"\n") + 1
        if not end:
            return None
        lines = bytes(self._buffer[:end]).split(b"\n", limits.REQUESTS)
        del self._buffer[: end - len(lines[-1])]
        return [line for line in lines[:-1] if line.strip()]

    def _take(self, size: int) -> bytes:
        message = bytes(self._buffer[:size])
        del self._buffer[:size]
        return message

    def _account(self, size: int) -> None:
        """Keep count of incomplete messages; refuse what is too much."""
        Inbox.held += size - self._counted
        self._counted = size
        if size > limits.MESSAGE_BYTES:
            raise InvalidRequest(f"a message is at most {limits.MESSAGE_BYTES} bytes")
        if size and Inbox.held > limits.PARTIAL_BYTES:
            raise Overloaded("too many incomplete messages at once")
