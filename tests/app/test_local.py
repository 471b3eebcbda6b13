"""Which commands run in the caller's own process though a daemon is there, and that each says why."""

import re
from pathlib import Path

from icd import __version__
from icd.app.invocation import Ask, Errand, Need
from tests.support import examples

DECISION = Path(__file__).parents[2] / "docs" / "adr" / "0008-files-belong-to-the-caller.md"
# No example shows it: the file would have to be larger than what can be sent.
UNSHOWN = {"run artifact add"}


def local() -> set[str]:
    """Commands that a daemon may leave to the caller; its answer to their examples tells."""
    return {
        row.command
        for row in examples.every_row()
        for example in row.examples
        for step in examples.steps(example)
        if isinstance(examples.planned(step)[0], Errand)
        and list(step.argv)[: row.command.count(" ") + 1] == row.command.split()
    }


def test_long_work_is_left_to_the_caller_only_where_a_person_waits(invoke):
    """And where the caller is of this version: another one may not know the schema."""
    here = {"is_terminal": True, "client_version": __version__}

    for line in ("backup", "db vacuum", "init", "discovery search --embedding=x"):
        words = line.split()
        left = invoke(*words, files={"x": b"\0\0\x80\x3f"}, **here)
        assert left == Need("local") or isinstance(left, Errand), line
        for world in ({}, {"client_version": __version__}, {**here, "client_version": "0.4.0"}):
            assert isinstance(invoke(*words, files={"x": b"\0\0\x80\x3f"}, **world), Ask), line
        assert isinstance(invoke(*words, "--json", files={"x": b"\0\0\x80\x3f"}, **here), Ask), line


def test_every_command_of_the_callers_own_process_says_why():
    said = re.findall(r"^\| `([a-z -]+)` \| \S.+ \|$", DECISION.read_text(), re.MULTILINE)

    assert len(said) == len(set(said))
    assert set(said) == local() | UNSHOWN
