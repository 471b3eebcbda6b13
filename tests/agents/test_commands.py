"""Which command an agent is."""

from pathlib import Path

import pytest

from icd.agents.commands import SCRIPT, Asked, Command, find

PROMPT, OUTPUT = "/p/fix.md", "/o/out.md"


@pytest.fixture
def asked(tmp_path: Path):
    def make(**more: str) -> Asked:
        return Asked(project=str(tmp_path / "a" / "b"), prompt=PROMPT, output=OUTPUT, **more)

    return make


def script(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return str(path)


def test_without_a_script_it_is_codex_in_the_project(asked, tmp_path):
    found = find(asked(model="m", name="n", sandbox="s"), given=None, cwd="/c", env={})

    argv = ["codex", "exec", "--prompt-file", PROMPT, "-m", "m"]
    assert found == Command(argv, str(tmp_path / "a" / "b"), OUTPUT)


def test_a_script_is_given_everything_and_writes_the_output_itself(asked, tmp_path):
    given = script(tmp_path / "own.sh")

    found = find(asked(model="m", name="n", sandbox="s"), given=given, cwd="/c", env={})

    assert found.argv == [
        "bash", given, "-C", str(tmp_path / "a" / "b"), "-o", OUTPUT, "--prompt-file", PROMPT,
        "-n", "n", "-m", "m", "--sandbox", "s",
    ]  # fmt: skip
    assert (found.cwd, found.log, found.stdin) == ("/c", f"{OUTPUT}.log", "")


def test_the_nearest_place_that_has_a_script_wins(asked, tmp_path):
    above = script(tmp_path / SCRIPT)
    near = script(tmp_path / "a" / SCRIPT)
    named = script(tmp_path / "env.sh")
    given = script(tmp_path / "given.sh")
    env = {"CLAVAIN_DISPATCH_SH": named}
    places = (("given.sh", env), ("gone.sh", env), (None, env), (None, {}), (None, {"CLAVAIN_DISPATCH_SH": "gone"}))  # fmt: skip

    found = [find(asked(), given=g, cwd=str(tmp_path), env=e).argv[1] for g, e in places]
    Path(near).unlink()

    assert found == [given, named, named, near, near]
    assert find(asked(), given=None, cwd="/", env={}).argv[1] == above
