"""What intercore declines: one line on stderr, exit 3, nothing for a model to read on stdout."""

from pathlib import Path

import pytest

from icd.app import registry

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"


@pytest.mark.parametrize("noun", registry.DECLINED)
@pytest.mark.parametrize("words", [[], ["create", "--json"], ["--help"]])
def test_a_declined_noun_says_so_in_one_line(invoke, noun, words):
    output = invoke(noun, *words)

    assert (output.exit, output.stdout) == (3, b"")
    assert output.stderr.startswith(f"icctl: {noun}: it is no part of intercore; ".encode())
    assert output.stderr.count(b"\n") == 1


def test_it_is_counted_under_its_name(invoke):
    """The daemon keeps such counts by caller, and `doctor` shows them."""
    refused = invoke("publish", "plugin").refused

    assert (refused.command, refused.kind.name) == ("publish", "declined")


def test_every_declined_noun_is_documented_and_none_is_ours():
    assert not set(registry.DECLINED) & {*registry.GROUPS, *registry.SINGLES, *registry.ALIASES}
    text = PAGE.read_text()
    assert all(f"| `{noun}` | " in text for noun in registry.DECLINED)
