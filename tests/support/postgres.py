"""A PostgreSQL of our own: a private directory, a socket and no port, and a user that is not root.

It is started when a test first asks for it, one for each process of the tests.  A crash of the
machine is no concern of it, so it does not wait for the disk.
"""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from glob import glob
from pathlib import Path

PATIENCE = 60.0
DATABASE = "fleet"
OPTIONS = (
    "listen_addresses=", "fsync=off", "full_page_writes=off", "shared_buffers=16MB",
    "max_connections=60", "autovacuum=off", "jit=off", "log_min_messages=fatal",
)  # fmt: skip


def directory() -> str | None:
    """Of the programs of the newest server that is installed."""
    found = sorted(glob("/usr/lib/postgresql/*/bin"), key=lambda p: int(p.split("/")[4]))
    if found and os.path.exists(os.path.join(found[-1], "initdb")):
        return found[-1]
    initdb = shutil.which("initdb")
    return os.path.dirname(os.path.realpath(initdb)) if initdb else None


class Server:
    """A running server; `store` is what a setting would name."""

    def __init__(self, programs: str) -> None:
        self._programs = programs
        # Not below the directory of the tests, which only their user may enter.
        self.root = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))
        self.data = self.root / "data"
        self._process: subprocess.Popen[bytes] | None = None
        self._as = _unprivileged()
        if self._as:
            owner = pwd.getpwnam(self._as["user"])
            os.chown(self.root, owner.pw_uid, owner.pw_gid)
        self.root.chmod(0o755)
        self._run("initdb", "-D", self.data, "-U", "fleet", "-A", "trust", "-E", "UTF8",
                  "--locale=C", "--no-sync", "--no-instructions")  # fmt: skip
        self.start()
        self._run("createdb", "-h", self.root, "-U", "fleet", DATABASE)

    @property
    def store(self) -> str:
        return f"postgresql://fleet@/{DATABASE}?host={self.root}"

    def start(self) -> None:
        """Again, too: what is left of a server that was killed may be there for a moment."""
        until = time.monotonic() + PATIENCE
        self._begin()
        while not self._is_ready():
            assert time.monotonic() < until, "the server does not start"
            time.sleep(0.02)
            if self._process is None or self._process.poll() is not None:
                self._begin()

    def _begin(self) -> None:
        options = [word for option in OPTIONS for word in ("-c", option)]
        self._process = subprocess.Popen(
            [f"{self._programs}/postgres", "-D", self.data, "-k", self.root, *options],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            cwd="/", env={}, **self._as,
        )  # fmt: skip

    def _is_ready(self) -> bool:
        place = ("-h", str(self.root), "-U", "fleet", "-d", "postgres")
        asked = subprocess.run([f"{self._programs}/pg_isready", "-q", *place], check=False)
        return asked.returncode == 0

    def kill(self) -> None:
        """As if the power had gone, with all that serve its connections."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)  # it begins no more of them
        for child in _children(self._process.pid):
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(PATIENCE)
        shutil.rmtree(self.root, ignore_errors=True)

    def _run(self, program: str, *words: object) -> None:
        subprocess.run(
            [f"{self._programs}/{program}", *map(str, words)],
            check=True, capture_output=True, timeout=PATIENCE, cwd="/", env={}, **self._as,
        )  # fmt: skip


def _unprivileged() -> dict:
    """The server refuses root."""
    if os.geteuid():
        return {}
    names = {each.pw_name for each in pwd.getpwall()}
    name = "postgres" if "postgres" in names else "nobody"
    return {"user": name, "group": pwd.getpwnam(name).pw_gid, "extra_groups": []}


def _children(pid: int) -> list[int]:
    return [int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
