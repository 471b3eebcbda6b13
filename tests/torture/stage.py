"""Where writers and readers of the suite `watch` meet: a project, a daemon, and what was written."""

import random
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.processes import PATIENCE, Daemon
from tests.torture.clients import LossyDoor, Worker
from tests.torture.interruptions import CALM_SECONDS, WAYS, interrupt
from tests.torture.suite import Broken, Run
from tests.torture.witness import Witness

LOOK_SECONDS = 0.1  # how long a reader waits before it looks whether it is over
PAUSE_SECONDS = 0.002  # of a writer: readers are to keep up


@dataclass
class Stage:
    """`written`: nobody writes any more in this round; `failed`: it is over."""

    run: Run
    project: Path
    daemon: Daemon
    door: LossyDoor
    worker: Worker
    witness: Witness
    acked: dict[str, int] = field(default_factory=dict)  # events, by their key
    counted: int = 0  # the row of state, as it was last acknowledged
    written: threading.Event = field(default_factory=threading.Event)
    failed: threading.Event = field(default_factory=threading.Event)

    def is_over(self, last: int, end: int | None = None) -> bool:
        """Whether a reader that has seen `last` is done; `end` is that of the log, or another."""
        if self.failed.is_set():
            return True
        if not self.written.is_set():
            return False
        return last >= (max(self.acked.copy().values(), default=0) if end is None else end)

    def ask(self, method: str, **params: Any) -> dict[str, Any] | None:
        """None if nobody answered; then it may be asked again."""
        try:
            answer = self.daemon.respond(method, cwd=str(self.project), **params)
        except (OSError, ValueError):
            return None
        if "error" in answer and not answer["error"]["data"]["retryable"]:
            raise Broken(f"{method} failed: {answer['error']}")
        return answer.get("result")


def record(stage: Stage, name: str) -> None:
    """Through the daemon, whichever it is by now; once, however often it has to be asked."""
    number = 0
    while not stage.written.is_set():
        key = f"{name}/{number}"
        if found := stage.ask("events.record", source="w", type="t", idempotency_key=key):
            stage.acked[key] = found["seq"]
            number += 1
        time.sleep(PAUSE_SECONDS)


def record_directly(stage: Stage, name: str) -> None:
    number = 0
    while not stage.written.is_set():
        key = f"{name}/{number}"
        words = ["events", "record", "--source=w", "--type=t", f"--idempotency-key={key}"]
        reply = stage.worker.ask(words)
        if reply is None or reply.exit:
            raise Broken(f"recording without a daemon failed: {reply}")
        stage.acked[key] = int(reply.stdout)
        number += 1
        time.sleep(PAUSE_SECONDS)


def count(stage: Stage, name: str) -> None:
    turn = 0
    while not stage.written.is_set():
        given = {"key": "watched", "scope_id": "s", "request_id": f"{name}/{turn}"}
        if found := stage.ask("state.incr", **given):
            stage.counted = found["value"]
            turn += 1
        time.sleep(PAUSE_SECONDS)


def disturb(stage: Stage, rng: random.Random) -> None:
    """Until the round ends; then there is a daemon."""
    while not stage.written.wait(rng.uniform(*CALM_SECONDS)):
        what = rng.choice(WAYS)
        interrupt(stage.daemon, what, lambda: stage.written.wait(rng.uniform(0, 0.2)))
        stage.run.figures[f"{what}s"] += 1


def join(
    threads: list[threading.Thread], failed: threading.Event, patience: float = PATIENCE
) -> str:
    """Wait for them; the name of one that does not come to its end, if there is such a one."""
    deadline = time.monotonic() + patience
    for thread in threads:
        while thread.is_alive() and not failed.is_set():
            thread.join(LOOK_SECONDS)
            if time.monotonic() > deadline:
                return thread.name
    return ""
