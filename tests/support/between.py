"""A socket between a client and its daemon, or in the place of a daemon."""

import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Self

from tests.support.processes import PATIENCE


class Between(threading.Thread):
    """Listens at a path; `serve` gets each connection."""

    def __init__(self, path: Path, serve: Callable[[socket.socket], object]) -> None:
        super().__init__(daemon=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._serve = serve
        self.served = 0

    def run(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            with sock:
                self.served += 1
                self._serve(sock)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.join(PATIENCE)
