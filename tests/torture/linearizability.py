"""Linearizability: every answer is explained by some order of what everybody did.

Sixteen clients, over both hosts, work on the same few keys: eight programs with sockets, which do
not always wait for the answer; three processes that use the file; three that use the daemon or, if
there is none, the file; and two that start the native client for each command.  Of these five,
three go through a door that loses replies.  Where the native client was not built, or what is tried
was broken on purpose, programs with sockets take its place.  Meanwhile the daemon is stopped,
killed, paused and reloaded, and processes are killed: so nobody knows how some commands ended.
Round by round, what each was told is checked by `checker.py`, key by key, with the models of state
(register, compare and set, counter), sentinels, leases, reservations, lanes, actions and runs.

Leases and sentinels go by the clock on the wall, histories by one that nobody sets: what depends on
time is not judged in a round in which these two have moved apart.

Somebody else takes the lock of the database now and then, as any program may, and is the only one
to touch the database while it holds it; the file of the lock stays the same one.
"""

import contextlib
import fcntl
import json
import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.support.processes import PATIENCE, Daemon
from tests.torture import clocks
from tests.torture.clients import NATIVE, Client, LossyDoor, Native, Peer, Worker
from tests.torture.clocks import CLOCK_SECONDS
from tests.torture.code import ROOT
from tests.torture.histories import LAST_PHASE, Recording, keys
from tests.torture.interruptions import CALM_SECONDS, WAYS, interrupt
from tests.torture.suite import Broken, Run

CLIENTS, DIRECT, AUTO, NATIVES = 16, 3, 3, 2
ROUND_SECONDS = 1.0
HOLD_SECONDS = 0.1
NOBODY: dict[str, str] = {"INTERCORE_MODE": "direct"}


class Hold(NamedTuple):
    began: float
    ended: float


def run(run: Run) -> None:
    project = run.directory / "project"
    (project / ".git").mkdir(parents=True)
    made = run.code.icctl("init", cwd=project, env=NOBODY)
    assert made.returncode == 0, made.stderr
    # Open for as long as we look: the number of a file that is gone may be given to the next one.
    with _lock_file(project) as lock, _daemon(run) as daemon, contextlib.ExitStack() as stack:
        scene = _Scene(run, project, lock)
        clients = scene.clients(daemon, stack)
        number = 0
        while number == 0 or not run.is_over:
            scene.round(number, daemon, clients)
            number += 1


@contextlib.contextmanager
def _lock_file(project: Path) -> Iterator[int]:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    descriptor = os.open(project / ".clavain" / "intercore.db.lock", flags, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _daemon(run: Run) -> Iterator[Daemon]:
    daemon = run.code.daemon()
    try:
        yield daemon.start()
    finally:
        daemon.close()


class _Scene:
    def __init__(self, run: Run, project: Path, lock: int) -> None:
        self._run = run
        self._project = project
        self._lock = lock
        self._doors: list[LossyDoor] = []

    def clients(self, daemon: Daemon, stack: contextlib.ExitStack) -> list[Client]:
        door = LossyDoor(daemon.home / "door.sock", daemon.socket, self._rng("door"))
        stack.callback(door.close)
        self._doors.append(door)
        found: list[Client] = [
            Worker(f"direct{number}", self._run.code, daemon.socket, self._project, "direct")
            for number in range(DIRECT)
        ]
        found += [
            Worker(f"auto{number}", self._run.code, address, self._project, "auto")
            for number, address in enumerate([daemon.socket, *[door.address] * (AUTO - 1)])
        ]
        # What is broken on purpose is the Python code.
        if NATIVE.exists() and self._run.code.root == ROOT:
            found += [
                Native(f"native{number}", address, self._project)
                for number, address in enumerate([daemon.socket, *[door.address] * (NATIVES - 1)])
            ]
        found += [
            Peer(f"peer{number}", daemon.socket, self._project, self._rng(f"peer{number}"))
            for number in range(CLIENTS - len(found))
        ]
        for client in found:
            stack.callback(client.close)
        return found

    def _rng(self, name: str) -> random.Random:
        return random.Random(f"{self._run.seed}/{name}")

    def round(self, number: int, daemon: Daemon, clients: list[Client]) -> None:
        last = next(client for client in clients if client.name == "direct0")
        recordings = [Recording(key) for key in keys(f"r{number}", *_new(last))]
        turn = _Turn(self._rng(number), clients, recordings, daemon, self._project)
        ahead = clocks.wall_ahead()
        turn.play(self._run)
        for recording in recordings:
            recording.ask(last, recording.key.look)
        if abs(clocks.wall_ahead() - ahead) > CLOCK_SECONDS / 2:
            self._run.figures["rounds in which the clock was set"] += 1
            recordings = [each for each in recordings if not each.key.is_timed]
        self._judge(recordings, turn, {client.name: client.kind for client in clients})

    def _judge(self, recordings: list[Recording], turn: "_Turn", kinds: dict[str, str]) -> None:
        figures = self._run.figures
        for recording in recordings:
            figures["histories"] += 1
            for each in recording.operations:
                figures[f"operations of {kinds[each.client]}"] += 1
                figures["unknown outcomes"] += each.is_unknown
            figures["undecided histories"] += not recording.check()
            _check_holds(recording, turn.holds)
        figures["times the lock was held"] += len(turn.holds)
        figures["lost replies"] = sum(door.lost for door in self._doors)
        with _lock_file(self._project) as lock:
            is_same = os.path.sameopenfile(lock, self._lock)
        if not is_same:
            raise Broken("the file of the lock was replaced: two may hold the lock at once")


def _check_holds(recording: Recording, holds: list[Hold]) -> None:
    for hold in holds:
        for each in recording.operations:
            if each.invoked >= hold.began and each.returned <= hold.ended:
                raise Broken(
                    f"{each.client} was answered on {recording.key.name}, {each.call} -> "
                    f"{each.answer}, all while somebody else held the lock of the database"
                )


def _new(client: Client) -> tuple[str, str]:
    """A run and a lane, by their ids."""
    phases = json.dumps([f"p{number}" for number in range(LAST_PHASE + 1)])
    run = _made(client, ["run", "create", "--goal=g", f"--phases={phases}"])
    return run, _made(client, ["lane", "create", f"--name=of {run}"])


def _made(client: Client, argv: list[str]) -> str:
    made = client.ask(argv)
    if made is None or made.exit:
        raise Broken(f"{argv[0]} could not be made: {made}")
    return made.stdout.strip()


class _Turn:
    """One round: everybody works, until the time is over or something is broken."""

    def __init__(
        self,
        rng: random.Random,
        clients: list[Client],
        recordings: list[Recording],
        daemon: Daemon,
        project: Path,
    ) -> None:
        self.holds: list[Hold] = []
        self._seed = rng.getrandbits(64)
        self._clients = clients
        self._recordings = recordings
        self._daemon = daemon
        self._project = project
        self._over = threading.Event()
        self._failures: list[BaseException] = []

    def play(self, run: Run) -> None:
        jobs = [(self._work, client) for client in self._clients]
        jobs += [(self._disturb, run), (self._hold, None)]
        threads = [threading.Thread(target=self._guarded, args=job) for job in jobs]
        for thread in threads:
            thread.start()
        self._over.wait(ROUND_SECONDS)
        self._over.set()
        for thread in threads:
            thread.join(PATIENCE * 2)
        if self._failures:
            raise self._failures[0]
        if any(thread.is_alive() for thread in threads):
            raise Broken("somebody was never answered")

    def _guarded(self, job, given) -> None:
        try:
            job(given)
        except BaseException as exc:  # noqa: BLE001 -- raised again, by the thread that waits
            self._failures.append(exc)
            self._over.set()

    def _work(self, client: Client) -> None:
        rng = random.Random(f"{self._seed}/{client.name}")
        mine = [each for each in self._recordings if each.key.for_repeaters or not client.repeats]
        while not self._over.is_set():
            rng.choice(mine).play(client, rng)

    def _disturb(self, run: Run) -> None:
        rng = random.Random(f"{self._seed}/disturb")
        workers = [each for each in self._clients if isinstance(each, Worker | Native)]
        while not self._over.wait(rng.uniform(*CALM_SECONDS)):
            what = rng.choice([*WAYS, "killed client"])
            if what == "killed client":
                rng.choice(workers).kill()
            else:
                interrupt(self._daemon, what, lambda: self._over.wait(rng.uniform(0, 0.3)))
            run.figures[f"{what}s"] += 1

    def _hold(self, _: None) -> None:
        rng = random.Random(f"{self._seed}/hold")
        while not self._over.wait(rng.uniform(*CALM_SECONDS)):
            with _lock_file(self._project) as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                began = time.monotonic()
                time.sleep(HOLD_SECONDS)
                self.holds.append(Hold(began, time.monotonic()))
