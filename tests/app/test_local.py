"""Which commands run in the caller's own process though a daemon is there, and that each says why."""

import re
from pathlib import Path

from icd.app.invocation import Errand
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


def test_every_command_of_the_callers_own_process_says_why():
    said = re.findall(r"^\| `([a-z -]+)` \| \S.+ \|$", DECISION.read_text(), re.MULTILINE)

    assert len(said) == len(set(said))
    assert set(said) == local() | UNSHOWN
