"""From a command line to a plan, and from an answer to what is printed."""

import os
import time

import pytest

from icd.app import registry
from icd.app.call import Answer
from icd.app.idempotency import MAX_DEADLINE_MS
from icd.app.invocation import SESSION_VARIABLES, Ask, Need, Output, Refusal, World
from icd.app.planner import finish, plan
from icd.app.reference import help as texts
from icd.db.paths import Where
from icd.errors import Corrupt, InvalidName, Locked, NoDatabase, Usage
from icd.values.processes import Writer

USAGE_ERRORS = [
    "state",
    "sentinel",
    "state frobnicate",
    "state set",
    "state set k",
    "state set k s file",
    "state set k s @a b",
    "state set k s --value 1 @file",
    "state set k s --value",
    "state set k s --ttl=5x --value 1",
    "state set k s --ttl=soon --value 1",
    "state set k s --ttl=-1s --value 1",
    "state set k s --if-version=-1 --value 1",
    "state set k s --if-version=x --value 1",
    "state set k s --debounce=1s --ttl=1s --value 1",
    "state set k s --debounce=1s --if-version=1 --value 1",
    "state set k s --unknown --value 1",
    "state get",
    "state get k",
    "state get k s t",
    "state get k s --json=1",
    "state delete",
    "state delete k",
    "state delete k s --all",
    "state delete --all",
    "state incr k",
    "state incr k s --by=x",
    "state incr k s --by=9223372036854775808",
    "state incr k s --by",
    "state list",
    "state list k --prefix=k",
    "state prune k",
    "sentinel check",
    "sentinel check n",
    "sentinel check n s",
    "sentinel check n s --interval",
    "sentinel check n s --interval=",
    "sentinel check n s --interval=-1",
    "sentinel check n s --interval=1.5",
    "sentinel check n s --interval=5x",
    "sentinel check n s --interval=-5s",
    "sentinel check n s --interval=99999999999999999999",
    "sentinel check-many",
    "sentinel check-many a",
    "sentinel check-many a:b",
    "sentinel check-many a:b:c",
    "sentinel check-many a:b:-1",
    "sentinel reset",
    "sentinel reset n",
    "sentinel reset n s --all",
    "sentinel list x",
    "sentinel prune",
    "sentinel prune --older-than=7",
    "sentinel prune --older-than=-7d",
    "init x",
    "health x",
    "health --unknown",
    "ping x",
    "status x",
    "version --timeout=5x",
    "version --timeout",
    "version --db",
]


@pytest.mark.parametrize("words", USAGE_ERRORS)
def test_a_mistake_in_the_command_line_exits_with_3_and_one_line(invoke, words):
    output = invoke(*words.split())

    assert isinstance(output, Output)
    assert (output.exit, output.stdout) == (3, b"")
    assert output.stderr.startswith(b"icctl: ")
    assert output.stderr.count(b"\n") == 1


@pytest.mark.parametrize("words", [w for w in USAGE_ERRORS if len(w.split()) > 2])
def test_a_mistake_is_told_with_the_command_and_where_to_read_on(invoke, words):
    noun, verb = words.split()[:2]
    if noun not in registry.GROUPS or verb not in registry.verbs(noun):
        pytest.skip("not a command below a noun")

    told = invoke(*words.split(), program="ic").stderr.decode()

    assert told.startswith(f"ic: {noun} {verb}: ")


def test_a_mistake_that_click_finds_points_to_the_help(invoke):
    told = invoke("state", "get", "k", program="ic").stderr.decode()

    assert told == "ic: state get: Missing argument 'SCOPE'; see 'ic state get --help'\n"


@pytest.mark.parametrize("word", ["frobnicate", "State", "--unknown", "--", "state=x"])
def test_an_unknown_command_prints_the_usage_on_stdout_and_exits_with_3(invoke, word):
    output = invoke(word, "x")

    told = f"icctl: unknown command: {word}\n".encode()
    refused = Refusal("command", Usage, f"unknown command: {word}")
    assert output == Output(3, texts.usage("icctl"), told, refused=refused)


@pytest.mark.parametrize(
    ("error", "exit_status", "told"),
    [(NoDatabase("there is none"), 69, b""), (Corrupt("it is damaged"), 2, b"it is damaged")],
)
def test_if_database_makes_a_missing_one_an_exit_status_of_its_own(shown, error, exit_status, told):
    output = shown("state", "get", "k", "s", "--if-database", error=error)

    assert (output.exit, output.stdout) == (exit_status, b"")
    assert told in output.stderr
    assert bool(output.stderr) == bool(told)


def test_a_command_line_that_was_refused_says_which_one(invoke):
    assert invoke("state", "get", "k").refused.command == "state get"
    assert invoke("state").refused.command == "state"
    assert invoke("--timeout=x").refused.command == "command"
    assert invoke("state", "get", "K", "s").refused.kind is InvalidName


def test_two_command_lines_that_are_alike_are_told_apart(invoke):
    """What click made of the words is remembered; that must not show."""
    one = invoke("sentinel", "check", "a", "b", "--interval=5").call.params
    other = invoke("sentinel", "check", "a", "b", "--interval=6").call.params
    again = invoke("sentinel", "check", "a", "b", "--interval=5").call.params

    assert (one.interval, other.interval, again.interval) == (5, 6, 5)
    assert one == again
    assert invoke("sentinel", "reset", "a", "b").method == "sentinel.reset"


def test_a_noun_without_a_verb_names_the_verbs(invoke):
    verbs = ", ".join(registry.verbs("state"))

    assert verbs.startswith("set, get, ")
    assert invoke("state").stderr == f"icctl: state: missing subcommand ({verbs})\n".encode()


def test_an_unknown_verb_is_named(invoke):
    told = invoke("state", "frobnicate").stderr

    assert told.startswith(b"icctl: state: unknown subcommand: frobnicate; use one of set, get")


ENDLESS = "9" * 5000


@pytest.mark.parametrize(
    "words",
    [
        ["state", "set", "k", "s", "--value", "1", f"--ttl={ENDLESS}s"],
        ["sentinel", "prune", f"--older-than={ENDLESS}h"],
        ["version", f"--timeout={ENDLESS}s"],
    ],
    ids=["ttl", "older than", "timeout"],
)
def test_a_number_without_end_is_a_mistake_in_the_command_line(invoke, words):
    output = invoke(*words)

    assert not isinstance(output, Output) or output.exit in (2, 3)


@pytest.mark.parametrize(
    "words",
    [
        ["state", "set", "k", "s", "--value", "1", "--ttl=9999999999999999h"],
        ["state", "incr", "k", "s", "--ttl=9999999999999999h"],
        ["sentinel", "prune", "--older-than=9999999999999999h"],
    ],
    ids=["set", "incr", "prune"],
)
def test_a_duration_beyond_the_bounds_of_the_api_is_a_mistake(ic, words):
    output = ic(*words)

    assert output.exit in (2, 3)
    assert b"internal error" not in output.stderr


@pytest.mark.parametrize(
    "words",
    [["state", "get", "k", "\udcff"], ["state", "set", "k", "s", "--value", "\udcff"]],
    ids=["scope", "value"],
)
def test_bytes_that_are_no_text_are_a_mistake(invoke, words):
    output = invoke(*words)

    assert isinstance(output, Output)
    assert output.exit in (2, 3)


# --- the plan -------------------------------------------------------------------------------


def test_a_plan_carries_the_callers_world(invoke, project):
    env = {"INTERCORE_DB": "env.db", "CLAUDE_SESSION_ID": "session-a", "HOME": "/x"}

    planned = invoke("state", "get", "k", "s", "--db=x.db", env=env, request_id="r1")

    assert isinstance(planned, Ask)
    assert planned.call.method.name == "state.get"
    assert planned.call.where == Where(str(project), "x.db", "env.db")
    assert planned.call.writer == Writer(41, "session-a")
    assert planned.call.request_id == "r1"
    assert not planned.call.verbose
    assert (planned.context, planned.program) == ("state get", "icctl")


@pytest.mark.parametrize("first", range(len(SESSION_VARIABLES)))
def test_the_session_is_the_first_that_there_is(invoke, first):
    env = dict.fromkeys(SESSION_VARIABLES[:first], "")
    env |= {name: name.lower() for name in SESSION_VARIABLES[first:]}

    planned = invoke("state", "get", "k", "s", env=env)

    assert planned.call.writer == Writer(41, SESSION_VARIABLES[first].lower())


def test_verbose_is_passed_on(invoke):
    assert invoke("state", "get", "k", "s", "--verbose").call.verbose


def test_names_are_judged_before_anything_is_called(invoke):
    output = invoke("state", "get", "K", "s")

    assert output.exit == 2
    assert output.stderr.startswith(b"icctl: state get: invalid key 'K'; use lower-case")


def test_a_timeout_shortens_the_deadline(invoke):
    before = time.monotonic()

    deadline = invoke("version", "--timeout=2s").call.deadline

    assert before + 2 <= deadline <= time.monotonic() + 2


def test_a_timeout_never_outlasts_the_client(invoke):
    deadline = time.monotonic() + 1

    assert invoke("version", "--timeout=1h", deadline=deadline).call.deadline == deadline


def test_a_timeout_never_outlasts_what_ids_are_kept_for(invoke):
    far = time.monotonic() + 10 * MAX_DEADLINE_MS

    deadline = invoke("version", "--timeout=10000h", deadline=far).call.deadline

    assert deadline <= time.monotonic() + MAX_DEADLINE_MS / 1000


def test_without_a_timeout_the_deadline_is_the_clients(invoke):
    assert invoke("version", deadline=123.0).call.deadline == 123.0


def test_what_follows_two_dashes_belongs_to_the_command(invoke):
    planned = invoke("state", "get", "--", "k", "--json")

    assert planned.call.params.scope_id == "--json"


def test_every_command_can_be_found():
    for name in registry.commands():
        words = name.split()

        noun = registry.noun(words)
        found = registry.verbs(noun)[words[-1]] if noun else registry.single(name)

        assert found is registry.commands()[name], name


# --- input ----------------------------------------------------------------------------------


def test_a_payload_from_stdin_is_asked_for(invoke):
    assert invoke("state", "set", "k", "s") == Need("stdin")


def test_a_payload_from_a_file_is_asked_for_by_the_path_as_written(invoke):
    assert invoke("state", "set", "k", "s", "@dir/a b.json") == Need("file", "dir/a b.json")


def test_a_payload_on_the_command_line_needs_no_input(invoke):
    assert isinstance(invoke("state", "set", "k", "s", "--value", "1"), Ask)


def test_mistakes_are_told_before_input_is_asked_for(invoke):
    assert invoke("state", "set", "k", "s", "--ttl=soon").exit == 3


def test_a_file_that_cannot_be_read_is_an_error(invoke):
    output = invoke("state", "set", "k", "s", "@x", files={"x": "Permission denied"})

    assert output.exit == 2
    assert output.stderr.startswith(b"icctl: state set: cannot read x: Permission denied; ")


@pytest.mark.parametrize("words", ["version", "health", "state get k s", "sentinel list", "init"])
def test_no_other_command_touches_stdin(invoke, words):
    assert isinstance(invoke(*words.split()), Ask)


# --- the world of this process --------------------------------------------------------------

COMMAND_LINES = [
    [],
    ["frobnicate"],
    ["state", "set", "--help"],
    ["sentinel", "check", "--help"],
    ["state", "--help"],
    ["state", "get", "k"],
    ["sentinel", "check", "n", "s", "--interval=x"],
    ["state", "set", "k", "s", "@f"],
]


def test_a_bug_in_finding_a_command_is_told_to_its_caller(invoke, monkeypatch):
    """Else the daemon would hang up without a word."""

    def fail(_noun):
        raise MemoryError

    monkeypatch.setattr(registry, "verbs", fail)
    output = invoke("state", "get", "a-key-that-was-never-read", "s")

    assert (output.exit, output.stdout) == (2, b"")
    assert b"not enough memory" in output.stderr


def test_nothing_of_this_process_shows_through(invoke, monkeypatch, tmp_path):
    before = [invoke(*argv) for argv in COMMAND_LINES]
    for name, value in {
        "COLUMNS": "40",
        "LINES": "5",
        "LANG": "C",
        "LC_ALL": "C",
        "LANGUAGE": "de",
        "TERM": "dumb",
        "FORCE_COLOR": "1",
        "NO_COLOR": "1",
        "_ICCTL_COMPLETE": "bash_source",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)

    after = [invoke(*argv) for argv in COMMAND_LINES]

    assert after == before


def test_the_environment_of_this_process_is_not_the_callers(invoke, monkeypatch, tmp_path, project):
    monkeypatch.setenv("INTERCORE_DB", "daemon.db")
    monkeypatch.setenv("CLAUDE_SESSION_ID", "the daemon's")
    monkeypatch.chdir(tmp_path)

    call = invoke("state", "get", "k", "s", env={}).call

    assert call.where == Where(str(project), None, None)
    assert call.writer == Writer(41, None)


def test_a_plan_works_in_a_directory_that_is_gone(monkeypatch, tmp_path):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()

    planned = plan(World(argv=["state", "get", "k", "s"], cwd="/", deadline=0.0))

    assert isinstance(planned, Ask)
    os.chdir(tmp_path)


def test_planning_leaves_the_callers_words_alone(invoke):
    argv = ["help", "state", "--json"]

    plan(World(argv=argv, cwd="/", deadline=0.0))

    assert argv == ["help", "state", "--json"]


# --- the answer -----------------------------------------------------------------------------


def test_an_error_is_one_line_on_stderr_with_its_exit_code(shown):
    output = shown("state", "get", "k", "s", error=Locked("the database is locked"))

    assert output == Output(
        2,
        b"",
        b"icctl: state get: the database is locked; retry, or raise --timeout\n",
    )


def test_an_error_stays_on_one_line(shown):
    output = shown("state", "get", "k", "s", error=InvalidName("a\nb"))

    assert output.stderr.count(b"\n") == 1


def test_warnings_and_traces_go_to_stderr_before_the_error(invoke):
    planned = invoke("state", "get", "k", "s", program="ic")
    answer = Answer(error=Locked("no", hint=""), warnings=["careful"], trace=["sql: SELECT 1"])

    output = finish(planned, answer)

    assert output.stderr == (
        b"ic: state get: warning: careful\nic: sql: SELECT 1\nic: state get: no\n"
    )


def test_warnings_do_not_change_the_result(invoke):
    planned = invoke("state", "list", "k")

    output = finish(planned, Answer(result=[], warnings=["careful"]))

    assert (output.exit, output.stdout) == (0, b"")
    assert output.stderr == b"icctl: state list: warning: careful\n"


def test_a_verbose_command_shows_what_happened(ic):
    output = ic("state", "get", "k", "s", "--verbose")

    assert output.exit == 1
    told = output.stderr.decode().splitlines()
    assert told[0].startswith("icctl: lock: waited ")
    assert any(line.startswith("icctl: sql: SELECT ") for line in told)
    assert told[-1].startswith("icctl: time: ")


def test_a_session_whose_name_is_no_text_can_write(ic):
    """The environment is bytes; both hosts decode it with surrogates."""
    output = ic("state", "set", "k", "s", "--value", "1", env={"CLAUDE_SESSION_ID": "a\udcff"})

    assert b"internal error" not in output.stderr
