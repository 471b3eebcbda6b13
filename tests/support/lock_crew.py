"""Processes that hammer one lock, by every implementation there is, and a journal of who held it.

Each holder appends `enter` and `leave` to a file; the kernel orders what is appended.  A holder that
was killed does not leave: then, and only then, another may enter without that.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.support.processes import CLEAN, PATIENCE, until

ROOT = Path(__file__).parents[2]
# How long one that is stopped stays so.
STOPPED_SECONDS = 0.12

# The library without a program; the shell itself is the holder.
LIBRARY = f"""
INTERCORE_BIN=/nonexistent
source {ROOT / "lib-intercore.sh"}
while :; do
    intercore_lock n s 100s || exit 4
    printf 'enter library %s\\n' $$ >>journal
    sleep 0.0$(( RANDOM % 2 ))
    printf 'leave library %s\\n' $$ >>journal
    intercore_unlock n s
done
"""
# What icctl does, in one process: starting Python each time would leave no time for races.
# Half of the time the owner is a child, which ends with it, or instead of a release.
PYTHON = """
import os, random, time
from icd.features.locks import owners, store
from icd.features.locks.directory import place
here, us = place(dict(os.environ)), os.getpid()
journal = os.open("journal", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
while True:
    life, end = os.pipe()
    child = os.fork() if random.random() < 0.5 else 0
    if not child and os.getpid() != us:
        os.close(end)
        os.read(life, 1)
        os._exit(0)
    owner = owners.of_process(child or us, owners.here(), int(time.time()))
    store.acquire(here, "n", "s", owner, deadline=time.monotonic() + 100)
    os.write(journal, b"enter python %d\\n" % us)
    time.sleep(random.random() / 40)
    os.write(journal, b"leave python %d\\n" % us)
    if child:
        os.kill(child, 9)
        os.waitpid(child, 0)
    else:
        store.release(here, "n", "s", owner)
    os.close(life)
    os.close(end)
    time.sleep(random.random() / 10)  # others want it, too
"""
# The command itself, for the shell that is its parent.
COMMAND = """
while :; do
    icctl lock acquire n s --timeout=100s || exit 4
    printf 'enter command %s\\n' $$ >>journal
    printf 'leave command %s\\n' $$ >>journal
    icctl lock release n s
done
"""
HOLD = """
while :; do
    icctl hold n s --timeout=100s -- sh -c \
        'echo "enter hold $$" >>journal; echo "leave hold $$" >>journal' || exit 4
done
"""
KINDS = {
    "library": ["bash", "-c", LIBRARY],
    "python": [sys.executable, "-c", PYTHON],
    "command": ["bash", "-c", COMMAND],
    "hold": ["bash", "-c", HOLD],
}


class Crew:
    """Who dies is replaced by one of the same kind."""

    def __init__(self, project: Path, env: dict[str, str], kinds: Sequence[str]) -> None:
        self.project = project
        self.env = {**CLEAN, **env}
        self.killed: set[int] = set()
        self.gave_up: list[tuple[str, int]] = []
        self.members = [(kind, self._start(kind)) for kind in kinds]

    def _start(self, kind: str) -> subprocess.Popen[bytes]:
        with (self.project / "said").open("ab") as said:
            return subprocess.Popen(
                KINDS[kind], cwd=self.project, env=self.env, stdin=subprocess.DEVNULL,
                stdout=said, stderr=said, process_group=0,
            )  # fmt: skip

    def kill(self, index: int) -> None:
        kind, process = self.members[index]
        if process.poll() is not None:
            self.gave_up.append((kind, process.returncode))
        self.killed.add(process.pid)
        process.kill()
        process.wait(PATIENCE)
        self.members[index] = kind, self._start(kind)

    def stop(self, index: int) -> None:
        """Wherever it is; somebody else goes on meanwhile, or nobody can."""
        _, process = self.members[index]
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGSTOP)
            time.sleep(STOPPED_SECONDS)
            os.kill(process.pid, signal.SIGCONT)

    def kill_holder(self) -> None:
        """Mostly in the middle of what it does under the lock; then another one gets it."""
        holder = self.holder()
        for index, (_, process) in enumerate(self.members):
            if process.pid == holder:
                self.kill(index)
                until(lambda: self.holder() != holder)

    def holder(self) -> int:
        try:
            held = (self.project / "locks" / "n" / "s" / "owner.json").read_text()
        except OSError:
            return 0
        return int(held.partition('"pid":')[2].partition(",")[0])

    def thin(self) -> None:
        """Leave one of each kind."""
        kept = {kind: (kind, process) for kind, process in self.members}
        self._end([member for member in self.members if member not in kept.values()])
        self.members = list(kept.values())

    def end(self) -> None:
        self._end(self.members)

    def _end(self, members: Sequence[tuple[str, subprocess.Popen[bytes]]]) -> None:
        for kind, process in members:
            if process.poll() is not None:
                self.gave_up.append((kind, process.returncode))
            self.killed.add(process.pid)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(PATIENCE)


def entered(journal: Path) -> list[tuple[str, str]]:
    lines = [line.split() for line in journal.read_text().splitlines()]
    return [(kind, pid) for word, kind, pid in lines if word == "enter"]


def check(journal: Path, killed: set[int]) -> int:
    """How often somebody entered after one who was killed inside."""
    inside: str | None = None
    orphaned = 0
    lines = journal.read_text().splitlines()
    for number, line in enumerate(lines, start=1):
        word, _kind, pid = line.split()
        if word == "enter":
            assert inside is None or int(inside) in killed, (
                f"line {number}: {inside} and {pid}", lines[-20:]
            )  # fmt: skip
            orphaned += inside is not None
            inside = pid
        else:
            assert inside == pid, f"line {number}: {pid} left, {inside} is inside"
            inside = None
    return orphaned
