"""Watch: whoever follows sees everything, in order, at least once, and nothing before its commit.

Writers record events through both hosts, each known by its key, and count up one row of state.
Meanwhile readers follow (`readers.py`): a subscription (`events.watch`) that goes on after the last
event it has; `events tail --consumer -f`, whose process is killed at any time; `events tail
--consumer` again and again, through a door that loses replies; a program that acknowledges by
itself (`events.consume`), and forgets what it has not acknowledged; and those who watch the row,
with `state.watch` and with `icctl state watch`.  The daemon is killed, stopped, paused and reloaded.

At the end of each round the log is read without a daemon: every acknowledged event is in it, and
each reader was shown all of it, for the first time in its order, and nothing that is not in it.
While they follow, somebody who does not wait for any lock (`witness.py`) looks whether each event
that anybody is shown is committed.
"""

import contextlib
import json
import random
import threading
from collections.abc import Callable

from tests.support.processes import PATIENCE
from tests.torture import stage as stages
from tests.torture.clients import LossyDoor, Worker
from tests.torture.readers import Caller, Follower, Manual, RowFollower, RowStream, Stream
from tests.torture.stage import Stage
from tests.torture.suite import Broken, Run
from tests.torture.witness import Witness

ROUND_SECONDS = 2.0
DIRECT = {"INTERCORE_MODE": "direct"}


def run(run: Run) -> None:
    with contextlib.ExitStack() as stack:
        scene = _Scene(_stage(run, stack))
        number = 0
        while number == 0 or not run.is_over:
            scene.round(number)
            number += 1


def _stage(run: Run, stack: contextlib.ExitStack) -> Stage:
    project = run.directory / "project"
    (project / ".git").mkdir(parents=True)
    made = run.code.icctl("init", cwd=project, env=DIRECT)
    assert made.returncode == 0, made.stderr
    daemon = run.code.daemon()
    stack.callback(daemon.close)
    daemon.start()
    for name in ("caller", "follower", "manual"):
        daemon.call("cursor.register", cwd=str(project), consumer=name, durable=True)
    door = LossyDoor(daemon.home / "door.sock", daemon.socket, random.Random(run.seed))
    stack.callback(door.close)
    worker = Worker("direct", run.code, daemon.socket, project, "direct")
    stack.callback(worker.close)
    witness = Witness(run, project / ".clavain" / "intercore.db")
    return Stage(run, project, daemon, door, worker, witness)


class _Scene:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._of_the_log = [kind(stage) for kind in (Stream, Manual, Caller, Follower)]
        self._of_the_row = [RowStream(stage), RowFollower(stage)]
        self._log: list[tuple[int, str]] = []
        self._failures: list[BaseException] = []

    def round(self, number: int) -> None:
        stage = self._stage
        stage.written = threading.Event()
        rng = random.Random(f"{stage.run.seed}/{number}")
        writers = [
            self._thread(stages.record, stage, f"{number}/a"),
            self._thread(stages.record, stage, f"{number}/b"),
            self._thread(stages.record_directly, stage, f"{number}/c"),
            self._thread(stages.count, stage, f"{number}"),
            self._thread(stages.disturb, stage, random.Random(rng.random())),
        ]
        readers = [
            self._thread(reader.follow, random.Random(rng.random()))
            for reader in [*self._of_the_log, *self._of_the_row]
        ]
        stage.failed.wait(ROUND_SECONDS)
        stage.written.set()
        self._join(writers, readers)
        self._check()

    def _thread(self, job: Callable[..., None], *given: object) -> threading.Thread:
        def guarded() -> None:
            try:
                job(*given)
            except BaseException as exc:  # noqa: BLE001 -- raised again, by the thread that waits
                self._failures.append(exc)
                self._stage.failed.set()

        thread = threading.Thread(target=guarded, name=job.__qualname__)
        thread.start()
        return thread

    def _join(self, writers: list[threading.Thread], readers: list[threading.Thread]) -> None:
        failed = self._stage.failed
        for threads, what in ((writers, "was never answered"), (readers, "never saw the end")):
            if name := stages.join(threads, failed, PATIENCE * 2):
                self._failures.append(Broken(f"{name} {what}"))
                failed.set()
        if self._failures:
            self._end(writers, readers)
            raise self._failures[0]

    def _end(self, writers: list[threading.Thread], readers: list[threading.Thread]) -> None:
        """Nobody is waited for any more: what somebody else waits for may never come."""
        self._stage.written.set()
        writers[-1].join(PATIENCE * 2)  # it starts daemons
        self._stage.daemon.kill()
        self._stage.worker.kill()
        for thread in [*writers, *readers]:
            thread.join(PATIENCE * 2)

    def _check(self) -> None:
        self._read_log()
        there = {key: seq for seq, key in self._log}
        for key, seq in self._stage.acked.items():
            if there.get(key) != seq:
                found = there.get(key)
                raise Broken(f"event {key} was acknowledged as {seq}, and the log says {found}")
        for reader in self._of_the_log:
            reader.shown.compare(self._log)
        figures = self._stage.run.figures
        figures["events"] = len(self._log)
        figures["events shown again"] = sum(each.shown.again for each in self._of_the_log)
        figures["changes of a row"] = self._stage.counted
        figures["lost replies"] = self._stage.door.lost

    def _read_log(self) -> None:
        """The rest of it, page by page, by somebody who needs no daemon."""
        is_more = True
        while is_more:
            since = self._log[-1][0] if self._log else 0
            words = ["events", "tail", "--all", f"--since={since}", "--limit=1000"]
            reply = self._stage.worker.ask(words)
            assert reply is not None
            assert reply.exit == 0, reply
            rows = [json.loads(line) for line in reply.stdout.splitlines()]
            self._log += [(event["seq"], event["idempotency_key"]) for event in rows]
            is_more = bool(rows)
