"""Locks: never two holders, whoever takes them, and whoever is killed or stopped meanwhile.

A hundred processes want one lock: through the daemon by the native client, with `lock` and with
`hold`; without it, by what the program does in its own process, and by what the library does in
bash.  They are killed at random, mostly while they hold the lock, and stopped for a while wherever
they are.  Meanwhile the daemon is killed, stopped, paused and reloaded.

A journal of who enters and leaves shows one holder at a time; nobody who waits is refused; and at
the end the lock is free.
"""

import contextlib
import os
import random
import signal
import time
from pathlib import Path

from icd.features.locks.directory import Place
from tests.support.lock_crew import KINDS, Crew, check, entered
from tests.support.processes import BIN, Daemon, until
from tests.support.restarts import reload
from tests.torture.suite import Broken, Run

# Of each kind, in a hundred; those in bash look again and again, and a few of them keep a machine busy.
SHARES = {"command": 50, "hold": 42, "library": 4, "python": 4}
BETWEEN_SECONDS = 0.1
PAUSED_SECONDS = 0.2


def run(run: Run, members: int = 100) -> None:
    project = run.directory / "project"
    project.mkdir(parents=True)
    place = Place(str(project / "locks"))
    place.make()
    with contextlib.closing(run.code.daemon()) as daemon:
        daemon.start()
        env = {
            "PATH": f"{BIN}:/usr/bin:/bin",
            "PYTHONPATH": str(run.code.root),
            "INTERCORE_SOCKET": daemon.socket,
            "INTERCORE_LOCK_DIR": place.base,
            "HOME": str(project),
        }
        crew = Crew(project, env, kinds(members))
        try:
            _disturb(run, crew, daemon, project / "journal")
            _calm(run, crew, project / "journal")
        finally:
            crew.end()
        if crew.gave_up:
            raise Broken(f"{crew.gave_up}: {(project / 'said').read_text()[-2000:]}")


def kinds(members: int) -> list[str]:
    """In the same shares, however many there are."""
    return [kind for kind, share in SHARES.items() for _ in range(-(-share * members // 100))]


def _disturb(run: Run, crew: Crew, daemon: Daemon, journal: Path) -> None:
    until(lambda: journal.exists() and len(entered(journal)) > 20)
    while not run.is_over:
        time.sleep(BETWEEN_SECONDS)
        what = run.rng.choices(("kill", "holder", "stop", "daemon"), (6, 8, 4, 1))[0]
        if what == "kill":
            crew.kill(run.rng.randrange(len(crew.members)))
        elif what == "holder":
            crew.kill_holder()
        elif what == "stop":
            crew.stop(run.rng.randrange(len(crew.members)))
        else:
            _disturb_daemon(run.rng, daemon)
        run.figures[what] += 1
        _check(run, journal, crew)


def _disturb_daemon(rng: random.Random, daemon: Daemon) -> None:
    what = rng.choice(("kill", "stop", "pause", "reload"))
    if what == "pause":
        os.kill(daemon.pid, signal.SIGSTOP)
        time.sleep(PAUSED_SECONDS)
        os.kill(daemon.pid, signal.SIGCONT)
    elif what == "reload":
        reload(daemon)
    else:
        daemon.kill() if what == "kill" else daemon.stop()
        daemon.start()


def _calm(run: Run, crew: Crew, journal: Path) -> None:
    """Left alone, every kind gets the lock again.

    One of each: among many whom the daemon wakes, the one in bash, which looks now and then, finds
    the lock taken for as long as luck has it.
    """
    crew.thin()
    before = len(entered(journal))
    until(lambda: set(KINDS) <= {kind for kind, _ in entered(journal)[before:]})
    run.figures["entered"] += len(entered(journal))


def _check(run: Run, journal: Path, crew: Crew) -> None:
    try:
        run.figures["orphaned"] = check(journal, crew.killed)
    except AssertionError as exc:
        raise Broken(str(exc)) from exc
