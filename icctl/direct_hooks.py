"""Events that were recorded without a daemon: their hooks run before we leave.

No other process would run them soon.  What takes too long is left to the next call, so a caller
waits for two hooks at most: none is started after the time of one.
"""

import os
import time
from collections.abc import Callable
from typing import Any

from icd.app.call import DEFAULT_DEADLINE_MS, Answer, Call, Params
from icd.app.verb import Method
from icd.config import Settings
from icd.db.paths import Where
from icd.errors import IcError
from icd.features.triggers import files, verbs
from icd.features.triggers.files import Trust
from icd.features.triggers.store import HOOK, Delivery, Done
from icd.files import append_log
from icd.values.processes import Writer

LOG = ".local/state/intercore/hooks.log"

Ask = Callable[[Call], Answer]


def run_hooks(database: str, settings: Settings, home: str, answer: Ask) -> None:
    """Deliver what is to be delivered, for a limited time; what fails here fails no call."""
    project = files.project(database)
    if project is None or HOOK in os.environ:
        return  # a hook that records events leaves them to the process that runs it
    try:
        _Round(database, settings, home, Trust(home, project), answer).run()
    except (IcError, OSError):
        return  # the position says what is still to be delivered


class _Round:
    """What one process delivers of one database."""

    def __init__(
        self, database: str, settings: Settings, home: str, trust: Trust, answer: Ask
    ) -> None:
        self._database = database
        self._seconds = settings.hook_seconds
        self._home = home
        self._trust = trust
        self._answer = answer

    def run(self) -> None:
        until = time.monotonic() + self._seconds
        programs = self._trust.runnable()
        if programs and self._ask(verbs.PENDING, verbs.Pending([*programs])):
            self._trust.acquire(until)
            try:
                self._deliver(until)
            finally:
                self._trust.release()

    def _deliver(self, until: float) -> None:
        last: Done | None = None
        while True:
            programs = self._trust.runnable() if time.monotonic() < until else {}
            delivery: Delivery | None = self._ask(verbs.STEP, verbs.Step([*programs], last))
            if delivery is None:
                return
            last = self._run_one(delivery, programs[delivery.hook])

    def _run_one(self, delivery: Delivery, program: str) -> Done:
        from icd.features.triggers.process import deliver, done  # only who delivers pays for it

        outcome = deliver(
            delivery,
            program,
            project=self._trust.project,
            database=self._database,
            own=os.environ,
            seconds=self._seconds,
        )
        if outcome.output or outcome.problem:
            clock = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            verdict = outcome.problem or "ran"
            line = f"--- {clock} {self._trust.project}: {delivery.hook} {verdict}"
            entry = os.fsencode(f"{line}, event {delivery.seq}\n") + outcome.output
            append_log(os.path.join(self._home, LOG), entry)  # the failure itself is an event
        return done(delivery, outcome)

    def _ask(self, method: Method[Any, Any], params: Params) -> Any:
        call = Call(
            method=method,
            params=params,
            where=Where("", self._database),
            writer=Writer(os.getppid()),
            deadline=time.monotonic() + DEFAULT_DEADLINE_MS / 1000,
        )
        found = self._answer(call)
        if found.error is not None:
            raise found.error
        return found.result
