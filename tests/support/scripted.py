"""What a client sends, to one who listens where a daemon should and answers as it is told."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.processes import PATIENCE


class Scripted(threading.Thread):
    """Listens where a daemon should, and answers each connection with the next reply."""

    def __init__(self, path: str, replies: list[bytes | Callable[[socket.socket], None]]) -> None:
        super().__init__(daemon=True)
        self._sock = socket.socket(socket.AF_UNIX)
        self._sock.bind(path)
        self._sock.listen(16)
        self._sock.settimeout(PATIENCE)
        self._path = path
        self._replies = replies
        self.frames: list[bytes] = []

    def run(self) -> None:
        for reply in self._replies:
            connection, _ = self._sock.accept()
            with connection:
                self.frames.append(read_frame(connection))
                if callable(reply):
                    reply(connection)
                else:
                    connection.sendall(reply)
        self._sock.close()
        os.unlink(self._path)


def read_frame(connection: socket.socket) -> bytes:
    """A whole frame: the fields it announces, and the attachments these announce."""
    data = b""
    while not (data and _is_whole(data)):
        chunk = connection.recv(65_536)
        assert chunk, "the client left in the middle of its frame"
        data += chunk
    return data


def _is_whole(data: bytes) -> bool:
    head, _, rest = data.partition(b"\0")
    *fields, rest = rest.split(b"\0", int(head[4:]))
    attached = [int(f[1:].partition(b":")[0]) for f in fields if f[:1] in (b"s", b"f")]
    return len(fields) == int(head[4:]) and len(rest) >= sum(attached)


def fields(frame: bytes) -> list[bytes]:
    head, _, rest = frame.partition(b"\0")
    return rest.split(b"\0", int(head[4:]))


@contextmanager
def scripted(where: Path, *replies: bytes | Callable[[socket.socket], None]) -> Iterator[Scripted]:
    path = str(where / "s")
    server = Scripted(path, list(replies))
    server.start()
    yield server
    server.join(PATIENCE)
    assert not server.is_alive()


def through(where: Path) -> dict[str, str]:
    return {"INTERCORE_SOCKET": str(where / "s"), "INTERCORE_MODE": "daemon"}
