"""What may happen to a run, and that it is recorded."""

import msgspec
import pytest

from icd.errors import PhaseRefused, RunNotFound, RunOver, UnknownPhase
from icd.features.events import store as events
from icd.features.runs import history as histories
from icd.features.runs import phases, transitions
from icd.features.runs import store as runs
from icd.values.processes import Writer
from tests.conftest import NOW_MS

ME = Writer(7, "me")
LATER = NOW_MS + 5000


@pytest.fixture
def advance(conn):
    def advanced(run, **options):
        return transitions.advance(conn, run.id, actor=ME, now_ms=LATER, **options)

    return advanced


@pytest.fixture
def told(conn):
    """The events of a run: what, from where, to where, why."""

    def found(run):
        return [
            (event.type, event.from_state, event.to_state, event.reason)
            for event in events.read(conn, limit=100, run_id=run.id)
        ]

    return found


@pytest.fixture
def own(create):
    """A run with phases that no gate is about."""
    return create(chain=("a", "b", "c", "d"))


def status(conn, run):
    found = runs.require(conn, run.id)
    return found.status, found.phase


def add_artifact(conn, run, phase):
    conn.execute(
        "INSERT INTO run_artifacts (id, run_id, phase, path, type, status, created_at) "
        "VALUES (hex(randomblob(4)), ?, ?, 'f', 'file', 'active', 0)",
        (run.id, phase),
    )


def test_an_advance_goes_to_the_next_phase_and_is_recorded_with_who_did_it(conn, own, advance):
    found = advance(own)

    assert (found.advanced, found.event_type) == (True, "advance")
    assert (found.from_phase, found.to_phase) == ("a", "b")
    assert (found.gate_result, found.gate_tier, found.reason) == ("pass", "soft", "")
    (event,) = events.read(conn, limit=9, run_id=own.id)
    assert (event.source, event.session, event.pid, event.at_ms) == ("phase", "me", 7, LATER)
    assert bytes(event.payload) == b'{"gate_result":"pass","gate_tier":"soft"}'


def test_every_transition_is_a_sign_of_life(conn, own, advance):
    advance(own)

    assert runs.require(conn, own.id).updated_ms == LATER


def test_the_last_phase_completes_a_run(conn, own, advance):
    for _ in range(3):
        advance(own)

    found = runs.require(conn, own.id)
    assert (found.status, found.phase, found.completed_at) == ("completed", "d", LATER // 1000)


def test_a_completed_run_does_not_advance(conn, own, advance, told):
    for _ in range(3):
        advance(own)

    with pytest.raises(RunOver, match="terminal status"):
        advance(own)

    assert len(told(own)) == 3


def test_an_active_run_in_its_last_phase_is_told_so(conn, own, advance):
    """The original left such runs behind."""
    conn.execute("UPDATE runs SET phase = 'd' WHERE id = ?", (own.id,))

    with pytest.raises(RunOver, match="terminal phase"):
        advance(own)


def test_skipped_phases_are_passed_over(conn, own, advance, told):
    transitions.skip(conn, own.id, "b", reason="r", actor=ME, now_ms=LATER)
    transitions.skip(conn, own.id, "c", reason="r", actor=ME, now_ms=LATER)

    found = advance(own)

    assert (found.from_phase, found.to_phase) == ("a", "d")
    assert status(conn, own) == ("completed", "d")
    assert [event[:3] for event in told(own)] == [
        ("skip", "a", "b"),
        ("skip", "a", "c"),
        ("advance", "a", "d"),
    ]


@pytest.mark.parametrize(
    ("phase", "why"),
    [("a", "not ahead"), ("b", "not ahead"), ("d", "last one"), ("x", "not in the chain")],
)
def test_only_phases_ahead_but_the_last_are_skipped(conn, own, told, phase, why):
    transitions.advance(conn, own.id, actor=ME, now_ms=LATER)

    with pytest.raises(PhaseRefused, match=why):
        transitions.skip(conn, own.id, phase, reason="r", actor=ME, now_ms=LATER)

    assert [event[0] for event in told(own)] == ["advance"]
    assert runs.skipped(conn, own.id) == set()


def test_a_phase_that_is_skipped_twice_is_skipped_with_the_last_reason(conn, own):
    for reason in ("one", "two"):
        transitions.skip(conn, own.id, "b", reason=reason, actor=ME, now_ms=LATER)

    assert conn.execute("SELECT reason FROM run_skips").fetchall() == [("two",)]


def test_a_hard_gate_blocks_and_that_is_recorded(conn, create, advance, told):
    run = create()

    found = advance(run, priority=1)

    assert (found.advanced, found.event_type) == (False, "block")
    assert (found.gate_result, found.gate_tier) == ("fail", "hard")
    assert status(conn, run) == ("active", "brainstorm")
    assert [event[:3] for event in told(run)] == [("block", "brainstorm", "brainstorm-reviewed")]
    assert "no artifacts found" in told(run)[0][3]
    assert runs.require(conn, run.id).updated_ms == LATER


def test_a_soft_gate_lets_pass_and_says_so(conn, create, advance):
    run = create()

    found = advance(run)

    assert (found.advanced, found.gate_result, found.gate_tier) == (True, "fail", "soft")


@pytest.mark.sqlite_only
def test_what_a_gate_asks_for_opens_it(conn, create, advance):
    run = create()
    add_artifact(conn, run, "brainstorm")

    found = advance(run, priority=0, skip_reason="because")

    assert (found.advanced, found.gate_result) == (True, "pass")
    assert found.reason.startswith('because | {"conditions":[')


@pytest.mark.parametrize("options", [{"priority": 4}, {"priority": 0, "disable_gates": True}])
def test_gates_that_are_off_say_nothing(create, advance, options):
    found = advance(create(), **options)

    assert (found.advanced, found.gate_result, found.gate_tier, found.reason) == (
        True,
        "none",
        "none",
        "",
    )


def test_a_skip_does_not_open_a_hard_gate(conn, create, advance, told):
    """In the original no rule matched a transition that passed over a phase."""
    run = create()
    conn.execute("UPDATE runs SET phase = 'review' WHERE id = ?", (run.id,))
    transitions.skip(conn, run.id, "polish", reason="r", actor=ME, now_ms=LATER)

    found = advance(run, priority=0)

    assert (found.advanced, found.event_type, found.to_phase) == (False, "block", "reflect")
    assert status(conn, run) == ("active", "review")


def test_without_auto_advance_a_run_pauses_unless_there_is_a_reason(conn, own, advance, told):
    transitions.configure(conn, own.id, auto_advance=False, actor=ME, now_ms=LATER)

    paused = advance(own)
    went_on = advance(own, skip_reason="approved")

    assert (paused.advanced, paused.event_type, paused.to_phase) == (False, "pause", "b")
    assert (paused.gate_result, paused.gate_tier) == ("none", "none")
    assert paused.reason == "auto_advance disabled"
    assert (went_on.advanced, went_on.reason) == (True, "approved")
    assert [event[0] for event in told(own)] == ["set", "pause", "advance"]


@pytest.mark.parametrize("auto_spawn", [True, False])
def test_agents_start_only_on_a_real_advance_into_executing_of_a_run_that_wants_it(
    conn, create, advance, auto_spawn
):
    run = create(auto_spawn=auto_spawn)
    conn.execute("UPDATE runs SET phase = 'planned' WHERE id = ?", (run.id,))

    blocked = advance(run, priority=0)
    conn.execute("UPDATE runs SET auto_advance = 0")
    paused = advance(run)
    entered = advance(run, skip_reason="r")
    left = advance(run, skip_reason="r")

    assert (blocked.event_type, paused.event_type) == ("block", "pause")
    assert (entered.to_phase, entered.spawns) == ("executing", auto_spawn)
    assert [found.spawns for found in (blocked, paused, left)] == [False] * 3


def test_an_advance_from_another_phase_changes_and_records_nothing(conn, own, advance, told):
    advance(own)
    before = runs.require(conn, own.id)

    late = transitions.advance(conn, own.id, if_phase="a", actor=Writer(), now_ms=LATER + 9)

    assert (late.advanced, late.event_type, late.from_phase) == (False, "stale", "b")
    assert late.reason == (
        "the run is in b, not in a: advance from a to b at 2027-01-15T08:00:05Z "
        "by session me, pid 7"
    )
    assert runs.require(conn, own.id) == before
    assert len(told(own)) == 1


def test_what_the_log_no_longer_knows_is_not_told(conn, own, advance):
    advance(own)
    conn.execute("DELETE FROM events")

    assert advance(own, if_phase="a").reason == "the run is in b, not in a"


def test_an_advance_from_the_phase_that_it_is_in_goes_on(conn, own, advance):
    assert advance(own, if_phase="a").to_phase == "b"


def test_a_phase_that_the_run_never_has_is_no_condition(conn, own, advance):
    with pytest.raises(PhaseRefused, match="not in the chain"):
        advance(own, if_phase="planned")


def test_an_override_goes_to_the_very_next_phase_whatever_is_in_the_way(conn, create, told):
    run = create()
    transitions.skip(conn, run.id, "brainstorm-reviewed", reason="r", actor=ME, now_ms=LATER)

    found = transitions.override(conn, run.id, "because", actor=ME, now_ms=LATER)

    assert (found.from_phase, found.to_phase) == ("brainstorm", "brainstorm-reviewed")
    assert (found.gate_result, found.gate_tier, found.reason) == ("fail", "hard", "because")
    assert told(run)[-1] == ("override", "brainstorm", "brainstorm-reviewed", "because")
    assert status(conn, run) == ("active", "brainstorm-reviewed")


def test_an_override_into_the_last_phase_completes_the_run(conn, create):
    run = create(chain=("a", "b"))

    transitions.override(conn, run.id, "r", actor=ME, now_ms=LATER)

    assert status(conn, run) == ("completed", "b")


@pytest.mark.parametrize("end", ["cancel", "abandon"])
def test_a_run_ends_once_and_stays_so(conn, own, advance, told, end):
    getattr(transitions, end)(conn, own.id, actor=ME, now_ms=LATER)
    ended = runs.require(conn, own.id)

    for refused in (
        lambda: transitions.cancel(conn, own.id, actor=ME, now_ms=LATER),
        lambda: transitions.abandon(conn, own.id, actor=ME, now_ms=LATER),
        lambda: advance(own),
        lambda: transitions.override(conn, own.id, "r", actor=ME, now_ms=LATER),
        lambda: transitions.skip(conn, own.id, "b", reason="r", actor=ME, now_ms=LATER),
        lambda: transitions.configure(conn, own.id, complexity=1, actor=ME, now_ms=LATER),
    ):
        with pytest.raises(RunOver):
            refused()

    assert runs.require(conn, own.id) == ended
    assert ended.completed_at == LATER // 1000
    assert [event[:3] for event in told(own)] == [(end, "a", "a")]


def test_settings_that_were_not_given_stay_as_they_are(conn, create, told):
    run = create(complexity=4)

    transitions.configure(conn, run.id, auto_advance=False, force_full=True, actor=ME, now_ms=LATER)

    found = runs.require(conn, run.id)
    assert (found.complexity, found.auto_advance, found.force_full) == (4, False, True)
    assert told(run) == [("set", "brainstorm", "brainstorm", "auto_advance=false, force_full=true")]


@pytest.mark.parametrize("change", [{"phase": "b"}, {"status": "cancelled"}])
def test_a_run_that_changed_since_it_was_read_is_not_moved(conn, own, change):
    (name, value), *_ = change.items()
    conn.execute(f"UPDATE runs SET {name} = ?", (value,))

    with pytest.raises(PhaseRefused, match="changed by another call"):
        transitions.move(conn, own, "c", now_ms=LATER)

    assert getattr(runs.require(conn, own.id), name) == value


def test_nobody_moves_a_run_that_does_not_exist(conn):
    with pytest.raises(RunNotFound):
        transitions.advance(conn, "nobody", actor=ME, now_ms=LATER)


@pytest.mark.parametrize(("column", "value"), [("phase", "x"), ("phases", "nonsense")])
def test_a_row_that_makes_no_sense_is_named_not_moved(conn, own, advance, column, value):
    conn.execute(f"UPDATE runs SET {column} = ?", (value,))

    with pytest.raises(UnknownPhase):
        advance(own)


@pytest.mark.sqlite_only
def test_every_status_of_the_database_has_its_row_in_the_table(conn):
    (schema,) = conn.execute("SELECT sql FROM sqlite_schema WHERE name = 'runs'").fetchone()

    assert all(f"'{status}'" in schema for status in transitions.MAY)
    assert schema.split("status IN (")[1].split(")")[0].count(",") + 1 == len(transitions.MAY)


def test_the_history_of_a_run_is_told_in_the_words_of_the_original(conn, own, advance):
    advance(own)
    transitions.cancel(conn, own.id, actor=ME, now_ms=LATER)

    first, second = histories.of_run(conn, own.id)

    assert msgspec.to_builtins(first) == {
        "id": 1,
        "run_id": own.id,
        "from_phase": "a",
        "to_phase": "b",
        "event_type": "advance",
        "gate_result": "pass",
        "gate_tier": "soft",
        "created_at": LATER // 1000,
        "created_at_iso": "2027-01-15T08:00:05Z",
        "session": "me",
        "pid": 7,
    }
    assert (second.event_type, second.gate_result, second.reason) == ("cancel", None, None)


def test_the_history_leaves_other_sources_out_and_reads_strange_payloads(conn, own):
    for source, payload in (("ci", None), ("phase", "[7]"), ("phase", '{"gate_result":7}')):
        fact = events.Fact(source, "odd", run_id=own.id, payload=payload)
        events.append(conn, fact, actor=ME, now_ms=LATER)

    found = histories.of_run(conn, own.id)

    assert [(event.event_type, event.gate_result) for event in found] == [("odd", None)] * 2
    assert histories.of_run(conn, "") == []


def test_a_long_history_ends_at_the_limit(conn, own, monkeypatch):
    monkeypatch.setattr(histories, "MOST", 5)
    monkeypatch.setattr(events, "BATCH_CHARACTERS", 2)
    for number in range(8):
        fact = events.Fact("phase", "odd", run_id=own.id, reason=str(number))
        events.append(conn, fact, actor=ME, now_ms=LATER)

    assert [event.reason for event in histories.of_run(conn, own.id)] == list("01234")


def test_the_default_chain_is_walked_from_end_to_end(conn, create, advance):
    run = create()

    walked = [advance(run, priority=4).to_phase for _ in phases.DEFAULT[1:]]

    assert walked == list(phases.DEFAULT[1:])
    assert status(conn, run) == ("completed", "done")
