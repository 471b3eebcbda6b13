"""`icctl statusline`: four formats of the same, and what counts as news."""

import json
import os
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icd.app.call import Answer
from icd.app.planner import advance
from icd.db.paths import Where
from icd.errors import Corrupt, Locked, NoDatabase
from icd.features.statusline.store import Bead, Lane, Statusline
from icd.features.statusline.verbs import PREFIX, SHOW
from tests.support import rows

NAMES = [
    "DISPATCH", "DISPATCH_ACTIVITY", "DISPATCH_PID", "DISPATCH_ALIVE", "DISPATCH_AGE",
    "BEAD", "BEAD_PHASE", "BEAD_AGE", "LANE", "COORDINATION", "COORDINATION_COUNT",
    "PRESSURE", "PRESSURE_VALUE", "BUDGET", "BUDGET_TOKENS", "RUN", "RUN_PHASE",
    "RUN_GOAL", "RESERVATIONS",
]  # fmt: skip
HOSTILE = [
    "'; touch pwned; '", "$(touch pwned)", "`touch pwned`", "\\'; touch pwned #", "'\"'\"'",
    "a\nb='x'", "${HOME}", "!!", "\\", "'", "''", "~", "*", "a b", "\u2028", "ü'é", "-n", "\x1b]0;x\x07",
]  # fmt: skip


@pytest.fixture
def put(ic):
    def row(key, scope, value):
        assert ic("state", "set", key, scope, "--value", json.dumps(value)).exit == 0

    return row


@pytest.fixture
def busy(put):
    put("dispatch", "s1", {"name": "fix", "activity": "testing", "pid": os.getpid()})
    put("bead", "s1", {"id": "ic-1", "phase": "executing"})
    put("lane", "s1", {"lane": "core"})
    put("coordination", "p-a", {"text": "2 files"})
    put("pressure", "s1", {"level": "yellow", "pressure": 45})
    put("budget", "s1", {"pct_consumed": 37.5, "total_tokens": 1000})


def evaluate(line):
    """What bash makes of it, byte for byte."""
    show = "".join(f"printf '%s\\0' \"${PREFIX}{name}\";" for name in NAMES)
    done = subprocess.run(
        ["bash", "-uc", f'eval "$1"; {show}', "bash", line], capture_output=True, check=True
    )
    assert done.stderr == b""
    return dict(zip(NAMES, done.stdout.decode().split("\0"), strict=False))


def test_text_is_one_line_for_people(busy, stdout):
    assert stdout("statusline", "--session=s1") == (
        "dispatch fix testing | bead ic-1 executing 0s | lane core | coordination 1 2 files"
        " | pressure yellow 45 | budget 37.5%\n"
    )


def test_a_dispatch_whose_process_is_gone_says_so(put, stdout):
    put("dispatch", "s1", {"name": "fix", "pid": 4_000_000})

    assert stdout("statusline", "--session=s1") == "dispatch fix gone\n"


def test_sh_assigns_every_variable(busy, stdout):
    found = evaluate(stdout("statusline", "--session=s1", "--format=sh"))

    assert list(found) == NAMES
    assert found["DISPATCH"] == "fix"
    assert found["DISPATCH_PID"] == str(os.getpid())
    assert found["DISPATCH_ALIVE"] == "1"
    assert found["BEAD_AGE"] == "0"
    assert found["BUDGET"] == "37.5"
    assert found["RUN"] == ""


@pytest.fixture
def at_work(conn, project):
    def run(goal):
        project_dir = os.path.realpath(project)
        rows.run(conn, project_dir=project_dir, phase="executing", goal=goal, session="s1")

    return run


def test_the_run_is_shown_in_every_format(at_work, stdout):
    at_work("Fix it")

    sh = evaluate(stdout("statusline", "--session=s1", "--format=sh"))
    found = json.loads(stdout("statusline", "--session=s1", "--json"))

    assert stdout("statusline", "--session=s1") == "run run00001 executing Fix it\n"
    assert (sh["RUN"], sh["RUN_PHASE"], sh["RUN_GOAL"]) == ("run00001", "executing", "Fix it")
    assert stdout("statusline", "--format=tsv").endswith("\trun00001\texecuting\tFix it\t\n")
    assert found["run"] == {"age": 0, "goal": "Fix it", "id": "run00001", "phase": "executing"}


def test_reservations_of_the_session_are_counted_in_every_format(ic, stdout):
    assert stdout("statusline", "--session=s1") == "\n"
    for path in ("a.py", "b.py"):
        assert ic("coordination", "reserve", "--owner=s1", f"--path={path}").exit == 0

    assert stdout("statusline", "--session=s1") == "reserved 2\n"
    assert evaluate(stdout("statusline", "--session=s1", "--format=sh"))["RESERVATIONS"] == "2"
    assert stdout("statusline", "--session=s1", "--format=tsv").endswith("\t2\n")
    assert json.loads(stdout("statusline", "--session=s1", "--json"))["reservations"] == 2
    assert stdout("statusline", "--session=s2") == "\n"


def test_the_run_is_that_of_the_project_from_any_directory_in_it(at_work, stdout, project):
    at_work("Fix it")
    (project / "sub").mkdir()

    inside = stdout("statusline", cwd=str(project / "sub"))

    assert inside == stdout("statusline") == stdout("statusline", "--project=sub/..")
    assert inside.startswith("run run00001 ")


def test_a_person_sees_the_beginning_of_a_long_goal(at_work, stdout):
    at_work("Make the parser accept what the printer prints, and more")

    assert (
        stdout("statusline") == "run run00001 executing Make the parser accept what the printer…\n"
    )


def test_tsv_has_the_same_fields_in_the_same_order(busy, stdout):
    sh = evaluate(stdout("statusline", "--session=s1", "--format=sh"))

    tsv = stdout("statusline", "--session=s1", "--format=tsv")

    assert tsv.removesuffix("\n").split("\t") == [sh[name] for name in NAMES]


def test_json_holds_everything(busy, stdout):
    found = json.loads(stdout("statusline", "--session=s1", "--format=json"))

    assert found["bead"] == {"id": "ic-1", "phase": "executing", "reason": None, "age": 0}
    assert found["run"] is None
    assert json.loads(stdout("statusline", "--session=s1", "--json")) == found


@pytest.mark.parametrize("form", ["text", "sh", "tsv", "json"])
def test_nothing_known_is_one_line_and_exit_0(stdout, form):
    assert stdout("statusline", "--session=nobody", "--format", form).count("\n") == 1


@pytest.mark.parametrize("form", ["text", "sh", "tsv", "json"])
def test_no_database_looks_like_nothing_known(shown, stdout, form):
    argv = ("statusline", "--session=s1", "--format", form)

    output = shown(*argv, error=NoDatabase("none"))

    assert (output.exit, output.stderr) == (0, b"")
    assert output.stdout.decode() == stdout(*argv)


def test_a_broken_database_is_an_error(shown):
    output = shown("statusline", error=Corrupt("damaged", hint="mend it"))

    assert (output.exit, output.stdout) == (2, b"")
    assert output.stderr == b"icctl: statusline: damaged; mend it\n"
    assert output.bug is None


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_payload_is_only_text_to_a_shell(put, stdout, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for key, field in [("dispatch", "name"), ("bead", "id"), ("lane", "lane")]:
        put(key, "s1", {field: text.replace("\x1b", "").replace("\x07", ""), "phase": "p"})

    found = evaluate(stdout("statusline", "--session=s1", "--format=sh"))

    assert os.listdir(tmp_path) == ["project"]
    assert (
        found["BEAD"] == " ".join(text.replace("\x1b", "").replace("\x07", "").split("\n")).strip()
    )
    assert found["BEAD_PHASE"] == "p"


@settings(max_examples=30, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1))
def test_every_text_survives_a_shell(text):
    line = Statusline(session="s", bead=Bead(text, None, None, 0))

    assert evaluate(SHOW["sh"](line).stdout.decode())["BEAD"] == text


@pytest.mark.parametrize(
    ("age", "shown_as"), [(0, "0s"), (59, "59s"), (60, "1m"), (7199, "1h"), (200_000, "2d")]
)
def test_an_age_is_short(age, shown_as):
    line = Statusline(session="s", bead=Bead("x", None, None, age))

    assert SHOW["text"](line).stdout == f"bead x {shown_as}\n".encode()


# --- whom and where ---


def test_the_session_is_the_callers_if_none_is_given(invoke):
    env = {"CLAUDE_SESSION_ID": "mine"}

    assert invoke("statusline", env=env).call.params.session_id == "mine"
    assert invoke("statusline", "--session", "x", env=env).call.params.session_id == "x"
    assert invoke("statusline", "--session=", env=env).call.params.session_id == ""
    assert invoke("statusline").call.params.session_id == ""


def test_a_project_is_found_from_the_callers_directory(invoke, project):
    env = {"INTERCORE_DB": "of/the/environment.db"}

    assert invoke("statusline", "--project=../x/", env=env).call.where == Where(
        str(project.parent / "x")
    )
    assert invoke("statusline", "--project=/a/b").call.where == Where("/a/b")
    assert invoke("statusline", "--project=", env=env).call.where.env_db == env["INTERCORE_DB"]
    assert invoke("statusline", "--project=/a", "--db=x.db").call.where == Where("/a", "x.db")


def test_json_and_another_format_contradict_each_other(invoke):
    assert invoke("statusline", "--json", "--format=sh").exit == 3
    assert invoke("statusline", "--format=bogus").exit == 3
    assert invoke("statusline", "extra").exit == 3


# --- watching ---


@pytest.fixture
def watch(invoke):
    """Feed answers to a watching command; what it prints for each, and its exit at the end."""

    def play(*answers, argv=()):
        planned = invoke("statusline", "--watch", *argv)
        printed = []
        for answer in answers:
            assert planned is not None, "it ended too early"
            output, planned = advance(planned, answer)
            printed.append(output.stdout.decode())
        return printed, planned

    return play


def bead(name, age=0):
    return Answer(result=Statusline(session="s", bead=Bead(name, None, None, age)))


def test_the_current_state_is_printed_at_once_and_then_what_differs(watch):
    printed, planned = watch(bead("a"), bead("a"), bead("b"), bead("b"), bead("a"))

    assert printed == ["bead a 0s\n", "", "bead b 0s\n", "", "bead a 0s\n"]
    assert planned is not None


@pytest.mark.parametrize("form", ["text", "sh", "tsv", "json"])
def test_growing_older_is_no_news(watch, form):
    printed, _ = watch(bead("a", 1), bead("a", 2), bead("a", 9000), argv=["--format", form])

    assert printed[0]
    assert printed[1:] == ["", ""]


def test_what_the_format_does_not_show_is_no_news(watch):
    lanes = [Answer(result=Statusline(session="s", bead=Bead("a", None, r, 0))) for r in "xy"]

    assert watch(*lanes)[0] == ["bead a 0s\n", ""]
    assert watch(*lanes, argv=["--json"])[0][1]


def test_a_database_may_come_and_go(watch):
    missing = Answer(error=NoDatabase("none"))
    lane = Answer(result=Statusline(session="s", lane=Lane("core", 0)))

    printed, planned = watch(missing, missing, lane, missing)

    assert printed == ["\n", "", "lane core\n", "\n"]
    assert planned is not None


def test_a_database_that_is_held_for_a_while_is_waited_for(watch):
    printed, planned = watch(bead("a"), Answer(error=Locked("held")), bead("a"), bead("b"))

    assert printed == ["bead a 0s\n", "", "", "bead b 0s\n"]
    assert planned is not None


def test_a_first_answer_that_is_an_error_ends_it(watch):
    assert watch(Answer(error=Locked("held")))[1] is None


def test_a_broken_database_ends_it(invoke):
    _, following = advance(invoke("statusline", "--watch"), bead("a"))

    output, following = advance(following, Answer(error=Corrupt("damaged", hint="mend it")))

    assert following is None
    assert (output.exit, output.stderr) == (2, b"icctl: statusline: damaged; mend it\n")


def test_what_is_asked_again_does_not_count_as_use(invoke):
    planned = invoke("statusline", "--watch")

    _, following = advance(planned, bead("a"))

    assert not planned.call.background
    assert following.call.background
    assert following.call.where == planned.call.where
