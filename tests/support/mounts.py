"""File systems for tests: one that hangs on demand, one that is soon full."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import PATIENCE, until

# Whatever the kernel remembered would still be answered while the server is stopped.
FORGETFUL = "attr_timeout=0,entry_timeout=0,negative_timeout=0"


class Mount:
    """A directory that can be used like any other, until it hangs."""

    def __init__(self, path: Path, server: "subprocess.Popen[bytes]") -> None:
        self.path = path
        self._server = server

    def hang(self) -> None:
        self._server.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._server.pid, os.WSTOPPED | os.WNOWAIT)

    def release(self) -> None:
        self._server.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def mounted() -> Iterator[Mount]:
    """Skips the test where there is no FUSE, with the reason."""
    program = shutil.which("bindfs")
    if program is None:
        pytest.skip("no bindfs here: install Debian's bindfs")
    with tempfile.TemporaryDirectory(prefix="icfuse-") as directory:
        below, path = Path(directory, "below"), Path(directory, "mount")
        below.mkdir()
        path.mkdir()
        server = subprocess.Popen(
            [program, "-f", "-o", FORGETFUL, below, path],
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            until(lambda: os.path.ismount(path) or server.poll() is not None)
            if server.poll() is not None:
                pytest.skip(f"cannot mount with FUSE here: {server.communicate()[1].decode()}")
            yield Mount(path, server)
        finally:
            server.kill()  # the kernel then fails whatever waits for it
            server.communicate(timeout=PATIENCE)
            unmount = ["umount", "-l"] if os.geteuid() == 0 else ["fusermount3", "-uz"]
            subprocess.run([*unmount, path], capture_output=True, check=False)


@contextlib.contextmanager
def small(size: str) -> Iterator[Path]:
    """A project on a file system of this size; skips the test where none can be mounted."""
    place = Path(tempfile.mkdtemp(prefix="icsmall-", dir="/tmp"))
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs", place],
        capture_output=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        place.rmdir()
        pytest.skip(f"cannot mount a tmpfs here: {done.stderr.decode().strip()}")
    try:
        (place / ".git").mkdir()
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)
        place.rmdir()
