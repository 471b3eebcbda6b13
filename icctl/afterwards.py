"""Events that were recorded without a daemon: their hooks run before we leave.

Nobody else would run them soon.  What takes too long is left to whoever comes next, so a caller
waits for two hooks at most: none is started after the time of one.
"""

import os
import time
from collections.abc import Callable
from typing import Any

from icd.config import Settings
from icd.core.hooks import Delivery, Done
from icd.core.state import Writer
from icd.db.paths import Where
from icd.errors import IcError
from icd.hooks import files
from icd.hooks.environment import HOOK
from icd.hooks.process import NotStarted, Outcome
from icd.hooks.trust import Trust
from icd.rpc.method import DEFAULT_DEADLINE_MS, Answer, Call, Method, Params
from icd.rpc.methods import hooks as methods

LOG = ".local/state/intercore/hooks.log"
# Beyond this the log is put aside, in the place of the one that was put aside before.
LOG_BYTES = 1024 * 1024

Ask = Callable[[Call], Answer]


def run_hooks(database: str, settings: Settings, home: str, answer: Ask) -> None:
    """Deliver what is to be delivered, for a limited time; what fails here fails no call."""
    project = files.project(database)
    if project is None or HOOK in os.environ:
        return  # a hook that records events leaves them to whoever runs it
    trust = Trust(home, project)
    until = time.monotonic() + settings.hook_seconds
    try:
        programs = trust.runnable()
        if programs and _ask(answer, database, methods.PENDING, methods.Pending([*programs])):
            trust.acquire(until)
            try:
                _deliver(database, trust, settings, home, answer, until)
            finally:
                trust.release()
    except (IcError, OSError, NotStarted):
        return  # the position says what is still to be delivered


def _deliver(
    database: str, trust: Trust, settings: Settings, home: str, answer: Ask, until: float
) -> None:
    from icd.hooks.delivery import deliver, done

    last: Done | None = None
    while True:
        programs = trust.runnable() if time.monotonic() < until else {}
        step = methods.Step([*programs], last)
        delivery: Delivery | None = _ask(answer, database, methods.STEP, step)
        if delivery is None:
            return
        outcome = deliver(
            delivery,
            programs[delivery.hook],
            project=trust.project,
            database=database,
            own=os.environ,
            seconds=settings.hook_seconds,
        )
        last = done(delivery, outcome)
        if outcome.output or outcome.problem:
            _log(home, trust.project, delivery, outcome)


def _ask(answer: Ask, database: str, method: Method, params: Params) -> Any:
    call = Call(
        method=method,
        params=params,
        where=Where("", database),
        writer=Writer(os.getppid()),
        deadline=time.monotonic() + DEFAULT_DEADLINE_MS / 1000,
    )
    found = answer(call)
    if found.error is not None:
        raise found.error
    return found.result


def _log(home: str, project: str, delivery: Delivery, outcome: Outcome) -> None:
    path = os.path.join(home, LOG)
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(path, flags, 0o600), "ab") as log:
        if log.tell() > LOG_BYTES:
            os.replace(path, f"{path}.1")
        clock = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        verdict = outcome.problem or "ran"
        line = f"--- {clock} {project}: {delivery.hook} {verdict}, event {delivery.seq}\n"
        log.write(os.fsencode(line) + outcome.output)
