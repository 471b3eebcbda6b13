"""One implementation, two hosts, two doors: every command line, byte for byte; the same by RPC,
and by the Python client.

The daemon runs in a hostile world: another directory, another width, another locale, and an
environment full of misleading variables.  Nothing of it may show.

The scripts are those of tests/support/parity_table.py, and the examples of every row.
"""

import os
import re
import subprocess
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from icctl.api import Client, Error
from icd.app.call import Answer
from icd.app.invocation import Ask, Need, Output, World
from icd.app.planner import finish, plan
from icd.errors import Usage
from tests.support import examples, parity_table
from tests.support.forked import forker
from tests.support.parity_table import Step
from tests.support.processes import (
    BIN,
    DOORS,
    PATIENCE,
    Daemon,
    forked_icctl,
    icctl,
    read_line,
    running,
)
from tests.support.python_client import parameters

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
# Those of which a method of the Python client is a part.
TYPED = [name for name, script in SCRIPTS.items() if any(step.typed for step in script)]
CALLER = {"CLAUDE_SESSION_ID": "of-the-caller", "COLUMNS": "200"}
# Of a script where each step costs most: to begin with, and then what the noun is about.
FEW = 6
ABSENT = {**CALLER, "INTERCORE_SOCKET": "/nonexistent/icd.sock"}


class Response(msgspec.Struct):
    result: msgspec.Raw = msgspec.Raw(b"null")
    error: dict[str, Any] | None = None


Outcome = tuple[int, bytes, bytes]
# What runs a command line, as `tests.support.processes.icctl` does.
Run = Callable[..., "subprocess.CompletedProcess[bytes]"]
INSTALLED: Run = partial(icctl, program=BIN / "icctl")


@pytest.fixture(scope="module")
def hostile():
    with running(env=HOSTILE) as daemon:
        yield daemon


@pytest.fixture
def forked() -> Run:
    """The Python client, without the start of Python; its caller is another than ours."""
    caller = rb"\b%d\b" % forker("commands").pid

    def run(*argv: str | bytes, **options: Any) -> "subprocess.CompletedProcess[bytes]":
        done = forked_icctl(*argv, **options)
        done.stdout, done.stderr = (
            re.sub(caller, b"%d" % os.getpid(), text) for text in (done.stdout, done.stderr)
        )
        return done

    return run


@pytest.fixture
def served(hostile: Daemon) -> dict[str, str]:
    return {**CALLER, "INTERCORE_MODE": "daemon", "INTERCORE_SOCKET": hostile.socket}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_says_the_same_as_a_command_and_by_rpc(
    name: str, project: Path, hostile: Daemon, served: dict[str, str]
) -> None:
    """The command as it is installed; with sanitizers it costs ten times as much: see below."""
    script = SCRIPTS[name]

    printed = _play(script, project, served)

    for step, one in zip(script, printed, strict=True):
        assert step.exit in (None, one[0]), (step.argv, one)
    _agree_by_rpc(script, printed, _another(project), hostile, served)


@pytest.mark.long
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_says_the_same_without_a_daemon_and_through_either_door(
    name: str, project: Path, served: dict[str, str], forked: Run
) -> None:
    """Each command is a process of its own; most start with a Python that is there: see below."""
    script = SCRIPTS[name]

    alone = _play(script, project, ABSENT, forked)

    for run in (forked, *_native()):
        project = _another(project)
        _agree(script, alone, _play(script, project, served, run))


# A command as it is installed, for each noun.
STARTED = {name: script for name, script in SCRIPTS.items() if name.startswith("examples of ")}


@pytest.mark.long  # for each step, a Python is started
@pytest.mark.parametrize("name", STARTED)
def test_examples_say_the_same_where_a_python_is_started_for_each(
    name: str, project: Path, served: dict[str, str]
) -> None:
    """Without a daemon the native door becomes the other one."""
    script = STARTED[name][:FEW]

    alone = _play(script, project, ABSENT)

    _agree(script, alone, _play(script, _another(project), served, _at(DOORS / "python")))


@pytest.mark.long
@pytest.mark.parametrize("name", TYPED)
def test_the_python_client_answers_what_the_command_shows_with_a_daemon_and_without_one(
    name: str,
    project: Path,
    hostile: Daemon,
    served: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = SCRIPTS[name]
    expected = _play(script, project, served)

    for mode in ("daemon", "direct"):
        project = _another(project)
        for step, one in zip(script, expected, strict=True):
            if step.typed:
                client = partial(Client, mode=mode, socket=hostile.socket)
                found = _call_python(step, project, client, monkeypatch)
                assert found == one[:2], (mode, step.argv)
            else:
                _play([step], project, served)


def test_a_command_has_examples_of_itself_and_they_are_understood() -> None:
    for row in examples.every_row():
        steps = [step for example in row.examples for step in examples.steps(example)]
        planned = [examples.planned(step)[0] for step in steps]
        refused = [one.refused for one in planned if isinstance(one, Output) and one.refused]

        assert len(steps) >= len(row.examples) > 0, row
        assert all(" ".join(map(str, step.argv)).startswith(row.command) for step in steps), row
        assert not [one for one in refused if one.kind is Usage], row


def _native() -> list[Run]:
    """The native door with the sanitizers in it, where there is a compiler."""
    return [_at(DOORS / "native")] if (DOORS / "native" / "icctl").exists() else []


def _at(place: Path) -> Run:
    """The `icctl` of a directory, which is also the one that its commands find."""

    def run(*argv: str | bytes, env: dict[str, str], **options: Any):
        env = {**env, "PATH": f"{place}:/usr/bin:/bin"}
        return icctl(*argv, env=env, program=place / "icctl", **options)

    return run


def _agree(script: list[Step], expected: list[Outcome], found: list[Outcome]) -> None:
    for step, one, other in zip(script, expected, found, strict=True):
        assert one == other, step.argv


def _agree_by_rpc(
    script: list[Step], alone: list[Outcome], project: Path, daemon: Daemon, served: dict[str, str]
) -> None:
    """A typed call gives the result that the command shows; what has none goes through a door.

    What that shows may differ: a request is one line, and a payload with line breaks is not.
    """
    for step, one in zip(script, alone, strict=True):
        if step.typed:
            assert _call(step, project, daemon) == one[:2], step.argv
        else:
            _play([step], project, served)


def _play(
    script: list[Step], project: Path, env: dict[str, str], run: Run = INSTALLED
) -> list[Outcome]:
    outcomes = []
    for step in script:
        if step.before is not None:
            step.before(project)
        cwd = project / step.cwd
        cwd.mkdir(parents=True, exist_ok=True)
        done = run(*_patient(step), cwd=cwd, env={**env, **step.env(project)}, stdin=step.stdin)
        printed = (_stable(text, step, project) for text in (done.stdout, done.stderr))
        outcomes.append((done.returncode, *printed))
    return outcomes


def _patient(step: Step) -> tuple[str | bytes, ...]:
    """Not 5 seconds: starting Python may take as long while others work."""
    has_own = step.argv[:1] in {("lock",), ("hold",), ("service",)} or "--timeout" in str(step.argv)
    is_command = bool(step.argv) and not str(step.argv[0]).startswith("-")
    return ("--timeout=60s", *step.argv) if is_command and not has_own else step.argv


def _another(project: Path) -> Path:
    """Another one, of the same name: where a database is replaced, the daemon says so."""
    found = project.parent.with_name(f"{project.parent.name}+") / project.name
    (found / ".git").mkdir(parents=True)
    return found


def _call(step: Step, project: Path, daemon: Daemon) -> tuple[int, bytes]:
    """Ask the command here, call its method by JSON-RPC, show the result as the command would."""
    planned, cwd = _planned(step, project)
    params = msgspec.structs.replace(
        planned.call.params,
        cwd=str(cwd),
        db=planned.call.where.explicit,
        session="of-the-caller",
        deadline_ms=60_000,
    )
    request = {"jsonrpc": "2.0", "id": 1, "method": planned.call.method.name, "params": params}
    with daemon.connect() as sock:  # byte for byte: a payload is stored as it was written
        sock.sendall(msgspec.json.encode(request).replace(b"\n", b" ") + b"\n")
        response = msgspec.json.decode(read_line(sock), type=Response)
    if response.error is not None:
        return response.error["data"]["exit"], b""
    return _shown(planned, bytes(response.result), step, project)


def _call_python(
    step: Step, project: Path, client: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> tuple[int, bytes]:
    """The same through the method of the Python client that has the name of the command's."""
    planned, cwd = _planned(step, project)
    method = planned.call.method
    noun, _, verb = method.name.partition(".")
    given = {
        one.name: _as_python(getattr(planned.call.params, one.field), one.value)
        for one in parameters(method)
    }
    monkeypatch.setenv("HOME", str(cwd))  # as `_play` has it
    db = planned.call.where.explicit
    with client(cwd, db=db, session="of-the-caller", timeout=60) as asked:
        bound = getattr(getattr(asked, noun), {"import": "import_"}.get(verb, verb))
        try:
            result = bound(**given)
        except Error as exc:
            return exc.exit, b""
    return _shown(planned, msgspec.json.encode(result), step, project)


def _as_python(value: Any, written: str) -> Any:
    return timedelta(milliseconds=value) if written.startswith("ms(") and value else value


def _shown(planned: Ask, result: bytes, step: Step, project: Path) -> tuple[int, bytes]:
    """The result, as the command shows it."""
    answer = Answer(result=msgspec.json.decode(result, type=planned.call.method.result))
    output = finish(planned, answer)
    return output.exit, _stable(output.stdout, step, project)


def _planned(step: Step, project: Path) -> tuple[Ask, Path]:
    """What the command asks, and where."""
    if step.before is not None:
        step.before(project)
    cwd = project / step.cwd
    cwd.mkdir(parents=True, exist_ok=True)
    invocation = World(
        argv=[str(word) for word in step.argv],
        cwd=str(cwd),
        deadline=time.monotonic() + PATIENCE,
        env={**CALLER, **step.env(project)},
        stdin=step.stdin,
    )
    planned = plan(invocation)
    while isinstance(planned, Need):
        invocation.files[planned.path] = (cwd / planned.path).read_bytes()
        planned = plan(invocation)
    assert isinstance(planned, Ask), planned
    return planned, cwd


def _stable(text: bytes, step: Step, project: Path) -> bytes:
    """Times, places, process and request ids differ between two runs; everything else must not."""
    text = re.sub(step.hides.encode(), b"<hidden>", text)
    text = text.replace(bytes(project), b"<project>")
    text = re.sub(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", b"<iso>", text)
    text = re.sub(rb"\d{8}-\d{6}(-\d+)?", b"<stamp>", text)
    text = re.sub(rb"\b1\d{9}(\d{3})?\b", b"<time>", text)
    text = re.sub(rb" for \d+ s\b", b" for <age>", text)
    text = re.sub(rb"\(for \d+s,", b"(for <age>,", text)
    text = re.sub(rb'age_seconds":\d+', b'age_seconds":<age>', text)
    text = re.sub(rb"(:\S+\t)\d+s\n", rb"\1<age>\n", text)
    text = re.sub(rb"\d+\.\d{3} ms", b"<ms>", text)
    text = re.sub(rb"\b[0-9a-f]{24}\b", b"<id>", text)
    text = re.sub(rb"(\"age\":|_AGE=')\d+", rb"\1<age>", text)
    text = re.sub(rb'"retry_after":\d+', b'"retry_after":<seconds>', text)
    text = re.sub(rb'"writer_pid":\d+', b'"writer_pid":<pid>', text)
    return re.sub(rb"writer_pid\t\d+", b"writer_pid\t<pid>", text)
