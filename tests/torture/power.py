"""Power loss: whatever the disk is left with, the database opens to a prefix of what was done.

Two ways to try it.  The first needs nothing: a daemon works and is killed, and its write-ahead log
is cut at the end of every frame and at random bytes, with nothing, zeros or rubbish after the cut.
Whoever had been answered before the log had that length must be there.

The second records what a daemon asks of the disk (recorder.c, loaded into it), with checkpoints in
between, and puts together what a disk may hold if the power fails at a moment: everything that was
synced, and of what was not, an arbitrary part.  With `durability = "full"` every acknowledged
operation must be there, and nothing of the log may be waiting for a sync when an answer is sent;
with "normal", what is there is a prefix.
"""

import json
import random
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.support.processes import Daemon
from tests.torture import upgrades
from tests.torture.disk import Disk, Record, read
from tests.torture.ledger import Ledger, Operation
from tests.torture.projects import read_answers
from tests.torture.suite import Broken, Run
from tests.torture.workload import Workload

RECORDER = Path(__file__).with_name("recorder.c")
BURSTS = 30
# A thousand frames are checkpointed by SQLite itself, and then its log begins anew: well before
# that, however many commits a slow machine makes of a burst, the client stops.
LOG_BYTES = 3_000_000
WAL_HEADER, FRAME_HEADER = 32, 24
RANDOM_CUTS = 40
LOSSES = 60


def run(run: Run) -> None:
    """One round at least, however short the time is."""
    recorder = compiled(run.directory)
    if recorder is None:
        print("power: no C compiler, so only the log is cut, and nothing is known of syncs")
    number = 0
    while number == 0 or not run.is_over:
        number += 1
        directory = run.directory / str(number)
        cut_log(run, directory / "cut")
        if recorder is not None:
            lose_power(run, directory / "full", recorder, "full")
            lose_power(run, directory / "normal", recorder, "normal")
        shutil.rmtree(directory)


def compiled(directory: Path) -> Path | None:
    """The library that records; None without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    library = directory / "recorder.so"
    words = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", str(RECORDER), "-ldl"]
    subprocess.run([compiler, *words, "-o", str(library)], check=True)
    return library


@dataclass
class _Worked:
    """What a daemon did, and how long its log was after each burst that was answered."""

    database: Path
    ledger: Ledger = field(default_factory=Ledger)
    marks: list[tuple[int, int]] = field(default_factory=list)

    @property
    def log(self) -> Path:
        return self.database.with_name("intercore.db-wal")


def _project(directory: Path) -> Path:
    (directory / ".git").mkdir(parents=True)
    return directory / ".clavain" / "intercore.db"


def _work(daemon: Daemon, database: Path, rng: random.Random, *, rests: bool) -> _Worked:
    """One client, which waits for the answers to each burst."""
    done = _Worked(database)
    load = Workload(rng, done.ledger, "0")
    where = {"cwd": str(database.parents[1])}
    with daemon.connect() as peer:
        for _ in range(BURSTS):
            _exchange(peer, load.burst(), where)
            done.marks.append((done.log.stat().st_size, len(done.ledger.operations)))
            if rests and rng.random() < 0.1:
                _rest(done.log)
            elif done.marks[-1][0] > LOG_BYTES:
                break
    daemon.kill()
    return done


def _exchange(peer: socket.socket, operations: list[Operation], where: dict[str, str]) -> None:
    peer.sendall(b"".join(known.request(**where) for known in operations))
    if not read_answers(peer, operations):
        raise Broken(f"icd died over {operations}")


def _rest(log: Path) -> None:
    """Until the daemon has emptied the log, or almost: what comes next may as well meet it there."""
    deadline = time.monotonic() + 1
    while log.stat().st_size and time.monotonic() < deadline:
        time.sleep(0.005)


# --- the log is cut ---


def cut_log(run: Run, directory: Path) -> None:
    database = _project(directory)
    daemon = run.code.daemon(env={"INTERCORE_IDLE_SECONDS": "3600"})
    try:
        daemon.start().call("db.init", cwd=str(directory))
        made = database.with_name("intercore.db-wal").stat().st_size
        done = _work(daemon, database, run.rng, rests=False)
    finally:
        daemon.close()
    log, content = done.log.read_bytes(), database.read_bytes()
    assert done.marks == sorted(done.marks), "the log was begun anew"
    frame = FRAME_HEADER + int.from_bytes(log[8:12], "big")
    cuts = [*range(0, WAL_HEADER, 8), *range(WAL_HEADER, len(log) + 1, frame)]
    cuts += [run.rng.randrange(len(log)) for _ in range(RANDOM_CUTS)]
    for cut in cuts:
        tail = _tail(run.rng, len(log) - cut)
        _write(directory / "image", {"": content, "-wal": log[:cut] + tail})
        answered = max((count for size, count in done.marks if size <= cut), default=0)
        acknowledged = {known.id for known in done.ledger.operations[:answered]}
        try:
            if cut >= made or upgrades.content(directory / "image" / "copy.db")[0]:
                check(done.ledger, directory / "image", acknowledged)
        except Broken as exc:
            raise Broken(f"the log, cut at {cut} of {len(log)} bytes: {exc}") from exc
        run.figures["cuts"] += 1
    run.figures["operations"] += len(done.ledger.operations)


def _tail(rng: random.Random, size: int) -> bytes:
    """What a disk may show behind the part that it wrote."""
    return rng.choice((b"", bytes(size), rng.randbytes(min(size, 10_000))))


# --- the power fails ---


def lose_power(run: Run, directory: Path, recorder: Path, durability: str) -> None:
    database = _project(directory)
    done, records, before = _recorded(run, database, recorder, durability)
    answers = [_answered(record) for record in records]
    moments = {i for i, ids in enumerate(answers) if ids}
    if not moments:
        raise Broken("the recorder saw no answer: is there another call than send by now?")
    moments |= {run.rng.randrange(len(records)) for _ in range(LOSSES)}
    disk, acknowledged = Disk(before), set[str]()
    for moment, record in enumerate(records):
        acknowledged |= answers[moment]
        disk.apply(record)
        waiting = disk.waiting(f"{database}-wal")
        if durability == "full" and answers[moment] and waiting:
            raise Broken(f"{waiting} writes to the log were not synced when {record} was sent")
        if moment in moments:
            _write(directory / "image", _named(disk.image(run.rng), database))
            try:
                check(
                    done.ledger,
                    directory / "image",
                    acknowledged if durability == "full" else set(),
                )
            except Broken as exc:
                raise Broken(f"{durability}, power lost after record {moment}: {exc}") from exc
            run.figures["power losses"] += 1
    run.figures["operations"] += len(done.ledger.operations)


def _recorded(
    run: Run, database: Path, recorder: Path, durability: str
) -> tuple[_Worked, list[Record], dict[str, bytes]]:
    """What was done, what was asked of the disk for it, and what the disk held before."""
    file = database.parents[1] / "record"
    env = {"INTERCORE_IDLE_SECONDS": "0.05", "INTERCORE_DURABILITY": durability}
    daemon = run.code.daemon(env=env)
    try:
        daemon.start().call("db.init", cwd=str(database.parents[1]))
        assert daemon.stop() == 0
        assert [file.name for file in database.parent.glob("*-wal")] == []
        before = {str(database): database.read_bytes()}
        daemon.env |= {"LD_PRELOAD": str(recorder), "TORTURE_RECORD": str(file)}
        daemon.start()
        done = _work(daemon, database, run.rng, rests=True)
    finally:
        daemon.close()
    records = list(read(file))
    asked = {record.kind for record in records if record.path.startswith(str(database))}
    if not asked >= {"W", "S"}:
        raise Broken(f"the recorder saw only {asked}: does SQLite write in another way by now?")
    return done, records, before


def _answered(record: Record) -> set[str]:
    """The ids of the requests that this record answers."""
    if record.kind != "A" or not record.data.startswith(b"{"):
        return set()
    return {json.loads(line)["id"] for line in record.data.splitlines()}


def _named(image: dict[str, bytes], database: Path) -> dict[str, bytes]:
    return {path.removeprefix(str(database)): content for path, content in image.items()}


# --- what is left ---


def _write(directory: Path, files: dict[str, bytes]) -> None:
    directory.mkdir(exist_ok=True)
    for old in directory.iterdir():
        old.unlink()
    for suffix, content in files.items():
        (directory / f"copy.db{suffix}").write_bytes(content)


def check(ledger: Ledger, image: Path, acknowledged: set[str]) -> None:
    """It opens, what was acknowledged is there, and nothing is without what came before it."""
    told = Ledger(list(_as_told(ledger, acknowledged)))
    there = told.check(image / "copy.db")
    order = [known.id for known in ledger.operations if not known.refusal]
    if there != set(order[: len(there)]):
        first = next(id_ for id_ in order if id_ not in there)
        raise Broken(f"{first} is not there, but {len(there)} others, later ones among them")


def _as_told(ledger: Ledger, acknowledged: set[str]) -> Iterator[Operation]:
    for known in ledger.operations:
        yield known if known.id in acknowledged else replace(known, outcome=None)
