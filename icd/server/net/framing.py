"""Cutting what a peer sends into messages, within limits.  Knows bytes, not sockets.

The first byte of a connection tells its framing: `i` starts an argv frame, and no JSON.
"""

from icd.errors import InvalidRequest, Overloaded
from icd.server import limits
from icd.server.net import argv_frame
from icd.server.net.argv_frame import Frame

Message = Frame | list[bytes]


class Framing:
    """The messages of one peer: argv frames, or bursts of lines."""

    held = 0  # bytes of incomplete messages, of all peers together

    def __init__(self) -> None:
        self.sends_frames: bool | None = None  # None: the peer has not said anything
        self.buffer = bytearray()
        self._counted = 0

    @property
    def unread(self) -> bytes:
        return bytes(self.buffer)

    def feed(self, data: bytes) -> None:
        if self.sends_frames is None:
            self.sends_frames = data[:1] == b"i"
        self.buffer += data

    def go_on(self, unread: bytes, *, sends_frames: bool | None) -> None:
        """Continue with what the daemon before us had read and not answered."""
        self.sends_frames = sends_frames
        self.buffer += unread

    def put_back(self, lines: list[bytes]) -> None:
        """Return lines that were taken and not carried out: they are next."""
        if lines:
            self.buffer[:0] = b"\n".join([*lines, b""])

    def next(self) -> Message | None:
        """The next complete message, if there is one; what is incomplete must be within limits."""
        message: Message | None = None
        if self.buffer:
            message = self._frame() if self.sends_frames else self._lines()
        partial = len(self.buffer) if message is None else 0
        if partial or self._counted:
            self._account(partial)
        return message

    def close(self) -> None:
        self._account(0)

    def _frame(self) -> Frame | None:
        frame = argv_frame.split(self.buffer)
        if frame is not None:
            del self.buffer[: len(frame.raw)]
        return frame

    def _lines(self) -> list[bytes] | None:
        """All complete lines, or as many as are answered in one go."""
        end = self.buffer.rfind(b"\n") + 1
        if not end:
            return None
        lines = bytes(self.buffer[:end]).split(b"\n", limits.REQUESTS)
        del self.buffer[: end - len(lines[-1])]
        return [line for line in lines[:-1] if line.strip()]

    def _account(self, size: int) -> None:
        """Keep count of incomplete messages; refuse what is too much."""
        Framing.held += size - self._counted
        self._counted = size
        if size > limits.MESSAGE_BYTES:
            raise InvalidRequest(f"a message is at most {limits.MESSAGE_BYTES} bytes")
        if size and Framing.held > limits.PARTIAL_BYTES:
            raise Overloaded("too many incomplete messages at once")
