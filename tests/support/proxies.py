"""A door in front of a server that can be shut while something passes through it."""

import socket
import threading
from contextlib import suppress
from pathlib import Path


class Proxy:
    """Forwards what comes to a Unix socket; `cut_at`: these bytes still pass, their answer not."""

    def __init__(self, directory: Path, behind: str) -> None:
        self.cut_at: bytes | None = None
        self._behind = behind
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(directory / ".s.PGSQL.5432"))
        self._listener.listen(16)
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            far.connect(self._behind)
            self._open += [near, far]
            is_cut = threading.Event()
            for source, target in ((near, far), (far, near)):
                words = (source, target, is_cut, source is near)
                threading.Thread(target=self._forward, args=words, daemon=True).start()

    def _forward(self, source, target, is_cut, outward) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if outward and self.cut_at is not None and self.cut_at in data:
                    self.cut_at = None
                    is_cut.set()
                if is_cut.is_set() and not outward:
                    break
                target.sendall(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for each in (self._listener, *self._open):
            each.close()
