"""Dispatches, from the row to its end."""

import pytest

from icd.errors import AgentTaken, DispatchNotFound, DispatchOver, DispatchRunning, RunNotFound
from icd.features.dispatches import store as dispatches
from icd.features.dispatches.store import NEXT, OUTCOMES, End
from icd.features.events import store as events
from icd.features.runs import store as runs
from icd.values.processes import Process, Writer

NOW_MS = 1_800_000_000_123
ME = Writer(pid=41, session="session-a")
AGENT = Process(4242, 77, "this-boot", "pid:[1]")
RUNNER = Process(4241, 76, "this-boot", "pid:[1]")


@pytest.fixture
def create(conn):
    def made(now_ms=NOW_MS, **given):
        known = {"agent_type": "codex", "project_dir": "/p", **given}
        return dispatches.create(conn, **known, actor=ME, now_ms=now_ms)

    return made


@pytest.fixture
def start(conn):
    def started(found, agent=AGENT, runner=RUNNER):
        return dispatches.start(
            conn, found.id, agent=agent, runner=runner, actor=ME, now_ms=NOW_MS + 1000
        )

    return started


@pytest.fixture
def running(create, start):
    return start(create())


@pytest.fixture
def end(conn):
    def ended(found, status="completed", now_ms=NOW_MS + 5000, **given):
        how = End(id=found.id, status=status, **given)
        return dispatches.end(conn, how, actor=ME, now_ms=now_ms)

    return ended


@pytest.fixture
def run(conn):
    """Insert a run, of which only the id and the scope matter here."""

    def made(run_id, *, scope_id=None, status="active", created_ms=NOW_MS):
        conn.execute(
            """
            INSERT INTO runs (id, project_dir, goal, status, phase, complexity, force_full,
                              auto_advance, auto_spawn, scope_id, budget_warn_pct, budget_told,
                              created_at, created_ms, updated_at, updated_ms)
            VALUES (?, '/p', 'g', ?, 'planned', 3, 0, 1, 0, ?, 80, 0, ?, ?, ?, ?)
            """,
            (run_id, status, scope_id, *([created_ms // 1000, created_ms] * 2)),
        )
        return runs.require(conn, run_id)

    return made


def changes(conn):
    """The status changes in the log: run, dispatch, from, to, reason."""
    found = events.read(conn, limit=1000, source="dispatch", type="status_change")
    return [(e.run_id, e.subject_id, e.from_state, e.to_state, e.reason) for e in found]


def test_a_dispatch_is_spawned_then_runs_then_ends_and_each_step_is_an_event(
    conn, create, start, end
):
    made = create(name="reviewer")
    running = start(made)
    ended, is_first = end(made, exit_code=0, verdict_status="pass", verdict_summary="fine")

    assert (made.status, running.status, ended.status) == ("spawned", "running", "completed")
    assert is_first
    assert (running.agent, running.runner) == (AGENT, RUNNER)
    assert (ended.exit_code, ended.verdict_status, ended.verdict_summary) == (0, "pass", "fine")
    assert ended.completed_at == (NOW_MS + 5000) // 1000
    assert (made.version, running.version, ended.version) == (1, 2, 3)
    assert changes(conn) == [
        ("", made.id, "", "spawned", ""),
        ("", made.id, "spawned", "running", ""),
        ("", made.id, "running", "completed", ""),
    ]


@pytest.mark.parametrize("second", sorted(OUTCOMES))
@pytest.mark.parametrize("first", sorted(OUTCOMES))
def test_the_first_end_wins(conn, running, end, first, second):
    made = running
    before, _ = end(made, first, exit_code=3, error_message="first")

    after, is_first = end(made, second, exit_code=4, error_message="second")

    assert not is_first
    assert after == before
    assert [to for *_, to, _ in changes(conn)] == ["spawned", "running", first]


@pytest.mark.parametrize("outcome", sorted(OUTCOMES))
def test_what_was_never_seen_running_can_end(conn, create, end, outcome):
    made = create()

    ended, is_first = end(made, outcome)

    assert is_first
    assert ended.status == outcome
    assert changes(conn)[-1] == ("", made.id, "spawned", outcome, "")


def test_nothing_leads_out_of_an_end():
    assert {status for status, following in NEXT.items() if not following} == OUTCOMES


def test_a_start_that_is_told_twice_changes_nothing(conn, create, start):
    made = create()
    first = start(made)

    second = start(made)

    assert second == first
    assert len(changes(conn)) == 2


def test_a_dispatch_has_one_process(create, start):
    made = create()
    start(made)

    with pytest.raises(DispatchRunning, match="as process 4242"):
        start(made, agent=Process(4242, 78, "this-boot", "pid:[1]"))


def test_who_starts_what_was_cancelled_meanwhile_is_told_so(conn, create, start):
    made = create()
    dispatches.cancel(conn, made.id, reason="rollback", actor=ME, now_ms=NOW_MS)

    with pytest.raises(DispatchOver, match="already cancelled"):
        start(made)


def test_a_cancelled_dispatch_learns_once_how_its_process_ended(conn, create, start, end):
    made = start(create())
    dispatches.cancel(conn, made.id, reason="no longer needed", actor=ME, now_ms=NOW_MS + 2000)

    first, was_first = end(made, "failed", exit_code=143, output_tokens=70, error_message="TERM")
    second, _ = end(made, "failed", exit_code=1)

    assert not was_first
    assert (first.status, first.exit_code, first.output_tokens) == ("cancelled", 143, 70)
    assert first.error_message == "no longer needed"
    assert first.completed_at == (NOW_MS + 2000) // 1000
    assert second == first
    assert changes(conn)[-1] == ("", made.id, "running", "cancelled", "no longer needed")


def test_what_is_over_cannot_be_cancelled(conn, create, end):
    made = create()
    end(made)

    with pytest.raises(DispatchOver, match="already completed"):
        dispatches.cancel(conn, made.id, reason="", actor=ME, now_ms=NOW_MS)


def test_an_end_takes_no_counts_back(conn, create, start, end):
    made = start(create())
    end_of = {"turns": 3, "input_tokens": 10, "cache_hits": 5}
    conn.execute(
        "UPDATE dispatches SET turns = 9, input_tokens = 4, output_tokens = 8, cache_hits = 7"
    )

    ended, _ = end(made, **end_of)

    found = (ended.turns, ended.input_tokens, ended.output_tokens, ended.cache_hits)
    assert found == (9, 10, 8, 7)


@pytest.mark.parametrize(("known", "told"), [(None, 4), (4, None), (None, None)])
def test_cache_hits_that_nobody_counted_stay_unknown(conn, running, end, known, told):
    conn.execute("UPDATE dispatches SET cache_hits = ?", (known,))

    ended, _ = end(running, cache_hits=told)

    assert ended.cache_hits == (known or told)


def test_an_end_is_recorded_in_one_line_whatever_the_agent_says(create, end):
    made = create()

    ended, _ = end(made, "failed", error_message="a\n\tb\x1b[31m c", verdict_summary="x" * 10_000)

    assert ended.error_message == "a b [31m c"
    assert ended.verdict_summary == "x" * dispatches.TEXT_CHARACTERS


@pytest.mark.parametrize(
    ("told_ms", "kept_ms"),
    [(NOW_MS + 2000, NOW_MS + 2000), (NOW_MS + 9_000_000, NOW_MS + 5000), (1, NOW_MS)],
)
def test_an_end_lies_between_the_creation_and_now(create, end, told_ms, kept_ms):
    made = create()

    ended, _ = end(made, ended_ms=told_ms)

    assert ended.completed_at == kept_ms // 1000


def test_a_dispatch_belongs_to_the_run_whose_id_or_scope_is_its_scope(create, run):
    run("run00001", scope_id="bead-1")

    of_id, of_scope = create(scope_id="run00001"), create(scope_id="bead-1")
    of_nobody, alone = create(scope_id="bead-2"), create()

    assert (of_id.run_id, of_scope.run_id) == ("run00001", "run00001")
    assert (of_nobody.run_id, alone.run_id) == (None, None)
    assert of_scope.scope_id == "bead-1"


def test_the_run_that_is_named_counts_more_than_the_scope(create, run):
    run("run00001", scope_id="bead-1")
    run("run00002")

    made = create(scope_id="bead-1", run_id="run00002")

    assert (made.run_id, made.scope_id) == ("run00002", "bead-1")


def test_a_run_that_is_named_must_be_there(create):
    with pytest.raises(RunNotFound, match="nobody"):
        create(run_id="nobody")


def test_each_step_is_a_sign_of_life_of_the_run_and_an_event_with_its_id(
    conn, create, start, end, run
):
    run("run00001", created_ms=NOW_MS - 60_000)
    made = create(run_id="run00001")
    seen = [runs.require(conn, "run00001").updated_ms]
    start(made)
    seen.append(runs.require(conn, "run00001").updated_ms)
    end(made)
    seen.append(runs.require(conn, "run00001").updated_ms)

    assert seen == [NOW_MS, NOW_MS + 1000, NOW_MS + 5000]
    assert [run_id for run_id, *_ in changes(conn)] == ["run00001"] * 3


def test_what_runs_for_a_run_is_cancelled_with_it_and_nothing_else(conn, create, start, end, run):
    found = run("run00001")
    over, other = create(run_id="run00001"), create()
    end(over)
    spawned, running = create(run_id="run00001"), start(create(run_id="run00001"))

    count = dispatches.cancel_of_run(conn, found, reason="rollback", actor=ME, now_ms=NOW_MS)

    assert count == 2
    assert {d.id: d.status for d in dispatches.every(conn, run_id="run00001", limit=9)} == {
        over.id: "completed",
        spawned.id: "cancelled",
        running.id: "cancelled",
    }
    assert [d.id for d in dispatches.live(conn)] == [other.id]
    assert changes(conn)[-1] == ("run00001", running.id, "running", "cancelled", "rollback")


def test_an_agent_of_a_run_is_started_once(conn, create, run):
    run("run00001")
    conn.execute(
        "INSERT INTO run_agents (id, run_id, agent_type, status, created_at, updated_at) "
        "VALUES ('agent001', 'run00001', 'codex', 'active', 0, 0)"
    )
    first, second = create(run_id="run00001"), create(run_id="run00001")
    dispatches.claim_agent(conn, "agent001", first, instead_of=None, now_ms=NOW_MS)

    with pytest.raises(AgentTaken, match="agent001"):
        dispatches.claim_agent(conn, "agent001", second, instead_of=None, now_ms=NOW_MS)
    dispatches.claim_agent(conn, "agent001", second, instead_of=first.id, now_ms=NOW_MS)

    assert conn.execute("SELECT dispatch_id FROM run_agents").fetchall() == [(second.id,)]


def test_lists_are_narrowed_by_all_that_is_asked_and_show_the_newest_first(conn, create, end, run):
    run("run00001", scope_id="s")
    old, middle = create(NOW_MS, scope_id="s"), create(NOW_MS + 1, scope_id="s")
    new, other = create(NOW_MS + 2), create(NOW_MS + 2, scope_id="t")
    end(middle)

    def listed(**wanted):
        return [found.id for found in dispatches.every(conn, **{"limit": 10, **wanted})]

    assert listed() == [other.id, new.id, middle.id, old.id]
    assert listed(limit=1) == [other.id]
    assert listed(active=True) == [other.id, new.id, old.id]
    assert listed(scope_id="s") == listed(run_id="run00001") == [middle.id, old.id]
    assert listed(scope_id="s", active=True) == [old.id]
    assert listed(run_id="run00001", active=True, scope_id="s") == [old.id]
    assert listed(run_id="run00001", scope_id="t") == []


def test_what_has_ended_long_ago_is_pruned_but_not_of_a_run_under_way(conn, create, end, run):
    run("active00")
    run("over0000", status="completed")
    kept = [
        create(),  # has not ended
        end(create(NOW_MS + 1))[0],  # is younger
        end(create(run_id="active00"))[0],
    ]
    end(create())
    end(create(run_id="over0000"))

    pruned = dispatches.prune(conn, older_than_ms=1000, now_ms=NOW_MS + 1000)

    assert pruned == 2
    left = {found.id for found in dispatches.every(conn, limit=10)}
    assert left == {found.id for found in kept}


def test_what_is_not_there_is_not_found(conn, end):
    with pytest.raises(DispatchNotFound, match="not found: nobody"):
        dispatches.require(conn, "nobody")
    with pytest.raises(DispatchNotFound):
        dispatches.end(conn, End(id="nobody", status="failed"), actor=ME, now_ms=NOW_MS)


def test_tokens_are_set_and_what_is_not_given_stays(conn, create):
    made = create()
    dispatches.set_tokens(conn, made.id, input_tokens=10, output_tokens=5, now_ms=NOW_MS)

    found = dispatches.set_tokens(conn, made.id, input_tokens=7, cache_hits=0, now_ms=NOW_MS)

    assert (found.input_tokens, found.output_tokens, found.cache_hits) == (7, 5, 0)
