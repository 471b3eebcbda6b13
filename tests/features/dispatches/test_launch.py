"""Which program an agent is."""

from pathlib import Path

import pytest

from icd import trust
from icd.app.invocation import World
from icd.errors import Untrusted
from icd.features.dispatches.calls import Create
from icd.features.dispatches.launch import SCRIPT, Own, Program
from icd.features.dispatches.launch import program as choose

PROMPT, OUTPUT = "/p/fix.md", "/o/out.md"
DATABASE = "/p/.clavain/intercore.db"


@pytest.fixture
def program(tmp_path: Path):
    def chosen(script=None, cwd="/c", env=None, database=DATABASE, **more: str) -> Program:
        wanted = Create(str(tmp_path / "a" / "b"), prompt_file=PROMPT, **more)
        world = World([], cwd, 0.0, env=env or {})
        return choose(world, wanted, OUTPUT, Own(script), database)

    return chosen


def script(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    path.touch(mode=0o644)
    return str(path)


def accepted(home: Path, *scripts: str) -> str:
    """A database for which the user has accepted these scripts."""
    (home / ".clavain").mkdir(mode=0o700)
    database = home / ".clavain" / "intercore.db"
    database.touch(mode=0o600)
    digests = {each: trust.script_digest(each) for each in scripts}
    trust.grant(str(home), str(database), scripts=digests)
    return str(database)


def test_without_a_script_it_is_codex_in_the_project_that_reads_the_prompt(program, tmp_path):
    found = program(model="m", name="n", sandbox="s")

    argv = ["codex", "exec", "-m", "m", "--sandbox", "s", "-"]
    assert found == Program(argv, str(tmp_path / "a" / "b"), OUTPUT, PROMPT)


def test_a_script_is_given_everything_and_writes_the_output_itself(program, tmp_path):
    given = script(tmp_path / "own.sh")

    found = program(given, model="m", name="n", sandbox="s")

    assert found.argv == [
        "bash", given, "-C", str(tmp_path / "a" / "b"), "-o", OUTPUT, "--prompt-file", PROMPT,
        "-n", "n", "-m", "m", "--sandbox", "s",
    ]  # fmt: skip
    assert (found.cwd, found.log, found.stdin) == ("/c", f"{OUTPUT}.log", "")


def test_the_nearest_place_that_has_a_script_wins(program, tmp_path):
    above = script(tmp_path / SCRIPT)
    near = script(tmp_path / "a" / SCRIPT)
    named = script(tmp_path / "env.sh")
    given = script(tmp_path / "given.sh")
    database = accepted(tmp_path, above, near)
    home = {"HOME": str(tmp_path)}
    env = {"CLAVAIN_DISPATCH_SH": named, **home}
    gone = {"CLAVAIN_DISPATCH_SH": "gone", **home}
    places = (("given.sh", env), ("gone.sh", env), (None, env), (None, home), (None, gone))

    found = [program(g, cwd=str(tmp_path), env=e, database=database).argv[1] for g, e in places]
    Path(near).unlink()

    assert found == [given, named, named, near, near]
    assert program(cwd="/", env=home, database=database).argv[1] == above


@pytest.mark.parametrize("change", ["never accepted", "changed", "writable", "a link", "homeless"])
def test_a_script_in_the_project_that_is_not_as_it_was_accepted_is_refused(
    program, tmp_path, change
):
    found = Path(script(tmp_path / "a" / SCRIPT))
    database = accepted(tmp_path, *([] if change == "never accepted" else [str(found)]))
    env = {} if change == "homeless" else {"HOME": str(tmp_path)}
    if change == "changed":
        found.write_text("echo another\n")
    elif change == "writable":
        found.chmod(0o664)
    elif change == "a link":
        found.rename(tmp_path / "elsewhere")
        found.symlink_to(tmp_path / "elsewhere")

    with pytest.raises(Untrusted) as told:
        program(cwd="/", env=env, database=database)

    assert str(found) in told.value.message
    assert "icctl trust" in told.value.hint
    assert "--dispatch-sh" in told.value.hint
