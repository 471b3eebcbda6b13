"""`icctl lease …`: what is printed, and the exit codes that scripts rely on."""

import json

import pytest

from icd.app.invocation import Output

ALICE, BOB = ({"env": {"CLAUDE_SESSION_ID": name}} for name in ("alice", "bob"))
CLAIM = ("lease", "acquire", "sprint", "b", "--ttl=1m")


def test_acquire_prints_the_token(ic):
    assert ic(*CLAIM, **ALICE) == Output(0, b"1\n")
    assert ic(*CLAIM, **ALICE) == Output(0, b"1\n")


def test_acquire_of_what_is_taken_exits_with_1_and_says_who_how_long_and_which(ic):
    ic(*CLAIM, **ALICE)

    output = ic(*CLAIM, **BOB)

    assert (output.exit, output.stdout) == (1, b"")
    assert output.stderr == (
        b"icctl: lease acquire: sprint b is held by alice for another 60s (token 1); "
        b"wait until it expires, or ask its owner to release it\n"
    )


def test_an_owner_that_is_given_goes_before_the_session(ic, stdout):
    ic(*CLAIM, "--owner=bob", **ALICE)

    assert stdout("lease", "list") == "sprint\tb\tbob\t1\t1800000060\n"


@pytest.mark.parametrize("env", [{}, {"CLAUDE_SESSION_ID": ""}])
@pytest.mark.parametrize("verb", [["acquire", "--ttl=1m"], ["renew"], ["release"]])
def test_without_session_and_owner_it_is_a_mistake(ic, env, verb):
    output = ic("lease", verb[0], "n", "s", *verb[1:], env=env)

    assert (output.exit, output.stdout) == (3, b"")
    assert output.stderr.endswith(b"pass --owner, or set INTERCORE_SESSION\n")


def test_a_session_that_is_not_text_can_hold_a_lease(ic, stdout):
    ic(*CLAIM, env={"CLAUDE_SESSION_ID": b"a\xff".decode("utf-8", "surrogateescape")})

    assert stdout("lease", "list").split("\t")[2] == r"a\udcff"


def test_acquire_as_json_is_an_object(ic):
    output = ic(*CLAIM, "--json", **ALICE)

    found = json.loads(output.stdout)
    assert list(found) == sorted(found)
    assert (found["token"], found["owner"], found["change"]) == (1, "alice", "acquired")
    assert (found["ttl_ms"], found["expires_at_iso"]) == (60_000, "2027-01-15T08:01:00Z")


def test_renew_prints_the_token_and_exits_with_1_when_it_is_lost(ic, clock):
    ic(*CLAIM, **ALICE)

    assert ic("lease", "renew", "sprint", "b", "--token=1", **ALICE) == Output(0, b"1\n")
    clock.wall_ms += 60_000
    lost = ic("lease", "renew", "sprint", "b", **ALICE)
    assert (lost.exit, lost.stdout) == (1, b"")
    assert b"sprint b (token 1) expired 0ms ago; stop the work" in lost.stderr


def test_renew_for_another_time(ic, stdout):
    ic(*CLAIM, **ALICE)

    ic("lease", "renew", "sprint", "b", "--ttl=1h", **ALICE)

    assert stdout("lease", "list", "sprint").endswith("\t1800003600\n")


def test_release_says_whether_it_was_held(ic):
    ic(*CLAIM, **ALICE)

    outputs = [ic("lease", "release", "sprint", "b", **ALICE) for _ in range(2)]

    assert outputs == [Output(0, b"released\n"), Output(0, b"not held\n")]


def test_release_of_what_another_holds_exits_with_1(ic):
    ic(*CLAIM, **ALICE)

    output = ic("lease", "release", "sprint", "b", **BOB)

    assert (output.exit, output.stdout) == (1, b"")
    assert b"sprint b (token 1) is held by alice" in output.stderr


@pytest.mark.parametrize(
    ("argv", "exit_code"),
    [
        (("acquire", "n", "s"), 3),
        (("acquire", "n", "--ttl=1m"), 3),
        (("acquire", "n", "s", "--ttl=soon"), 3),
        (("acquire", "n", "s", "--ttl=0"), 2),
        (("acquire", "n", "s", "--ttl=367d"), 2),
        (("acquire", "n", "s", "--ttl=1m", "--owner="), 2),
        (("renew", "n", "s", "--token=0"), 3),
        (("release", "n", "s", "--token=x"), 3),
    ],
)
def test_mistakes_are_told_apart_from_refusals(ic, argv, exit_code):
    assert ic("lease", *argv, **ALICE).exit == exit_code


@pytest.mark.parametrize(
    ("argv", "expected"),
    [(("release", "n", "s"), {"released": False}), (("list",), []), (("list", "n", "s"), [])],
)
def test_every_verb_can_answer_as_json(ic, argv, expected):
    output = ic("lease", *argv, "--json", **ALICE)

    assert (output.exit, json.loads(output.stdout)) == (0, expected)
