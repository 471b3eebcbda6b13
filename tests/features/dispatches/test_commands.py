"""`icctl dispatch …`, from the words to what is printed."""

import json

import pytest

from icd.features.dispatches import store as dispatches
from icd.features.dispatches.store import End
from icd.values.processes import Writer
from tests.conftest import NOW_MS

ME = Writer(pid=41)


@pytest.fixture
def made(conn):
    return dispatches.create(
        conn,
        agent_type="codex",
        project_dir="/p",
        name="reviewer",
        prompt_file="p.md",
        output_file="/o.md",
        actor=ME,
        now_ms=NOW_MS,
    )


@pytest.fixture
def end(conn, made):
    def ended(**given):
        how = End(**{"id": made.id, "status": "completed", **given})
        return dispatches.end(conn, how, actor=ME, now_ms=NOW_MS)

    return ended


def test_status_shows_what_is_known_and_nothing_else(stdout, made):
    assert stdout("dispatch", "status", made.id) == (
        f"ID:      {made.id}\n"
        "Status:  spawned\n"
        "Type:    codex\n"
        "Name:    reviewer\n"
        "Project: /p\n"
        "Prompt:  p.md\n"
        "Output:  /o.md\n"
    )


def test_status_shows_all_that_came_of_it(stdout, made, end, conn):
    conn.execute("UPDATE dispatches SET pid = 42")
    end(
        status="failed",
        exit_code=3,
        turns=2,
        input_tokens=10,
        output_tokens=4,
        cache_hits=0,
        verdict_status="fail",
        verdict_summary="two tests fail",
        error_message="exit status 3",
    )

    shown = stdout("dispatch", "status", made.id).splitlines()

    assert shown[4] == "PID:     42"
    assert shown[8:] == [
        "Stats:   2 turns, 0 commands, 0 messages",
        "Tokens:  10 in / 4 out / 0 cache",
        "Verdict: fail",
        "Summary: two tests fail",
        "Exit:    3",
        "Error:   exit status 3",
    ]


def test_a_line_break_in_a_path_makes_no_other_field(stdout, conn, made):
    conn.execute("UPDATE dispatches SET prompt_file = ?", ("a\nStatus:  completed\x1b[2J",))

    shown = stdout("dispatch", "status", made.id)

    assert "Prompt:  a\\nStatus:  completed\\x1b[2J\n" in shown


def test_json_has_the_fields_of_the_original_sorted(stdout, made, end):
    end(exit_code=0)

    text = stdout("dispatch", "status", made.id, "--json")

    shown = json.loads(text)
    assert list(shown) == sorted(shown)
    assert shown.keys() >= {
        "agent_type", "commands", "created_at", "created_at_iso", "id", "in_tokens", "messages",
        "out_tokens", "project_dir", "status", "turns", "completed_at", "exit_code", "name",
        "output_file", "prompt_file",
    }  # fmt: skip
    assert "pid" not in shown


def test_a_list_has_tabs_even_where_there_is_no_name(stdout, made, conn):
    other = dispatches.create(
        conn, agent_type="claude", project_dir="/p", actor=ME, now_ms=NOW_MS + 1
    )

    shown = stdout("dispatch", "list")

    assert shown == f"{other.id}\tspawned\tclaude\t\n{made.id}\tspawned\tcodex\treviewer\n"
    assert json.loads(stdout("dispatch", "list", "--json"))[1]["id"] == made.id


def test_a_project_without_dispatches_has_an_empty_list(stdout, database):
    assert stdout("dispatch", "list") == ""
    assert stdout("dispatch", "list", "--json") == "[]\n"


def test_tokens_are_set(stdout, made):
    assert stdout("dispatch", "tokens", made.id, "--in=7", "--out", "5") == "updated\n"
    assert stdout("dispatch", "tokens", made.id, "--json") == '{"status":"updated"}\n'
    assert "Tokens:  7 in / 5 out\n" in stdout("dispatch", "status", made.id)


@pytest.mark.parametrize(
    ("used", "line"),
    [
        (85, b"[budget] WARNING: 85/100 tokens (80% threshold)\n"),
        (120, b"[budget] EXCEEDED: 120/100 tokens\n"),
    ],
)
def test_a_budget_that_runs_out_is_told_on_stderr(ic, made, conn, used, line):
    conn.execute(
        """
        INSERT INTO runs (id, project_dir, goal, status, phase, complexity, force_full,
                          auto_advance, auto_spawn, token_budget, budget_warn_pct, budget_told,
                          created_at, created_ms, updated_at, updated_ms)
        VALUES ('run00001', '/p', 'g', 'active', 'planned', 3, 0, 1, 0, 100, 80, 0, 0, 0, 0, 0)
        """
    )
    conn.execute("UPDATE dispatches SET run_id = 'run00001'")

    told = [ic("dispatch", "tokens", made.id, f"--in={used}") for _ in range(2)]

    assert [(output.exit, output.stdout, output.stderr) for output in told] == [
        (0, b"updated\n", line)
    ] * 2


def test_prune_counts_what_it_forgets(stdout, made, end):
    end()

    assert stdout("dispatch", "prune", "--older-than=0s") == "1 pruned\n"
    assert stdout("dispatch", "prune", "--older-than=0s", "--json") == '{"pruned":0}\n'


def test_a_process_is_recorded_and_an_end(stdout, ic, made):
    document = json.dumps({"id": made.id, "status": "timeout", "exit_code": 143}).encode()

    running = stdout("dispatch", "record", made.id, "--pid=42", "--pid-start=7")
    ended = ic("dispatch", "record", made.id, "--end=f", files={"f": document})

    assert running == "running\n"
    assert (ended.exit, ended.stdout) == (0, b"timeout\n")


def test_a_process_of_what_was_cancelled_is_refused(ic, made, end):
    end(status="cancelled")

    output = ic("dispatch", "record", made.id, "--pid=42")

    assert output.exit == 1
    assert b"already cancelled" in output.stderr


@pytest.mark.parametrize(
    ("content", "exit_code"),
    [
        (b"", 2),
        (b"{}", 2),
        (b'{"id":"\xff","status":"failed"}', 2),
        (b'{"x":' + b"[" * 4000, 2),
        (b'{"id":"other000","status":"failed"}', 3),
    ],
)
def test_what_tells_no_end_of_this_dispatch_is_refused(ic, made, content, exit_code):
    output = ic("dispatch", "record", made.id, "--end=f", files={"f": content})

    assert (output.exit, output.stdout, output.bug) == (exit_code, b"", None)


@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("status", "a", "b"),
        ("wait",),
        ("poll",),
        ("tokens",),
        ("tokens", "x", "--in=-1"),
        ("tokens", "x", "--in=many"),
        ("prune",),
        ("prune", "--older-than=5"),
        ("record", "x"),
        ("record", "x", "--pid=1", "--end=f"),
        ("record", "x", "--pid=0"),
        ("list", "--limit=0"),
        ("list", "--bogus"),
        ("wait", "x", "--poll=x"),
    ],
)
def test_nonsense_is_a_usage_error(ic, words):
    assert ic("dispatch", *words).exit == 3


@pytest.mark.parametrize("verb", ["status", "poll", "wait", "tokens"])
def test_who_is_unknown_is_exit_1(ic, database, verb):
    output = ic("dispatch", verb, "nobody")

    assert (output.exit, output.stdout) == (1, b"")
    told = f"icctl: dispatch {verb}: not found: nobody; see 'icctl dispatch list'\n"
    assert output.stderr == told.encode()
