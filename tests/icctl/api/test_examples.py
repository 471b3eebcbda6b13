"""The examples of docs/python.md: they run as shown, with a daemon and without, and are typed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import CLEAN, PATIENCE, Daemon

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
# A heading, a program, and what it prints.
EXAMPLES = {
    title: (code, printed)
    for title, code, printed in re.findall(
        r"^### ([^\n]+)\n\n```python\n(.*?)^```\n\n```text\n(.*?)^```$",
        PAGE,
        re.MULTILINE | re.DOTALL,
    )
}
WRONG = """
from icctl.api import Client

with Client() as client:
    client.state.set("k")
    client.state.set("k", "s", 1, ttl=[])
    client.state.get("k", "s").value
    client.sentinel.check("n", "s", interval=5).nonsense
    client.nothing
    for event in client.events.watch(since="x"):
        pass
"""


def test_the_page_has_five_examples_and_a_first_one() -> None:
    assert len(EXAMPLES) == 5
    assert PAGE.count("```python\n") == 5 + 2  # the first, and the one that is not run


@pytest.mark.parametrize("host", ["daemon", "direct"])
@pytest.mark.parametrize("title", EXAMPLES)
def test_an_example_prints_what_is_shown(
    title: str, host: str, project: Path, shared_daemon: Daemon
) -> None:
    code, printed = EXAMPLES[title]

    assert run(code, project, shared_daemon, host) == printed


def test_the_first_program_of_the_page_works(project: Path, shared_daemon: Daemon) -> None:
    (first,) = re.findall(r"```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[:1]

    assert run(first, project, shared_daemon, "daemon") == "green\n"


def run(code: str, project: Path, daemon: Daemon, host: str) -> str:
    env = {**CLEAN, "HOME": str(project), "INTERCORE_SOCKET": daemon.socket, "INTERCORE_MODE": host}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=project, env=env,
        capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.long
def test_a_users_program_is_checked_by_mypy(tmp_path: Path) -> None:
    """Strictly, and as a user has it: from outside, with nothing but `py.typed`."""
    for number, (code, _) in enumerate(EXAMPLES.values()):
        (tmp_path / f"example_{number}.py").write_text(code)
    (tmp_path / "wrong.py").write_text(WRONG)

    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--python-version=3.11",
         "--cache-dir", str(tmp_path / "cache"), "."],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip

    told = re.findall(r"^(.+?):(\d+): error: .*\[(.+)\]$", done.stdout, re.MULTILINE)
    assert told == [
        ("wrong.py", "5", "call-arg"),
        ("wrong.py", "6", "arg-type"),
        ("wrong.py", "7", "union-attr"),
        ("wrong.py", "8", "attr-defined"),
        ("wrong.py", "9", "attr-defined"),
        ("wrong.py", "10", "arg-type"),
    ], done.stdout
