"""`icctl coordination …`: what is printed, and the exit codes that scripts rely on."""

import json
import time

import pytest

from icd.app.call import Answer
from icd.app.invocation import Output
from icd.app.planner import finish
from icd.features.coordination.forms import Outcome
from tests.support.processes import until

ANN, BOB = ({"env": {"CLAUDE_SESSION_ID": name}} for name in ("ann", "bob"))


@pytest.fixture
def reserve(ic):
    def reserved(*words, **who):
        return ic("coordination", "reserve", *words, **(who or ANN))

    return reserved


def test_reserve_prints_the_id_and_json_has_the_lock(reserve):
    plain = reserve("--pattern=src/*", "--ttl=900", "--reason=refactoring")
    again = json.loads(reserve("--pattern=src/*", "--ttl=900", "--json").stdout)["lock"]

    assert plain == Output(0, f"{again['id']}\n".encode())
    assert (again["owner"], again["scope"], again["pattern"]) == ("ann", ".", "src/*")
    assert (again["ttl_seconds"], again["expires_at"]) == (900, 1_800_000_900)
    assert (again["exclusive"], again["reason"]) == (True, "refactoring")


def test_a_conflict_exits_with_1_and_names_owner_age_session_and_life(reserve):
    reserve("--pattern=src/**", "--owner=me", "--ttl=15m", "--reason=moving it")

    output = reserve("--path=src/a.py", "--json", **BOB)

    assert output.exit == 1
    assert json.loads(output.stdout)["conflict"] == {
        "blocker_id": json.loads(output.stdout)["conflict"]["blocker_id"],
        "blocker_owner": "me",
        "blocker_pattern": "src/**",
        "blocker_reason": "moving it",
        "blocker_exclusive": True,
        "blocker_age_seconds": 0,
        "blocker_alive": "unknown",
        "blocker_session": "ann",
        "blocker_expires_at": 1_800_000_900,
    }
    assert output.stderr == (
        b"icctl: coordination reserve: src/** is held exclusively by me (for 0s, session ann, "
        b"until 2027-01-15T08:15:00Z): moving it; wait for it with --wait, ask its owner to "
        b"release it, or work on something else\n"
    )


def test_who_has_waited_in_vain_is_not_told_to_wait(invoke):
    asked = invoke("coordination", "reserve", "--path=a", "--owner=o", "--wait=1ms")
    until(lambda: time.monotonic() >= asked.ends_at)

    output = finish(asked, Answer(result=Outcome(told="a is held")))

    assert output.exit == 1
    assert output.stderr.startswith(b"icctl: coordination reserve: a is held; ask its owner")


@pytest.mark.parametrize("word", ["--exclusive=false", "--exclusive=f"])
def test_those_who_share_go_together(reserve, word):
    assert reserve("--path=a", word).exit == 0
    assert reserve("--path=a", word, **BOB).exit == 0
    assert reserve("--path=a", "--exclusive", **BOB).exit == 1


def test_check_exits_with_1_if_anyone_holds_it_and_prints_an_array(ic, reserve):
    reserve("--pattern=*.md")

    free = ic("coordination", "check", "--pattern=a.py", "--json")
    held = ic("coordination", "check", "--path=a.md", "--json")
    own = ic("coordination", "check", "--path=a.md", "--exclude-owner=ann")

    assert free == Output(0, b"[]\n")
    assert (held.exit, [lock["owner"] for lock in json.loads(held.stdout)]) == (1, ["ann"])
    assert own == Output(0, b"")


def test_check_many_prints_those_that_are_held(ic, reserve):
    lock = reserve("--pattern=src/**").stdout.decode().strip()

    output = ic("coordination", "check-many", "README.md", "src/a.py")

    assert output == Output(1, f"src/a.py\tsrc/**\tann\t{lock}\n".encode())


def test_release_by_id_by_owner_and_by_path(ic, reserve):
    one = reserve("--path=a").stdout.decode().strip()
    reserve("--path=b")
    reserve("--path=c")

    assert ic("coordination", "release", one, "--json") == Output(0, b'{"released":1}\n')
    assert ic("coordination", "release", one) == Output(0, b"0 released\n")
    assert ic("coordination", "release", "--owner=ann", "--path=b") == Output(0, b"1 released\n")
    assert ic("coordination", "release", "--owner=ann") == Output(0, b"1 released\n")


def test_renew_of_what_has_ended_exits_with_1(ic, reserve):
    lock = reserve("--path=a", "--ttl=1h").stdout.decode().strip()

    assert ic("coordination", "renew", lock) == Output(0, b"1 renewed\n")
    ic("coordination", "release", lock)
    assert ic("coordination", "renew", lock).exit == 1


def test_what_a_session_holds_ends_with_the_session(ic, reserve):
    ic("session", "start", "--session=ann")
    reserve("--path=a")
    reserve("--path=b", "--scope=other")
    reserve("--path=c", **BOB)

    assert ic("session", "end", "--session=ann").exit == 0

    assert ic("coordination", "list").stdout.decode().split("\t")[1:5] == [
        "bob", "exclusive", ".", "c"
    ]  # fmt: skip
    told = ic("events", "tail", "--all", "--source=coordination").stdout.splitlines()
    assert [json.loads(line)["type"] for line in told][3:] == ["released", "released"]


def test_transfer_sweep_and_list(ic, reserve):
    lock = reserve("--path=a").stdout.decode().strip()

    moved = ic("coordination", "transfer", "--from=ann", "--to=bob", "--json")
    swept = ic("coordination", "sweep", "--dry-run", "--json")
    listed = ic("coordination", "list", "--active", "--owner=bob")

    assert moved == Output(0, b'{"transferred":1}\n')
    assert swept == Output(0, b'{"expired":0,"total":1}\n')
    assert listed == Output(0, f"{lock}\tbob\texclusive\t.\ta\t0\n".encode())


def test_the_projects_directory_is_the_scope_of_its_files(ic, reserve, project):
    reserve("--path=a", f"--scope={project}")

    assert ic("coordination", "check", "--pattern=a").exit == 1
    assert ic("coordination", "check", f"--pattern={project}/a", f"--scope={project}/").exit == 1
    assert ic("coordination", "check", "--pattern=a", "--scope=other").exit == 0


def test_a_named_lock_has_one_name_in_all_worktrees(ic, reserve, tmp_path):
    (tmp_path / "worktree" / ".git").mkdir(parents=True)
    there = f"--project={tmp_path / 'worktree'}"
    reserve("--pattern=deploy", "--type=named_lock")
    file = reserve("--pattern=deploy", "--owner=cy", there)

    assert file.exit == 0, "a file of the worktree is another thing"
    assert reserve("--pattern=deploy", "--type=named_lock", there, **BOB).exit == 1
    found = ic("coordination", "check", "--pattern=deploy", "--json", there)
    assert {each["owner"] for each in json.loads(found.stdout)} == {"ann", "cy"}

    words = ("release", "--owner=ann", "--pattern=deploy", there)
    assert ic("coordination", *words) == Output(0, b"1 released\n")


def test_several_paths_are_reserved_together_or_not_at_all(ic, reserve):
    both = ic("coordination", "reserve-many", "a", "b", "./a", "--ttl=1h", "--json", **ANN)
    refused = ic("coordination", "reserve-many", "c", "b", **BOB)
    ids = ic("coordination", "reserve-many", "c", "d/", **BOB)

    locks = json.loads(both.stdout)["locks"]
    assert [(lock["pattern"], lock["ttl_seconds"]) for lock in locks] == [("a", 3600), ("b", 3600)]
    assert (refused.exit, refused.stdout) == (1, b"")
    assert refused.stderr.startswith(
        b"icctl: coordination reserve-many: b is held exclusively by ann"
    )
    assert b"--wait" not in refused.stderr
    listed = ic("coordination", "list", "--owner=bob").stdout.decode()
    assert ids.stdout.decode().split() == [line.split()[0] for line in listed.splitlines()]
    assert [line.split()[4] for line in listed.splitlines()] == ["c", "d/**"]


def test_a_refusal_of_several_is_one_event_and_in_json(ic, reserve):
    reserve("--path=b")

    refused = ic("coordination", "reserve-many", "a", "b", "--json", **BOB)

    assert json.loads(refused.stdout)["conflict"]["blocker_owner"] == "ann"
    told = ic("events", "tail", "--all", "--source=coordination").stdout.splitlines()
    assert [json.loads(line)["type"] for line in told] == ["acquired", "conflict"]


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["reserve"], 3),
        (["reserve", "--path=a", "--pattern=b"], 3),
        (["reserve", "--pattern=[", "--owner=o"], 2),
        (["reserve", "--pattern=a", "--owner=o", "--ttl=0"], 2),
        (["reserve", "--pattern=a", "--owner=o", "--type=other"], 3),
        (["reserve", "--pattern=a", "--owner="], 2),
        (["reserve", "--pattern=" + "*a" * 200, "--owner=o"], 2),
        (["reserve-many", "a"], 3),
        (["reserve-many", "--owner=o"], 3),
        (["reserve-many", "a", "--owner="], 2),
        (["release"], 3),
        (["renew"], 3),
        (["check"], 3),
    ],
)
def test_mistakes_are_told(ic, words, status):
    output = ic("coordination", *words)

    assert (output.exit, output.stdout) == (status, b"")
    assert output.stderr.startswith(b"icctl: coordination ")
