"""Fixtures for the API: calls as a host would make them, run on a real database."""

import time

import pytest
from msgspec import Raw

from icd.app import registry
from icd.app.call import Call
from icd.app.dispatch import Clock, run_batch
from icd.app.verb import Method
from icd.app.write_cache import Recent
from icd.db.paths import Where
from icd.values.processes import Writer

ME = Writer(pid=41, session="session-a")
NOW_MS = 1_800_000_000_123


class StillClock(Clock):
    """Both clocks stand still until a test moves them."""

    def __init__(self):
        self.wall_ms = NOW_MS
        self.seconds = time.monotonic()

    def now_ms(self):
        return self.wall_ms

    def monotonic(self):
        return self.seconds


@pytest.fixture
def still():
    return StillClock()


@pytest.fixture
def call(project):
    """Make a call of a method, given by name or as itself, and judge its parameters."""

    def made(
        method, *, where=None, writer=ME, deadline=None, verbose=False, payload=None, **params
    ):
        found = method if isinstance(method, Method) else registry.find(method)
        if payload is not None:
            params["payload"] = Raw(payload.encode())
        checked = found.params(**params)
        if found.check is not None:
            found.check(checked)
        return Call(
            method=found,
            params=checked,
            where=where or Where(str(project)),
            writer=writer,
            deadline=time.monotonic() + 60 if deadline is None else deadline,
            verbose=verbose,
        )

    return made


@pytest.fixture
def once(database, still):
    """Run calls as one batch; None for those that it did not reach."""

    def answers(*calls, recent=None):
        return run_batch(database, list(calls), clock=still, recent=recent)

    return answers


@pytest.fixture
def batch(once):
    """Run calls together, and what a slow machine did not reach after them, as the daemon does."""

    def answers(*calls, recent=None):
        found = once(*calls, recent=recent)
        while left := [i for i, answer in enumerate(found) if answer is None]:
            again = once(*(calls[i] for i in left), recent=recent)
            for i, answer in zip(left, again, strict=True):
                found[i] = answer
        return found

    return answers


@pytest.fixture
def ask(call, batch):
    """Make one call and hand out its answer."""

    def answer(method, *, recent=None, **params):
        (found,) = batch(call(method, **params), recent=recent)
        return found

    return answer


@pytest.fixture
def result(ask):
    """Make one call that must succeed and hand out its result."""

    def found(method, **params):
        answer = ask(method, **params)
        if answer.error is not None:
            raise answer.error
        return answer.result

    return found


@pytest.fixture
def recent():
    return Recent()
