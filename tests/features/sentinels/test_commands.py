"""`icctl sentinel …`: what is printed, and the exit codes that scripts rely on."""

import json

import pytest

from icd.app.invocation import Output
from icd.features.sentinels.verbs import MANY

ALLOWED, THROTTLED = Output(0, b"allowed\n"), Output(1, b"throttled\n")


@pytest.mark.parametrize("form", [["--interval=5"], ["--interval", "5"]])
def test_check_prints_its_verdict_and_exits_with_it(ic, form):
    assert [ic("sentinel", "check", "n", "s", *form) for _ in range(2)] == [ALLOWED, THROTTLED]


def test_check_is_allowed_again_after_its_interval(ic, clock):
    ic("sentinel", "check", "n", "s", "--interval=5")
    clock.wall_ms += 5000

    assert ic("sentinel", "check", "n", "s", "--interval=5") == ALLOWED


def test_check_with_interval_0_is_allowed_once(ic, clock):
    ic("sentinel", "check", "n", "s", "--interval=0")
    clock.wall_ms *= 2

    assert ic("sentinel", "check", "n", "s", "--interval=0") == THROTTLED


def test_check_with_the_same_request_id_is_told_the_same(ic):
    verdicts = [
        ic("sentinel", "check", "n", "s", "--interval=5", request_id="r1") for _ in range(2)
    ]

    assert verdicts == [ALLOWED, ALLOWED]


def test_check_warns_of_a_shared_scope_on_stderr_only(ic):
    output = ic("sentinel", "check", "n", "", "--interval=5")

    assert (output.exit, output.stdout) == (0, b"allowed\n")
    assert output.stderr.startswith(b"icctl: sentinel check: warning: the scope of sentinel n is")


def test_check_as_json_keeps_its_exit_code(ic):
    ic("sentinel", "check", "n", "s", "--interval=5")

    output = ic("sentinel", "check", "n", "s", "--interval=5", "--json")

    assert output.exit == 1
    found = json.loads(output.stdout)
    assert list(found) == sorted(found)
    assert (found["allowed"], found["retry_after"]) == (False, 5)


@pytest.mark.parametrize("name", ["", "a\tb", "a\nb"])
def test_a_bad_name_exits_with_2(ic, name):
    output = ic("sentinel", "check", name, "s", "--interval=5")

    assert (output.exit, output.stdout) == (2, b"")
    assert output.stderr.count(b"\n") == 1


def test_check_many_prints_a_verdict_per_line(ic):
    ic("sentinel", "check", "b", "s", "--interval=0")

    output = ic("sentinel", "check-many", "a:s:0", "b:s:0", "c:x:y:5")

    assert output == Output(1, b"a\ts\tallowed\nb\ts\tthrottled\nc\tx:y\tallowed\n")


def test_check_many_exits_with_0_when_all_are_allowed(ic):
    assert ic("sentinel", "check-many", "a:s:0", "b::5").exit == 0


def test_check_many_as_json_is_a_list_with_the_same_exit_code(ic):
    output = ic("sentinel", "check-many", "a:s:5", "a:s:5", "--json")

    assert output.exit == 1
    assert [verdict["allowed"] for verdict in json.loads(output.stdout)] == [True, False]


def test_check_many_takes_a_bounded_number(ic):
    guards = [f"n:{number}:5" for number in range(MANY + 1)]

    assert ic("sentinel", "check-many", *guards[:-1]).exit == 0
    assert ic("sentinel", "check-many", *guards).exit == 3


@pytest.mark.parametrize("guard", ["a", "a:b", "a:b:", "a:b:x", "a:b:-1", "a:b:1.5"])
def test_a_guard_that_is_none_is_a_mistake(ic, guard):
    assert ic("sentinel", "check-many", "ok:s:0", guard).exit == 3


def test_reset_says_whether_there_was_something(ic):
    ic("sentinel", "check", "n", "s", "--interval=0")

    assert [ic("sentinel", "reset", "n", "s") for _ in range(2)] == [
        Output(0, b"reset\n"),
        Output(0, b"not found\n"),
    ]
    assert ic("sentinel", "check", "n", "s", "--interval=0") == ALLOWED


def test_reset_of_all_scopes_counts(ic, stdout):
    for scope in ("a", "b"):
        ic("sentinel", "check", "n", scope, "--interval=0")

    assert stdout("sentinel", "reset", "--all", "n") == "2 reset\n"


def test_list_prints_name_scope_and_second_sorted(ic, stdout, clock):
    clock.wall_ms = 1_800_000_000_999
    for name, scope in [("b", "x"), ("a", "y"), ("a", "x")]:
        ic("sentinel", "check", name, scope, "--interval=5")

    assert stdout("sentinel", "list") == ("a\tx\t1800000000\na\ty\t1800000000\nb\tx\t1800000000\n")


def test_list_of_nothing_prints_nothing(stdout):
    assert stdout("sentinel", "list") == ""
    assert stdout("sentinel", "list", "--json") == "[]\n"


@pytest.mark.parametrize("form", [["--older-than=1h"], ["--older-than", "60m"]])
def test_prune_counts_what_fired_at_least_that_long_ago(ic, stdout, clock, form):
    ic("sentinel", "check", "n", "s", "--interval=5")
    clock.wall_ms += 3_600_000

    assert stdout("sentinel", "prune", *form) == "1 pruned\n"


def test_prune_of_everything(ic, stdout):
    ic("sentinel", "check", "n", "s", "--interval=0")

    assert stdout("sentinel", "prune", "--older-than=0s", "--keep-once") == "0 pruned\n"
    assert stdout("sentinel", "prune", "--older-than=0s") == "1 pruned\n"


@pytest.mark.parametrize(
    "argv, expected",
    [
        (["sentinel", "reset", "n", "s"], {"reset": 0}),
        (["sentinel", "reset", "--all", "n"], {"reset": 0}),
        (["sentinel", "prune", "--older-than=1h"], {"pruned": 0}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_every_verb_can_answer_as_json(stdout, argv, expected):
    assert json.loads(stdout(*argv, "--json")) == expected


@pytest.mark.parametrize("interval", ["3600s", "1h", "60m", "3600"])
def test_an_interval_is_seconds_or_a_duration(invoke, interval):
    one = invoke("sentinel", "check", "discovery-decay", "global", f"--interval={interval}")
    many = invoke("sentinel", "check-many", f"discovery-decay:global:{interval}")

    assert one.call.params.interval == 3600
    assert many.call.params.guards[0].interval == 3600
