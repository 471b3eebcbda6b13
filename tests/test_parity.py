"""One implementation, two hosts, two doors: every command line, byte for byte; the same by RPC.

The daemon runs in a hostile world: another directory, another width, another locale, and an
environment full of misleading variables.  Nothing of it may show.

The scripts are those of tests/support/parity_table.py, and the examples of every row.
"""

import os
import re
import shutil
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from icd.app.call import Answer
from icd.app.invocation import Ask, Need, Output, World
from icd.app.planner import finish, plan
from icd.errors import Usage
from tests.support import examples, parity_table
from tests.support.parity_table import Step
from tests.support.processes import Daemon, icctl, read_line, running

HOSTILE = {
    "COLUMNS": "40",
    "LANG": "C",
    "LC_ALL": "C",
    "LANGUAGE": "de",
    "TERM": "dumb",
    "INTERCORE_DB": "/nonexistent/.clavain/wrong.db",
    "CLAUDE_SESSION_ID": "of-the-daemon",
    "INTERCORE_DURABILITY": "full",
    "NO_COLOR": "1",
}
SCRIPTS = parity_table.SCRIPTS | examples.scripts()
CALLER = {"CLAUDE_SESSION_ID": "of-the-caller", "COLUMNS": "200"}


class Response(msgspec.Struct):
    result: msgspec.Raw = msgspec.Raw(b"null")
    error: dict[str, Any] | None = None


Outcome = tuple[int, bytes, bytes]

# What each script said through the door that was tested first.
_REFERENCE: dict[str, list[tuple[bytes, ...]]] = {}


@pytest.fixture(scope="module")
def hostile():
    with running(env=HOSTILE) as daemon:
        yield daemon


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_says_the_same_through_either_door_to_the_daemon_and_without_one(
    name: str, project: Path, hostile: Daemon, door: Path
) -> None:
    script = SCRIPTS[name]
    absent = {"INTERCORE_SOCKET": "/nonexistent/icd.sock"}
    served = {"INTERCORE_MODE": "daemon", "INTERCORE_SOCKET": hostile.socket}

    alone = _play(script, project, {**CALLER, **absent})
    _start_over(project)
    through_daemon = _play(script, project, {**CALLER, **served})

    for step, one, other in zip(script, alone, through_daemon, strict=True):
        assert one == other, step.argv
        assert step.exit in (None, one[0]), (step.argv, one)
    # The two doors are tested in turn, in different directories.
    shown = [
        tuple(text.replace(os.fsencode(project), b"<project>") for text in one[1:]) for one in alone
    ]
    assert _REFERENCE.setdefault(name, shown) == shown


@pytest.mark.parametrize("name", SCRIPTS)
def test_typed_calls_give_the_results_that_the_commands_show(
    name: str, project: Path, hostile: Daemon
) -> None:
    script = [step for step in SCRIPTS[name] if step.typed]
    shown = _play(script, project, {**CALLER, "INTERCORE_MODE": "direct"})
    _start_over(project)

    called = [_call(step, project, hostile) for step in script]

    for step, one, other in zip(script, shown, called, strict=True):
        assert (one[0], one[1]) == other, step.argv


@pytest.mark.parametrize("row", examples.every_row(), ids=lambda row: row.command)
def test_a_command_has_examples_of_itself_and_they_are_understood(row: Any) -> None:
    steps = [step for example in row.examples for step in examples.steps(example)]
    planned = [examples.planned(step)[0] for step in steps]
    refused = [one.refused for one in planned if isinstance(one, Output) and one.refused]

    assert len(steps) >= len(row.examples) > 0
    assert all(" ".join(map(str, step.argv)).startswith(row.command) for step in steps)
    assert not [one for one in refused if one.kind is Usage]


def _play(script: list[Step], project: Path, env: dict[str, str]) -> list[Outcome]:
    outcomes = []
    for step in script:
        if step.before is not None:
            step.before(project)
        cwd = project / step.cwd
        cwd.mkdir(parents=True, exist_ok=True)
        done = icctl(*step.argv, cwd=cwd, env={**env, **step.env(project)}, stdin=step.stdin)
        outcomes.append((done.returncode, _stable(done.stdout, step), _stable(done.stderr, step)))
    return outcomes


def _start_over(project: Path) -> None:
    shutil.rmtree(project)
    project.mkdir()
    (project / ".git").mkdir()


def _call(step: Step, project: Path, daemon: Daemon) -> tuple[int, bytes]:
    """Ask the command here, call its method by JSON-RPC, show the result as the command would."""
    if step.before is not None:
        step.before(project)
    cwd = project / step.cwd
    cwd.mkdir(parents=True, exist_ok=True)
    invocation = World(
        argv=[str(word) for word in step.argv],
        cwd=str(cwd),
        deadline=time.monotonic() + 5,
        env={**CALLER, **step.env(project)},
        stdin=step.stdin,
    )
    planned = plan(invocation)
    while isinstance(planned, Need):
        invocation.files[planned.path] = (cwd / planned.path).read_bytes()
        planned = plan(invocation)
    assert isinstance(planned, Ask), planned
    params = msgspec.structs.replace(
        planned.call.params,
        cwd=str(cwd),
        db=planned.call.where.explicit,
        session="of-the-caller",
    )
    request = {"jsonrpc": "2.0", "id": 1, "method": planned.call.method.name, "params": params}
    with daemon.connect() as sock:  # byte for byte: a payload is stored as it was written
        sock.sendall(msgspec.json.encode(request).replace(b"\n", b" ") + b"\n")
        response = msgspec.json.decode(read_line(sock), type=Response)
    if response.error is not None:
        return response.error["data"]["exit"], b""
    answer = Answer(result=msgspec.json.decode(response.result, type=planned.call.method.result))
    output = finish(planned, answer)
    return output.exit, _stable(output.stdout, step)


def _stable(text: bytes, step: Step) -> bytes:
    """Times, process and request ids differ between two runs; everything else must not."""
    text = re.sub(step.hides.encode(), b"<hidden>", text)
    text = re.sub(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", b"<iso>", text)
    text = re.sub(rb"\d{8}-\d{6}(-\d+)?", b"<stamp>", text)
    text = re.sub(rb"\b1\d{9}(\d{3})?\b", b"<time>", text)
    text = re.sub(rb" for \d+ s\b", b" for <age>", text)
    text = re.sub(rb"(:\S+\t)\d+s\n", rb"\1<age>\n", text)
    text = re.sub(rb"\d+\.\d{3} ms", b"<ms>", text)
    text = re.sub(rb"\b[0-9a-f]{24}\b", b"<id>", text)
    text = re.sub(rb"(\"age\":|_AGE=')\d+", rb"\1<age>", text)
    text = re.sub(rb'"retry_after":\d+', b'"retry_after":<seconds>', text)
    text = re.sub(rb'"writer_pid":\d+', b'"writer_pid":<pid>', text)
    return re.sub(rb"writer_pid\t\d+", b"writer_pid\t<pid>", text)
