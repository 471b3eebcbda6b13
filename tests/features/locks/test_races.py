"""Two implementations hammer one lock, and are killed at random: never two holders.

Each holder appends `enter` and `leave` to a file; the kernel orders what is appended.  A holder that
was killed does not leave: then, and only then, another may enter without that.  Instead of
releasing the lock, some often let its owner die, for all others to break it at once; and some are
stopped for a while, wherever they are.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.support.processes import CLEAN, PATIENCE, icctl, until

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[3]
SECONDS = 5.0
# Every so often somebody is killed: at random, or whoever holds the lock.
BETWEEN_KILLS = 0.12

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
CREW = ["library"] * 6 + ["python"] * 6 + ["command"] * 2 + ["hold"] * 2


class Crew:
    """Sixteen at a time; who dies is replaced."""

    def __init__(self, project: Path, env: dict[str, str]) -> None:
        self.project = project
        self.env = {**CLEAN, **env}
        self.killed: set[int] = set()
        self.gave_up: list[tuple[str, int]] = []
        self.members = [(kind, self._start(kind)) for kind in CREW]

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
            time.sleep(BETWEEN_KILLS)
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

    def end(self) -> None:
        for kind, process in self.members:
            if process.poll() is not None:
                self.gave_up.append((kind, process.returncode))
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(PATIENCE)


@pytest.fixture
def env(project: Path) -> dict[str, str]:
    return {"INTERCORE_LOCK_DIR": str(project / "locks"), "HOME": str(project)}


@pytest.mark.parametrize("seed", [1])
def test_a_lock_never_has_two_holders_whoever_is_killed(
    project: Path, env: dict[str, str], seed: int
) -> None:
    chance = random.Random(seed)
    journal = project / "journal"
    crew = Crew(project, env)
    try:
        until(lambda: journal.exists() and len(entered(journal)) > 20)
        ends = time.monotonic() + SECONDS
        while time.monotonic() < ends or not check(journal, crew.killed):
            assert time.monotonic() < ends + PATIENCE, "nobody was killed while it held the lock"
            time.sleep(BETWEEN_KILLS)
            crew.kill(chance.randrange(6, 12)) if chance.random() < 0.3 else crew.kill_holder()
            if chance.random() < 0.2:
                crew.kill(chance.randrange(len(CREW)))
            if chance.random() < 0.3:
                crew.stop(chance.randrange(len(CREW)))
        until(lambda: set(KINDS) <= {kind for kind, _ in entered(journal)})
        orphaned = check(journal, crew.killed)  # before all are killed, one after the other
    finally:
        crew.end()

    assert orphaned > 0
    assert crew.gave_up == [], (project / "said").read_text()
    assert Counter(kind for kind, _ in entered(journal)).keys() == KINDS.keys()
    # Everybody is dead, and so is every claim.
    until(lambda: icctl("lock", "acquire", "n", "s", cwd=project, env=env).returncode == 0)


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


def test_the_checker_notices_two_holders(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    journal.write_text("enter a 1\nenter b 2\nleave a 1\nleave b 2\n")

    with pytest.raises(AssertionError, match="line 2: 1 and 2"):
        check(journal, set())
    with pytest.raises(AssertionError, match="line 3: 1 left, 2 is inside"):
        check(journal, {1})
