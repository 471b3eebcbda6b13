"""Commands that go on, as frames and as processes."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from tests.support import processes
from tests.support.processes import CLEAN, PATIENCE, Daemon

WATCH = ["statusline", "--session=s1", "--watch"]


class Watcher:
    """A peer that sent one keyhole frame, and reads the reply in parts."""

    def __init__(self, daemon: Daemon, cwd: Path, *argv: str) -> None:
        self.sock = daemon.connect()
        self._data = b""
        fields = [b"d" + os.fsencode(cwd), *(b"a" + word.encode() for word in argv or WATCH)]
        self.sock.sendall(b"\0".join([b"ic1 %d" % len(fields), *fields, b""]))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def part(self) -> tuple[str, str, str]:
        """The next chunk, or the final reply: its first word, stdout and stderr."""
        while b"\n" not in self._data:
            self._more()
        head, _, self._data = self._data.partition(b"\n")
        word, out, err = head.split()
        while len(self._data) < int(out) + int(err):
            self._more()
        texts = self._data[: int(out)], self._data[int(out) : int(out) + int(err)]
        self._data = self._data[int(out) + int(err) :]
        return word.decode(), texts[0].decode(), texts[1].decode()

    def line(self) -> str:
        word, out, err = self.part()
        assert (word, err) == ("+", "")
        return out

    def quiet(self, seconds: float) -> bool:
        """Whether nothing comes for a while."""
        self.sock.settimeout(seconds)
        try:
            self._data += self.sock.recv(4096)
        except TimeoutError:
            return True
        finally:
            self.sock.settimeout(PATIENCE)
        return not self._data

    def _more(self) -> None:
        data = self.sock.recv(65536)
        assert data, "the stream ended in the middle"
        self._data += data


@contextlib.contextmanager
def command(*argv: str, cwd: Path, env: dict[str, str]) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(
        [processes.door / "icctl", *argv], cwd=cwd, env={**CLEAN, "HOME": str(cwd), **env},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
