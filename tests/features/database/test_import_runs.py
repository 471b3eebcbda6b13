"""Runs and what belongs to them, from another database."""

import msgspec
import pytest
from msgspec import structs

from icd.errors import InvalidName, InvalidPayload, UnreadableInput
from icd.features.runs import store as runs
from icd.values import processes
from tests.support import lines as support
from tests.support.lines import decoded
from tests.support.run_lines import AGENT, ALL, ARTIFACT, DISPATCH, NOW, RUN, SKIP

pytestmark = pytest.mark.sqlite_only  # tables are compared with all their columns

LATER = NOW + 5000


def take(conn, *lines):
    """Whether each was written, as one file of a later moment."""
    return support.take(conn, *lines, now_ms=LATER)


def rows(conn, table):
    found = conn.execute(f"SELECT * FROM {table} ORDER BY 1, 2")
    return found.fetchall()


def row(line, **changes):
    return structs.astuple(structs.replace(line, **changes))


def test_everything_about_a_run_is_taken_in_as_it_was(conn):
    assert take(conn, *ALL) == [True] * len(ALL)

    for line in ALL:
        assert rows(conn, line.__struct_config__.tag) == [row(line)]


def test_a_second_time_changes_nothing(conn):
    take(conn, *ALL)
    before = conn.total_changes

    assert take(conn, *ALL) == [False] * len(ALL)
    assert conn.total_changes == before


# --- runs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("later, written", [(-1, False), (0, False), (1, True)])
def test_of_two_runs_the_later_sign_of_life_stays(conn, later, written):
    take(conn, *ALL)
    theirs = structs.replace(RUN, updated_ms=NOW + later, status="completed", phase="done")

    assert take(conn, theirs) == [written]
    assert runs.require(conn, "run1").status == ("completed" if written else "active")
    assert rows(conn, "run_agents") == [row(AGENT)]


def test_phases_that_are_passed_over_come_with_the_run(conn):
    take(conn, RUN, SKIP)
    later = structs.replace(RUN, updated_ms=NOW + 1)

    take(conn, later, structs.replace(SKIP, phase="polish"))

    assert rows(conn, "run_skips") == [row(SKIP, phase="polish")]


@pytest.mark.parametrize("earlier", [0, 1])
def test_a_skip_that_was_taken_back_here_does_not_return(conn, earlier):
    """A rollback forgets the skips of the phases that it goes back over."""
    take(conn, RUN)

    assert take(conn, structs.replace(RUN, updated_ms=NOW - earlier), SKIP) == [False, False]
    assert rows(conn, "run_skips") == []


def test_an_active_run_whose_claim_is_held_here_is_taken_in_as_abandoned(conn):
    take(conn, RUN)
    theirs = structs.replace(RUN, id="run2", updated_ms=NOW + 9)

    taken = [take(conn, theirs), take(conn, theirs)]

    assert taken == [[True], [False]]
    assert rows(conn, "runs") == [
        row(RUN), row(theirs, status="abandoned", completed_at=LATER // 1000),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [
        {"project_dir": "/q"},
        {"scope_id": "bead-2"},
        {"scope_id": None},
        {"status": "completed"},
    ],
)
def test_a_run_that_claims_something_else_stays_as_it_is(conn, changes):
    take(conn, RUN)
    theirs = structs.replace(RUN, id="run2", **changes)

    take(conn, theirs)

    assert rows(conn, "runs") == [row(RUN), row(theirs)]


def test_a_claim_of_a_run_that_has_ended_here_is_free(conn):
    take(conn, structs.replace(RUN, status="cancelled"))

    take(conn, structs.replace(RUN, id="run2"))

    assert runs.meant(conn, "bead-1").id == "run2"


def test_a_run_keeps_its_own_claim_when_it_is_replaced(conn):
    take(conn, RUN)

    take(conn, structs.replace(RUN, goal="more", updated_ms=NOW + 1))

    found = runs.require(conn, "run1")
    assert (found.goal, found.status) == ("more", "active")


def test_runs_without_a_scope_limit_nobody(conn):
    lines = [structs.replace(RUN, id=name, scope_id=None) for name in ("a", "b")]

    take(conn, *lines)

    assert [found[3] for found in rows(conn, "runs")] == ["active", "active"]


# --- parts ----------------------------------------------------------------------------------


@pytest.mark.parametrize("later, status", [(-1, "active"), (0, "active"), (1, "failed")])
def test_of_two_agents_the_later_change_stays(conn, later, status):
    take(conn, RUN, AGENT)

    take(conn, structs.replace(AGENT, status="failed", updated_at=NOW // 1000 + later))

    assert rows(conn, "run_agents")[0][4] == status


@pytest.mark.parametrize("here, there", [("active", "rolled_back"), ("rolled_back", "active")])
def test_of_two_artifacts_the_one_that_was_rolled_back_stays(conn, here, there):
    take(conn, RUN, structs.replace(ARTIFACT, status=here))

    written = take(conn, structs.replace(ARTIFACT, status=there, path="else"))

    assert written == [there == "rolled_back"]
    assert rows(conn, "run_artifacts") == [row(ARTIFACT, status="rolled_back")]


@pytest.mark.parametrize("line", [SKIP, AGENT, ARTIFACT])
def test_what_belongs_to_a_run_that_is_not_there_is_refused(conn, line):
    with pytest.raises(UnreadableInput, match="there is no run 'run1' before it"):
        take(conn, line)


@pytest.mark.parametrize("version, status", [(1, "running"), (2, "running"), (3, "completed")])
def test_of_two_dispatches_the_one_that_changed_more_often_stays(conn, version, status):
    take(conn, DISPATCH)

    take(conn, structs.replace(DISPATCH, version=version, status="completed"))

    assert rows(conn, "dispatches")[0][5] == status


def test_a_dispatch_of_another_boot_stays_as_it_is_and_is_found_dead(conn):
    take(conn, DISPATCH)

    status, *process = conn.execute(
        "SELECT status, pid, pid_start, boot FROM dispatches"
    ).fetchone()
    assert status == "running"
    assert processes.liveness(processes.Process(*process)) == "dead"


# --- hostile files --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        structs.replace(RUN, id=""),
        structs.replace(RUN, id="a\tb"),
        structs.replace(RUN, phase=""),
        structs.replace(RUN, scope_id="a\nb"),
        structs.replace(RUN, scope_id="x" * 5000),
        structs.replace(SKIP, phase="a\nb"),
        structs.replace(AGENT, id=""),
        structs.replace(ARTIFACT, id="a\0b"),
        structs.replace(DISPATCH, id=""),
        structs.replace(DISPATCH, scope_id="a\x7fb"),
    ],
)
def test_a_name_that_nobody_could_have_given_is_refused(conn, line):
    take(conn, RUN)

    with pytest.raises(InvalidName):
        take(conn, line)


@pytest.mark.parametrize("chain", ["", "{", "[]", '["a"]', '["a","a"]', '["a b","c"]', "[1,2]"])
def test_a_chain_that_no_run_could_have_been_created_with_is_refused(conn, chain):
    with pytest.raises(UnreadableInput, match="parse phase chain: "):
        take(conn, structs.replace(RUN, phases=chain))


def test_rules_that_no_run_could_have_been_created_with_are_refused(conn):
    with pytest.raises(UnreadableInput, match="gate rules: not a JSON array"):
        take(conn, structs.replace(RUN, gates="{}"))


def test_actions_that_are_not_json_are_refused(conn):
    with pytest.raises(InvalidPayload):
        take(conn, structs.replace(RUN, actions="{bad"))


def test_the_largest_numbers_that_can_be_given_come_back(conn):
    largest = 2**63 - 1
    run = structs.replace(RUN, token_budget=largest)
    dispatch = structs.replace(
        DISPATCH, turns=largest, input_tokens=largest, output_tokens=largest, cache_hits=largest
    )

    for line in (run, dispatch):
        read = decoded(msgspec.json.encode(line))
        take(conn, read)

    assert rows(conn, "runs") == [row(run)]
    assert rows(conn, "dispatches") == [row(dispatch)]


WRONG = [
    (RUN, {"status": "paused"}, {"complexity": 0}, {"complexity": 6}, {"force_full": 2},
     {"token_budget": 0}, {"token_budget": -1}, {"budget_warn_pct": 100}, {"budget_told": -1},
     {"project_dir": "here"}, {"project_dir": "/a\0b"}, {"project_dir": ""}, {"owner_pid": -1},
     {"created_at": -1}, {"updated_ms": 2**63 - 1}, {"goal": None}, {"goal": 1}, {"extra": 1}),
    (SKIP, {"created_at": -1}, {"reason": None}),
    (AGENT, {"status": "cancelled"}, {"updated_at": -1}, {"run_id": None}),
    (ARTIFACT, {"status": ""}, {"created_at": 1.5}, {"path": None}),
    (DISPATCH, {"status": "lost"}, {"turns": -1}, {"input_tokens": -1}, {"cache_hits": -1},
     {"timeout_ms": -1}, {"pid": -1}, {"pid_start": -1}, {"exit_code": 2**63}, {"version": -1},
     {"project_dir": "."}, {"created_ms": -1}, {"completed_at": 2**62}),
]  # fmt: skip


@pytest.mark.parametrize(
    "line, change",
    [pytest.param(line, c, id=f"{type(line).__name__} {c}") for line, *all_ in WRONG for c in all_],
)
def test_a_value_that_no_column_can_have_is_no_line(line, change):
    written = msgspec.json.decode(msgspec.json.encode(line))

    with pytest.raises(msgspec.ValidationError):
        decoded(msgspec.json.encode(written | change))

    assert decoded(msgspec.json.encode(written)) == line
