"""`icctl run`: what is printed, and with which exit code."""

import json
import os

import pytest

from icd.app import registry
from icd.app.call import Call
from icd.app.dispatch import run_batch
from icd.app.invocation import Need
from icd.db.paths import Where
from icd.features.runs import store as runs
from icd.features.runs.verbs import runs as verbs
from icd.values.processes import Writer
from tests.conftest import NOW_MS

RULES = b'[{"from":"plan","to":"work","checks":[{"check":"artifact_exists","phase":"plan"}]}]'
OWN = '--phases=["plan","work","done"]'


@pytest.fixture
def created(stdout):
    """Begin a run; its id."""

    def made(*options, **world):
        return stdout("run", "create", "--goal=g", *options, **world).strip()

    return made


@pytest.fixture
def told(ic):
    """Run a command that must fail; its exit code and what it says."""

    def failed(*argv, **world):
        output = ic("run", *argv, **world)
        return output.exit, output.stderr.decode()

    return failed


@pytest.fixture
def call_typed(database, clock, project):
    """A typed call that names the database only."""

    def called(name, **params):
        method = registry.find(name)
        checked = method.params(**params)
        method.check(checked)
        where = Where("", str(project / ".clavain" / "intercore.db"))
        call = Call(method, checked, where, Writer(1), deadline=clock.monotonic() + 60)
        (answer,) = run_batch(database, [call], clock=clock)
        assert answer.error is None, answer.error
        return answer.result

    return called


def test_create_prints_an_id_of_eight_characters(created):
    run = created()

    assert len(run) == 8
    assert run.isalnum()


def test_create_answers_the_true_first_phase(stdout):
    """The original always said brainstorm."""
    shown = json.loads(stdout("run", "create", "--goal=g", OWN, "--json"))

    assert shown.keys() == {"id", "phase"}
    assert shown["phase"] == "plan"


def test_status_is_labelled_with_the_text_in_column_twelve(stdout, created, project):
    run = created("--scope-id=b", "--token-budget=500", "--budget-warn-pct=70")
    stdout("run", "set", run, "--force-full=1", "--auto-advance=F", "--complexity=1")

    assert stdout("run", "status", run).splitlines() == [
        f"ID:         {run}",
        "Status:     active",
        "Phase:      brainstorm",
        "Goal:       g",
        f"Project:    {project}",
        "Complexity: 1",
        "ForceFull:  true",
        "AutoAdv:    false",
        "Scope:      b",
        "Budget:     500 tokens (warn at 70%)",
    ]


def test_status_as_json_has_the_fields_of_the_original_and_more(stdout, created, project):
    run = created(OWN, "--scope-id=b", "--token-budget=500", "--metadata=m")

    shown = json.loads(stdout("run", "status", run, "--json"))

    second = NOW_MS // 1000
    original = {
        "auto_advance": True,
        "complexity": 3,
        "created_at": second,
        "force_full": False,
        "goal": "g",
        "id": run,
        "phase": "plan",
        "project_dir": str(project),
        "status": "active",
        "updated_at": second,
        "phases": ["plan", "work", "done"],
        "scope_id": "b",
        "token_budget": 500,
        "budget_warn_pct": 80,
        "metadata": "m",
    }
    assert {name: shown[name] for name in original} == original
    assert shown["created_at_iso"] == "2027-01-15T08:00:00Z"
    assert "completed_at" not in shown


def test_optional_fields_are_left_out_where_there_is_nothing_to_say(stdout, created):
    shown = json.loads(stdout("run", "status", created(), "--json"))

    absent = {"phases", "completed_at", "scope_id", "token_budget", "budget_warn_pct", "metadata"}
    assert not absent & shown.keys()


def test_status_tells_whose_it_is_and_if_that_lives(stdout, created):
    run = created(pid=os.getpid(), env={"CLAUDE_SESSION_ID": "s1"})
    other = created("--session=s2", pid=2**22)

    mine, others = (json.loads(stdout("run", "status", each, "--json")) for each in (run, other))

    assert (mine["owner_pid"], mine["owner_liveness"]) == (os.getpid(), "alive")
    assert (mine["session"], others["session"]) == ("s1", "s2")
    assert others["owner_liveness"] == "dead"


def test_a_goal_of_several_lines_is_one_line_of_a_list(stdout, ic):
    made = ic("run", "create", "--goal=one\n\ttwo").stdout.decode().strip()

    assert stdout("run", "list") == f"{made}\tactive\tbrainstorm\tone two\n"
    assert json.loads(stdout("run", "list", "--json"))[0]["goal"] == "one\n\ttwo"


def test_a_goal_is_printed_as_it_was_written(stdout, ic):
    run = ic("run", "create", "--goal= two  spaces ").stdout.decode().strip()

    assert stdout("run", "list") == f"{run}\tactive\tbrainstorm\t two  spaces \n"
    assert "Goal:        two  spaces \n" in stdout("run", "status", run)
    assert "Goal:        two  spaces \n" in stdout("run", "snapshot", run)


@pytest.mark.parametrize("given", [".", "", "..", "../project", "link"])
def test_a_project_is_the_same_however_it_is_written(stdout, created, project, given):
    run = created()
    (project / "sub" / "deep").mkdir(parents=True)
    (project / "sub" / "link").symlink_to(project / "sub" / "deep")

    cwd = str(project) if given == "../project" else str(project / "sub")
    assert stdout("run", "current", f"--project={given}", cwd=cwd).strip() == run
    assert stdout("run", "list", f"--project={given}", cwd=cwd).startswith(run)


def test_dots_are_followed_through_links_as_the_system_does(stdout, created, project, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / ".git").mkdir(parents=True)
    (elsewhere / "sub").mkdir()
    (project / "link").symlink_to(elsewhere / "sub")

    run = created("--project=link/..")

    assert json.loads(stdout("run", "status", run, "--json"))["project_dir"] == str(elsewhere)


def test_a_project_that_does_not_exist_is_no_error(ic, created):
    assert ic("run", "current", "--project=/nowhere/at/all").exit == 1
    assert created("--project=/nowhere/at/all")


def test_a_run_without_anybody_is_no_current_one(ic, stdout, created):
    run = created(OWN)

    assert stdout("run", "current").strip() == run
    for _ in range(2):
        stdout("run", "advance", run)

    assert (ic("run", "current").exit, ic("run", "current").stdout) == (1, b"")
    found = ic("run", "current", "--json")
    assert (found.exit, found.stdout) == (1, b'{"found":false}\n')


def test_current_as_json_says_what_it_is(stdout, created):
    run = created()

    assert json.loads(stdout("run", "current", "--json")) == {
        "found": True,
        "goal": "g",
        "id": run,
        "phase": "brainstorm",
    }


def test_the_newest_of_a_second_comes_first(stdout, created):
    made = [created() for _ in range(3)]

    listed = [line.split("\t")[0] for line in stdout("run", "list").splitlines()]
    assert listed == made[::-1]
    assert stdout("run", "current").strip() == made[-1]


def test_active_and_scope_narrow_a_list_together(stdout, created):
    """In the original --active made --scope void."""
    run = created("--scope-id=b")
    created("--scope-id=c")

    assert stdout("run", "list", "--active", "--scope=b").split("\t")[0] == run


def test_a_bead_is_another_word_for_a_scope(told, created):
    run = created("--bead=b")

    exit_code, said = told("create", "--goal=g", "--scope-id=b")

    assert exit_code == 1
    assert f"icctl: run create: b is taken by run {run}, created 0s ago, in phase brain" in said
    assert "--takeover-after" in said


def test_an_empty_scope_is_none(created):
    assert created("--scope-id=") != created("--bead=")


def test_a_takeover_says_so_and_names_the_run(ic, stdout, created, clock):
    old = created("--bead=b")
    clock.wall_ms += 3_600_000

    output = ic("run", "create", "--goal=g", "--bead=b", "--takeover-after=60m", "--json")

    assert output.exit == 0
    assert json.loads(output.stdout)["took_over"] == old
    assert f"icctl: run create: warning: abandoned run {old}, created 60m ago" in (
        output.stderr.decode()
    )
    assert json.loads(stdout("run", "status", old, "--json"))["status"] == "abandoned"


@pytest.mark.parametrize(
    ("option", "field", "stored"),
    [
        ("--phases=@f", "phases", ["plan", "work", "done"]),
        ("--metadata=@f", "metadata", '["plan","work","done"]'),
    ],
)
def test_an_option_may_name_a_file(invoke, stdout, option, field, stored):
    content = {"f": b'["plan","work","done"]'}

    assert invoke("run", "create", "--goal=g", option) == Need("file", "f")
    run = stdout("run", "create", "--goal=g", option, files=content).strip()

    assert json.loads(stdout("run", "status", run, "--json"))[field] == stored


def test_gate_rules_come_from_a_file_or_as_they_are(stdout, ic):
    words = ("run", "create", "--goal=g", OWN)
    one = stdout(*words, "--gates=@g.json", files={"g.json": RULES}).strip()
    two = stdout(*words, f"--gates={RULES.decode()}").strip()

    for run in (one, two):
        assert json.loads(stdout("run", "status", run, "--json"))["gates"] == json.loads(RULES)
        assert ic("run", "advance", run, "--priority=0").exit == 1


def test_gate_rules_that_the_chain_never_meets_are_refused(told):
    assert told("create", "--goal=g", f"--gates={RULES.decode()}")[0] == 3


@pytest.mark.parametrize(
    ("option", "exit_code"),
    [
        ("--goal=", 3),
        ("--goal=  ", 3),
        ("--complexity=0", 3),
        ("--phases=[]", 3),
        ("--gates=7", 3),
        ("--actions=[]", 2),
        ("--actions={", 2),
        ("--scope-id=a\tb", 2),
        ('--metadata={"k":"ghp_0123456789abcdefghijklmnopqrstuvwxyz"}', 2),
    ],
)
def test_what_makes_no_sense_creates_nothing(told, stdout, option, exit_code):
    assert told("create", "--goal=g", option)[0] == exit_code
    assert stdout("run", "list") == ""


def test_a_file_that_is_not_text_is_refused(ic):
    assert ic("run", "create", "--goal=g", "--phases=@f", files={"f": b"\xff"}).exit == 3


def test_actions_and_metadata_are_kept(stdout, created):
    run = created('--actions={"executing":{"command":"x"}}', '--metadata={"a":1}')

    shown = json.loads(stdout("run", "status", run, "--json"))
    assert shown["actions"] == {"executing": {"command": "x"}}
    assert shown["metadata"] == '{"a":1}'


@pytest.mark.parametrize("actions", ['{"a":1e999}', '{"a":"\\ud800"}'])
def test_actions_beyond_our_own_types_are_kept_as_they_are(stdout, created, actions):
    run = created(f"--actions={actions}")

    assert f'"actions":{actions}' in stdout("run", "status", run, "--json")


def test_an_advance_prints_from_where_to_where(stdout, created):
    run = created()

    assert stdout("run", "advance", run) == "brainstorm → brainstorm-reviewed\n"
    assert stdout("run", "phase", run) == "brainstorm-reviewed\n"


def test_an_advance_as_json_has_the_fields_of_the_original(stdout, created):
    shown = json.loads(stdout("run", "advance", created(OWN), "--json"))

    assert shown == {
        "advanced": True,
        "event_type": "advance",
        "from_phase": "plan",
        "gate_result": "pass",
        "gate_tier": "soft",
        "reason": "",
        "spawns": False,
        "to_phase": "work",
    }


def test_a_blocked_advance_is_exit_1_and_says_how_to_go_on(ic, created, stdout):
    run = created("--auto-spawn")

    output = ic("run", "advance", run, "--priority=0")

    assert (output.exit, output.stdout) == (1, b"brainstorm (blocked: block)\n")
    assert f"'icctl gate override {run} --reason=".encode() in output.stderr
    assert output.then == []
    assert "\tblock\tfail\t{" in stdout("run", "events", run)


def test_a_paused_advance_is_exit_1_and_says_how_to_go_on(ic, created, stdout):
    run = created()
    stdout("run", "set", run, "--auto-advance=false")

    output = ic("run", "advance", run)

    assert (output.exit, output.stdout) == (1, b"brainstorm (blocked: pause)\n")
    assert b"--skip-reason" in output.stderr
    assert stdout("run", "events", run).splitlines()[-1] == (
        "brainstorm → brainstorm-reviewed\tpause\tnone\tauto_advance disabled"
    )


def test_entering_executing_the_client_goes_on_to_start_agents_if_the_run_asked_for_it(ic, created):
    chain = '--phases=["executing-soon","executing","done"]'
    asked, not_asked = created("--auto-spawn", chain), created(chain)

    outputs = [ic("run", "advance", run, "--timeout=9s") for run in (asked, not_asked)]
    again = ic("run", "advance", asked)

    assert outputs[0].then == ["dispatch", "auto-spawn", asked]
    assert (outputs[1].then, again.then) == ([], [])


def test_the_database_that_was_chosen_is_chosen_again_to_start_agents(ic, created, project):
    run = created("--auto-spawn", '--phases=["a","executing"]')
    path = str(project / ".clavain" / "intercore.db")

    output = ic("run", "advance", run, "--db", path)

    assert output.then == ["--db", path, "dispatch", "auto-spawn", run]


def test_a_client_that_cannot_go_on_is_told_what_to_run(ic, created):
    run = created("--auto-spawn", '--phases=["a","executing"]')

    output = ic("run", "advance", run, continues=False)

    assert (output.exit, output.then) == (0, [])
    assert f"'icctl dispatch auto-spawn {run}'".encode() in output.stderr


def test_a_rollback_ends_the_processes_of_what_it_cancelled(ic, created, stdout, conn):
    run = created(OWN)
    stdout("run", "advance", run)
    conn.execute(
        "INSERT INTO dispatches (id, run_id, agent_type, status, project_dir, turns, commands, "
        "messages, input_tokens, output_tokens, created_at, created_ms, version) "
        "VALUES ('d1', ?, 'codex', 'running', '/p', 0, 0, 0, 0, 0, 0, 0, 1)",
        (run,),
    )

    output = ic("run", "rollback", run, "--to-phase=plan")

    assert json.loads(output.stdout)["cancelled_dispatches"] == 1
    assert output.then[:2] == ["dispatch", "kill"]
    assert output.then[-1] == "d1"


def test_a_rollback_is_told_as_indented_json(stdout, created):
    run = created(OWN)
    stdout("run", "advance", run)

    planned = stdout("run", "rollback", run, "--to-phase=plan", "--dry-run")
    done = stdout("run", "rollback", run, "--to-phase=plan", "--reason=r")

    assert planned == (
        '{\n  "dry_run": true,\n  "from_phase": "work",\n  "rolled_back_phases": [\n'
        '    "work"\n  ],\n  "to_phase": "plan"\n}\n'
    )
    assert list(json.loads(done)) == [
        "cancelled_dispatches",
        "failed_agents",
        "from_phase",
        "marked_artifacts",
        "reason",
        "rolled_back_phases",
        "to_phase",
    ]


def test_what_was_asked_for_twice_under_one_id_is_created_once(invoke, database, clock, stdout):
    made = []
    for _ in range(2):
        planned = invoke("run", "create", "--goal=g", "--bead=b", request_id="r" * 24)
        (answer,) = run_batch(database, [planned.call], clock=clock)
        made.append(answer.result.id)

    assert made[0] == made[1]
    assert len(stdout("run", "list").splitlines()) == 1


def test_an_advance_that_was_asked_for_twice_under_one_id_moves_once(
    invoke, database, clock, created, stdout
):
    run = created()
    for _ in range(2):
        planned = invoke("run", "advance", run, request_id="r" * 24)
        (answer,) = run_batch(database, [planned.call], clock=clock)
        assert answer.result.to_phase == "brainstorm-reviewed"

    assert len(stdout("run", "events", run).splitlines()) == 1


@pytest.mark.parametrize("verb", ["status", "phase", "advance", "cancel", "abandon"])
def test_an_unknown_run_is_exit_1(told, verb):
    assert told(verb, "nobody") == (
        1,
        f"icctl: run {verb}: not found: nobody; see 'icctl run list'\n",
    )


def test_a_row_of_another_program_does_not_hide_the_others(stdout, created, conn):
    run, odd = created(), created(OWN)
    conn.execute("UPDATE runs SET phases = 'nonsense' WHERE id = ?", (odd,))

    assert {line.split("\t")[0] for line in stdout("run", "list").splitlines()} == {run, odd}
    assert "phases" not in json.loads(stdout("run", "status", odd, "--json"))


def test_typed_callers_may_leave_the_project_out(call_typed, conn, project):
    made = call_typed("run.create", goal="g")

    assert runs.require(conn, made.id).project_dir == str(project)


@pytest.mark.parametrize("given", ["sub", "/a\0b"])
def test_a_project_that_cannot_be_meant_is_refused(given):
    method = registry.find("run.create")

    with pytest.raises(Exception, match="project"):
        method.check(method.params(goal="g", project=given))


# --- what somebody else has stored ----------------------------------------------------------


@pytest.mark.parametrize("column", ["gates", "actions", "phases"])
def test_what_is_no_json_in_the_database_does_not_make_the_answer_unreadable(
    created, stdout, conn, column
):
    run = created()
    with conn:
        conn.execute(f"UPDATE runs SET {column} = '[oops'")

    shown = json.loads(stdout("run", "status", run, "--json"))
    (listed,) = json.loads(stdout("run", "list", "--json"))
    snapshot = json.loads(stdout("run", "snapshot", run, "--json"))

    assert shown["id"] == listed["id"] == snapshot["run"]["id"] == run
    assert column not in shown.keys() | listed.keys() | snapshot["run"].keys()


def test_a_list_that_is_cut_says_so_unless_a_length_was_asked_for(ic, created, monkeypatch):
    monkeypatch.setattr(verbs, "LIMIT", 2)
    for _ in range(3):
        created()

    cut, asked_for = ic("run", "list"), ic("run", "list", "--limit=2")

    assert len(cut.stdout.splitlines()) == len(asked_for.stdout.splitlines()) == 2
    assert b"only the newest 2 are shown; see --limit" in cut.stderr
    assert asked_for.stderr == b""


# --- which project --------------------------------------------------------------------------


def test_a_link_is_followed_before_what_stands_behind_it(project, created, stdout, tmp_path):
    (project / "sub").mkdir()
    (tmp_path / "link").symlink_to(project / "sub")
    run = created()

    found = [
        stdout("run", *words, f"--project={tmp_path}/link/..")
        for words in (["current"], ["list"], ["snapshot", "--current"])
    ]

    assert [run in text for text in found] == [True, True, True]


def test_a_project_whose_path_is_no_text_is_one_from_everywhere_below(project, created, stdout):
    odd = os.fsdecode(os.path.join(os.fsencode(project), b"odd\xff"))
    os.makedirs(f"{odd}/.git")
    os.makedirs(f"{odd}/sub")
    run = created(cwd=odd)

    below = stdout("run", "current", cwd=f"{odd}/sub").strip()

    assert below == run
    assert stdout("run", "list", "--project=..", cwd=f"{odd}/sub").startswith(run)
    assert stdout("run", "snapshot", "--current", cwd=f"{odd}/sub").split()[1] == run


# --- whose runs a list shows ----------------------------------------------------------------


def listed(stdout, *options, **world):
    return {line.split("\t")[0] for line in stdout("run", "list", *options, **world).splitlines()}


@pytest.fixture
def foreign(created, tmp_path):
    """A run of another project in the same database."""
    other = tmp_path / "other"
    (other / ".git").mkdir(parents=True)
    return created(f"--project={other}")


def test_a_list_shows_the_runs_of_this_project(stdout, created, foreign):
    mine = created()

    assert listed(stdout) == {mine}
    assert listed(stdout, "--all-projects") == {mine, foreign}


def test_a_list_from_a_directory_below_shows_the_same(stdout, created, foreign, project):
    mine = created()
    below = project / "a" / "b"
    below.mkdir(parents=True)

    assert listed(stdout, cwd=str(below)) == {mine}


def test_runs_of_directories_below_the_project_are_its_own(stdout, created, foreign, project):
    nested = project / "vendor" / "x"
    (nested / ".git").mkdir(parents=True)
    outer, inner = created(), created(cwd=str(nested))

    assert listed(stdout) == {outer, inner}
    assert listed(stdout, cwd=str(nested)) == {outer, inner}


def test_a_project_whose_name_only_begins_alike_is_another(stdout, created, project):
    created(f"--project={project}-2")
    mine = created()

    assert listed(stdout) == {mine}


def test_a_worktree_shows_its_runs_and_those_of_the_main_checkout(
    stdout, created, foreign, project, tmp_path
):
    gitdir = project / ".git" / "worktrees" / "w"
    gitdir.mkdir(parents=True)
    (gitdir / "commondir").write_text("../..\n")
    worktree = tmp_path / "w"
    worktree.mkdir()
    (gitdir / "gitdir").write_text(f"{worktree / '.git'}\n")
    (worktree / ".git").write_text(f"gitdir: {gitdir}\n")
    main, mine = created(), created(cwd=str(worktree))

    assert listed(stdout, cwd=str(worktree)) == {main, mine}
    assert listed(stdout) == {main}


def test_a_list_that_hides_everything_says_so(ic, foreign):
    output = ic("run", "list")

    assert (output.exit, output.stdout) == (0, b"")
    assert b"there are runs of other projects; see --all-projects" in output.stderr
    assert ic("run", "list", "--status=failed").stderr == b""


def test_a_typed_call_lists_all_projects_unless_told_otherwise(call_typed, created, foreign):
    mine = created()

    assert {run.id for run in call_typed("run.list")} == {mine, foreign}
    assert {run.id for run in call_typed("run.list", here=True)} == {mine}
