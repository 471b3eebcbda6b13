"""What intercore declines: one line on stderr, exit 3, nothing for a model to read on stdout."""

from pathlib import Path

import pytest

from icd.app import registry
from tests.support.processes import icctl

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


def test_without_a_daemon_it_is_counted_without_what_was_typed_behind_it(tmp_path):
    (tmp_path / "dir").mkdir(mode=0o700)
    (tmp_path / "dir" / "icd.sock").touch()
    env = {"HOME": str(tmp_path), "INTERCORE_MODE": "direct"}
    env["INTERCORE_SOCKET"] = str(tmp_path / "dir" / "icd.sock")

    for words in (["publish", "customer-name"], ["nonsense", "customer-name"], ["state", "gte"]):
        assert icctl(*words, cwd=tmp_path, env=env).returncode == 3

    assert (tmp_path / "dir" / "failures").read_text() == "publish\ncommand\nstate\n"


def test_every_declined_noun_is_documented_and_none_is_ours():
    assert not set(registry.DECLINED) & {*registry.GROUPS, *registry.SINGLES, *registry.ALIASES}
    text = PAGE.read_text()
    assert all(f"| `{noun}` | " in text for noun in registry.DECLINED)
