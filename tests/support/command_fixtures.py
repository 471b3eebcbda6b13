"""Fixtures for the command line: from argv to what is printed, in this process."""

import time

import pytest

from icd.app.call import Answer
from icd.app.dispatch import run_batch
from icd.app.invocation import Errand, Need, Output, World
from icd.app.planner import finish, plan, run_errand


@pytest.fixture
def invoke(project):
    """Plan a command line, as a caller in the project's directory would send it."""

    def planned(*argv, **world):
        world = {"cwd": str(project), "deadline": time.monotonic() + 60, "pid": 41} | world
        return plan(World(argv=list(argv), **world))

    return planned


@pytest.fixture
def ic(invoke, database, clock):
    """Run a command line to its end.  Input is sent when it is asked for, as a client would."""

    def output(*argv, stdin=b"", files=None, **world):
        planned = invoke(*argv, **world)
        if isinstance(planned, Need):
            given = {"stdin": stdin} if planned.what == "stdin" else {"files": files or {}}
            planned = invoke(*argv, **world, **given)
        if isinstance(planned, Output):
            return planned
        if isinstance(planned, Errand):
            return run_errand(planned, answered)
        return finish(planned, answered(planned.call))

    def answered(call):
        (answer,) = run_batch(database, [call], clock=clock)
        return answer

    return output


@pytest.fixture
def stdout(ic):
    """Run a command that must succeed; its output as text."""

    def text(*argv, **world):
        output = ic(*argv, **world)
        assert (output.exit, output.stderr) == (0, b"")
        return output.stdout.decode()

    return text


@pytest.fixture
def shown(invoke):
    """How a command shows a result that the daemon would answer."""

    def output(*argv, result=None, error=None, **world):
        return finish(invoke(*argv, **world), Answer(result=result, error=error))

    return output
