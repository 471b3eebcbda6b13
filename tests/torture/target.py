"""What intruders are let loose on: a project with a daemon, and files that are none of its business.

An attempt is a function of a `Target`.  It tries something, by chance one way or another, and
raises `Broken` unless that was refused as it should be; whoever calls it compares `seen` before and
after: a refused attempt changes nothing.
"""

import hashlib
import os
import re
import sqlite3
import stat
import subprocess
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tests.support.processes import PATIENCE, Daemon
from tests.torture import frames
from tests.torture.frames import Reply
from tests.torture.suite import Broken, Run

# One line on stderr, whoever prints it.
SENTENCE = re.compile(rb"(icctl|icd): [^\n]+\n")
SECRET = "dont-tell-anybody-7f3a"  # in a file that belongs to others
NOBODY = 65_534


@dataclass
class Target:
    run: Run
    project: Path
    outside: Path
    daemon: Daemon

    @property
    def database(self) -> Path:
        return self.project / ".clavain" / "intercore.db"

    @property
    def env(self) -> dict[str, str]:
        return {
            "INTERCORE_SOCKET": self.daemon.socket, "HOME": str(self.daemon.home),
            "INTERCORE_LOCK_DIR": str(self.daemon.home / "locks"),
        }  # fmt: skip

    def ask(self, *argv: str, env: dict[str, str] | None = None) -> Reply:
        """Through the socket, as a client would."""
        return frames.ask(self.daemon, *argv, cwd=self.project, env=env)

    def icctl(self, *argv: str, env: dict[str, str] | None = None, stdin: bytes = b"") -> Reply:
        """The real client; a hang is an exception."""
        done = self.run.code.icctl(
            *argv, cwd=self.project, env={**self.env, **(env or {})}, stdin=stdin, timeout=PATIENCE
        )
        return Reply("exit", done.returncode, done.stdout, done.stderr)

    def serve(self, socket: Path) -> "subprocess.CompletedProcess[bytes]":
        """A further daemon, which is expected to give up."""
        command = [*self.daemon._command, "serve", "--socket", str(socket)]
        return subprocess.run(
            command, env=self.daemon.env, cwd="/", stdin=subprocess.DEVNULL, capture_output=True,
            timeout=PATIENCE, check=False,
        )  # fmt: skip

    def seen(self) -> dict[str, str]:
        """All files, and all rows, without those that only say that somebody was here."""
        trees = (self.outside, self.project)
        found = {str(path): _described(path) for tree in trees for path in sorted(tree.rglob("*"))}
        found = {path: what for path, what in found.items() if not _is_ours(path)}
        with closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)) as conn:
            found["rows"] = "\n".join(conn.iterdump())
        return found


Attempt = Callable[[Target], None]


def refused(what: str, reply: Reply) -> None:
    """Raise unless it is a no, as a sentence, with nothing on stdout."""
    unrevealing(what, reply)
    if reply.what != "exit" or reply.exit not in (1, 2, 3) or reply.stdout:
        raise Broken(f"{what}: not refused: {_short(reply)}")
    if not SENTENCE.fullmatch(reply.stderr) or b"internal error" in reply.stderr:
        raise Broken(f"{what}: refused without a sentence: {_short(reply)}")


def unrevealing(what: str, reply: Reply) -> None:
    if SECRET.encode() in reply.stdout + reply.stderr:
        raise Broken(f"{what}: a file of somebody else was shown: {reply}")


def _short(reply: Reply) -> str:
    return repr(reply)[:2000]


def difference(before: dict[str, str], after: dict[str, str]) -> str:
    names = sorted(name for name in before.keys() | after if before.get(name) != after.get(name))
    if names == ["rows"]:
        rows = set(after["rows"].splitlines()) ^ set(before["rows"].splitlines())
        return f"rows: {sorted(rows)[:5]}"
    return ", ".join(names[:10])


def _is_ours(path: str) -> bool:
    """What the database consists of, and where agents leave their traces."""
    return "/intercore.db" in path or "/.clavain/dispatches" in path


def _described(path: Path) -> str:
    found = path.lstat()
    kind = stat.filemode(found.st_mode)
    if stat.S_ISLNK(found.st_mode):
        return f"{kind} to {os.readlink(path)}"
    if stat.S_ISREG(found.st_mode):
        return f"{kind} {found.st_uid} {hashlib.sha256(path.read_bytes()).hexdigest()}"
    return f"{kind} {found.st_uid}"
