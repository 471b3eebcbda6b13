"""The examples of every row, as steps: what the help shows is run, in every way there is.

A new verb needs no table of its own: its examples are its parity case (tests/test_parity.py) and
its steps of the next release's transcript (tests/support/conversations.py).
"""

import functools
import os
import re
import shlex
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from icd.app import registry
from icd.app.invocation import Ask, Errand, Need, Output, World
from icd.app.parser import Leaf
from icd.app.planner import plan
from tests.support import rows
from tests.support.discovered import discover, packed
from tests.support.dispatched import plant
from tests.support.parity_table import INIT, Step

if TYPE_CHECKING:
    from icd.app.verb import Typed

# One command of ours within a line of shell: up to what the shell does with its outcome.
_COMMAND = re.compile(
    r"""(?:(?:echo|printf) '([^']*)' \| )?\bicctl ((?:"[^"]*"|'[^']*'|[^|&)<>;])+)"""
)
_VARIABLE = re.compile(r"\$([A-Z_]+)")
_VALUES = {"TOKEN": "1"}  # else its own name
# What another command would print: a time, a host.
_SUBSTITUTED = re.compile(r"\$\((?!icctl)[^)]*\)")
# What no second run can show alike: sizes, ids that are made up, and who has answered.
_HIDES = (
    r"\b[0-9a-z]{8}([0-9a-z]{4})?(?=[\t\n )]|$)|\d+ bytes|\d+[smhd] ago"
    r'|"(id|run_id|agent_id|lane_id|bytes)":("[0-9a-z]+"|\d+)|(door|daemon): .*'
)
_SESSION = {"CLAUDE_SESSION_ID": "of-the-caller"}


def every_row() -> "list[Typed]":
    """All rows that are typed."""
    found = registry.commands().values()
    return [command.row for command in found if isinstance(command, Leaf)]


def steps(example: str) -> Iterator[Step]:
    """The commands of ours in a line of shell."""
    for found in _COMMAND.finditer(_SUBSTITUTED.sub("1800000000", example.replace("\\\n", " "))):
        words = shlex.split(_VARIABLE.sub(_value, found[2]))
        step = Step(tuple(words), exit=None, stdin=(found[1] or "").encode(), hides=_HIDES)
        asked, files = planned(step)
        step.typed = _is_one_call(asked)
        step.before = functools.partial(prepare, files=files)
        yield step


def _value(variable: re.Match[str]) -> str:
    return _VALUES.get(variable[1], variable[1].lower())


def scripts() -> dict[str, list[Step]]:
    """By noun, each with a database of its own: what a daemon can do as well as a caller."""
    found: dict[str, list[Step]] = {}
    for row in every_row():
        script = found.setdefault(f"examples of {row.command.partition(' ')[0]}", [INIT])
        for example in row.examples:
            script += [step for step in steps(example) if _is_comparable(planned(step)[0])]
    return {name: script for name, script in found.items() if len(script) > 1}


def calls() -> Iterator[tuple[str, dict[str, Any]]]:
    """The methods that the examples call, and with which parameters."""
    for row in every_row():
        for example in row.examples:
            for step in steps(example):
                asked, _ = planned(step)
                if isinstance(asked, Ask):
                    yield asked.method, msgspec.json.decode(msgspec.json.encode(asked.params))


def _is_comparable(asked: Ask | Errand | Need | Output) -> bool:
    """Not what asks the daemon itself, goes on until it is stopped, or needs the caller's process."""
    if not isinstance(asked, Ask):
        return isinstance(asked, Output)
    method = asked.call.method
    return asked.follow is None and method.run is not None and not method.runs.local


def _is_one_call(asked: Ask | Errand | Need | Output) -> bool:
    """Whether a result by RPC says all that the command does."""
    return isinstance(asked, Ask) and _is_comparable(asked) and not asked.render_error


def planned(step: Step) -> tuple[Ask | Errand | Need | Output, list[str]]:
    """What becomes of it, and which files it reads."""
    world = World(
        argv=[str(word) for word in step.argv],
        cwd="/project",
        deadline=time.monotonic() + 60,
        env=_SESSION,
        stdin=step.stdin or b"{}",
        files={},
    )
    found = plan(world)
    while isinstance(found, Need) and found.what == "file":
        world.files[found.path] = _content(found.path)
        found = plan(world)
    return found, list(world.files)


def _content(path: str) -> bytes:
    return packed(1.0, 0.0) if path.endswith(".f32") else b"{}"


def prepare(project: Path, files: list[str]) -> None:
    """What the examples name is there, whatever those before them have done to it."""
    for name in files:
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_bytes(_content(name))
    with closing(sqlite3.connect(project / ".clavain" / "intercore.db")) as conn, conn:
        conn.execute("UPDATE lanes SET status = 'active'")
        is_there = conn.execute("UPDATE runs SET status = 'active' WHERE id = 'run'").rowcount
        if not is_there:
            rows.run(conn, "run", project_dir=os.path.realpath(project), phase="planned")
            rows.agent(conn, "run", "agent")
            rows.lane(conn, "launch")
            for name in ("k3v9x0a1b2c4", "id"):
                discover(conn, name, packed(1.0, 0.0))
    if not is_there:
        plant(project, "k3v9x0qa", status="completed", exit_code=0)
