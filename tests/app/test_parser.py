"""A line that is right is read without click, and means what click would make of it."""

import functools
import subprocess
import sys

from hypothesis import given, settings
from hypothesis import strategies as st

from icd.app import registry
from icd.app.parser import Doubt
from icd.app.reference.help import explain
from icd.errors import IcError
from tests.support.sizes import size

EVERY = registry.commands()
VALUES = [
    "",
    "-",
    "0",
    "5",
    "-5",
    "+5",
    "5m",
    "1.5",
    "true",
    "x",
    "a:b:5",
    "k=v",
    "{}",
    "é",
    "\udc80",
]
DASHES = ["--", "-x", "--no-such", "--=", "---", "-5"]


def line(name: str) -> st.SearchStrategy[list[str]]:
    """Words behind a command: its own options in every spelling, values, and nonsense."""
    options = [option for field in EVERY[name].fields for option in spellings(field.typed)]
    spelled = st.sampled_from(options or ["--none"])
    joined = st.builds("{}={}".format, spelled, st.sampled_from(VALUES))
    choices = [word for field in EVERY[name].fields for word in getattr(field.kind, "choices", ())]
    values = st.sampled_from([*VALUES, *choices])
    return st.lists(spelled | joined | values | values | st.sampled_from(DASHES), max_size=7)


@functools.cache
def lines() -> dict[str, st.SearchStrategy[list[str]]]:
    return {name: line(name) for name in EVERY}


def spellings(typed):
    return [typed.name, *typed.aliases] if hasattr(typed, "aliases") else []


@settings(max_examples=size(10_000, 1500), deadline=None)
@given(name=st.sampled_from(list(EVERY)), data=st.data())
def test_what_is_read_without_click_is_what_click_reads(name, data):
    leaf, words = EVERY[name], data.draw(lines()[name])

    try:
        found = leaf.read(words)
    except (Doubt, ValueError, IcError):
        return  # click decides, or says what is wrong

    assert found == leaf._converted(explain(leaf.click, name, words))


def test_a_command_that_is_right_loads_no_click():
    script = (
        "import sys; from icd.app.planner import _read; "
        "parsed = _read('sentinel', 'check', 'a', 'b', '--interval=5'); "
        "assert parsed.error is None, parsed.error; "
        "sys.exit('click' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
