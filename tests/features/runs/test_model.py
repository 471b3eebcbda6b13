"""Any interleaving of what may happen to runs, against a model; the log folds to every row.

The model knows phases as positions in a list and gates as three questions; what is refused changes
nothing and records nothing.
"""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from icd.errors import IcError, PhaseRefused, RollbackRefused, RunOver, RunTaken
from icd.features.events import store as events
from icd.features.runs import create as claims
from icd.features.runs import phases, transitions
from icd.features.runs import store as runs
from icd.values.processes import Writer
from icd.values.validation import new_id
from tests.support.folding import fold
from tests.support.run_model import Model

NOW = 1_800_000_000_000
MINUTE = 60_000
ME = Writer(7, "me")
# Two of its gates are those of everybody, and two steps lead to its end.
OWN = ("planned", "executing", "review", "polish", "done")
CHAINS = [None, OWN, OWN, ("a", "b", "c")]

# Which of the runs there are, the newest first; and which phase, seen from where it is.
RUNS = st.sampled_from([0, 0, 0, 1, 2])
PHASES = st.sampled_from([*range(-4, 5), "nowhere"])
CREATE = st.tuples(
    st.just("create"),
    st.sampled_from([None, "s1", "s1"]),
    st.sampled_from(CHAINS),
    st.sampled_from([None, 0, MINUTE]),
)
ADVANCE = st.tuples(
    st.just("advance"),
    RUNS,
    st.sampled_from([0, 3, 4]),
    st.booleans(),
    st.sampled_from(["", "because"]),
    st.sampled_from([None, None, 0, 0, 1, -1, "nowhere"]),
)
HURRY = st.tuples(st.just("advance"), RUNS, st.just(4), st.just(False), st.just("r"), st.none())
SMALL = st.one_of(
    st.tuples(st.just("override"), RUNS),
    st.tuples(st.just("skip"), RUNS, PHASES),
    st.tuples(st.just("skip"), RUNS, st.just(1)),
    st.tuples(st.just("set"), RUNS, st.booleans()),
    st.tuples(st.just("artifact"), RUNS, PHASES),
    st.tuples(st.just("artifact"), RUNS, st.just(0)),
    st.tuples(st.just("agent"), RUNS, st.sampled_from(["active", "completed"])),
    st.tuples(st.just("verdict"), RUNS, st.sampled_from(["pass", "warn", "fail"])),
    st.tuples(st.just("work"), RUNS),
    st.tuples(st.just("clock"), st.sampled_from([1, MINUTE, -MINUTE])),
)
BACK = st.tuples(st.just("rollback"), RUNS, PHASES)
END = st.tuples(st.sampled_from(["cancel", "abandon"]), RUNS)
OPERATIONS = st.one_of(*[ADVANCE] * 4, *[HURRY] * 3, *[SMALL] * 4, *[BACK] * 3, *[CREATE] * 2, END)


class World:
    """All runs of one project, in a model and in a database."""

    def __init__(self, conn):
        self.conn = conn
        self.now = NOW
        self.runs: list[Model] = []

    def apply(self, what, *words):
        if what in ("create", "clock"):
            getattr(self, what)(*words)
        elif self.runs:
            number, *rest = words
            getattr(self, what)(self.runs[-1 - number % len(self.runs)], *rest)

    def clock(self, step):
        self.now += step

    def create(self, scope, chain, takeover):
        holder = next(
            (m for m in self.runs if scope and m.scope == scope and m.status == "active"), None
        )
        wanted = {"project_dir": "/p", "goal": "g", "scope_id": scope, "chain": chain}

        def make():
            run = claims.new(**wanted, actor=ME, now_ms=self.now)
            claims.create(self.conn, run, takeover_after_ms=takeover, actor=ME, now_ms=self.now)
            return run

        if holder and (takeover is None or max(0, self.now - holder.seen) < takeover):
            refused(make, RunTaken)
            return
        made = make()
        if holder:
            holder.status = "abandoned"
            holder.seen = self.now
            holder.told.append(("abandon", holder.phase, holder.phase))
        self.runs.append(Model(made.id, chain or phases.DEFAULT, scope, self.now))

    def advance(self, m, priority, disabled, reason, step):
        if_phase = None if step is None else m.named(step)

        def act():
            return transitions.advance(
                self.conn, m.id, priority=priority, disable_gates=disabled, skip_reason=reason,
                if_phase=if_phase, actor=ME, now_ms=self.now,
            )  # fmt: skip

        if if_phase is not None and if_phase not in m.chain:
            refused(act, PhaseRefused)
            return
        if if_phase is not None and if_phase != m.phase:
            found = act()
            assert (found.advanced, found.event_type, found.from_phase) == (False, "stale", m.phase)
            return
        if m.status != "active":
            refused(act, RunOver)
            return
        to = m.next(m.skips)
        checked = priority < 4 and not disabled
        if not m.auto and not reason:
            expected = "pause"
        elif checked and priority == 0 and not m.opens(to):
            expected = "block"
        else:
            expected = "advance"
        result = ("pass" if m.opens(to) else "fail") if checked and expected != "pause" else "none"
        found = act()
        assert (found.event_type, found.gate_result) == (expected, result)
        assert (found.from_phase, found.to_phase) == (m.phase, m.chain[to])
        self.happened(m, expected, m.chain[to])
        if expected == "advance":
            m.go(to)

    def override(self, m):
        def act():
            return transitions.override(self.conn, m.id, "r", actor=ME, now_ms=self.now)

        if m.status != "active":
            refused(act, RunOver)
            return
        act()
        to = m.next(())
        self.happened(m, "override", m.chain[to])
        m.go(to)

    def skip(self, m, step):
        phase = m.named(step)

        def act():
            transitions.skip(self.conn, m.id, phase, reason="r", actor=ME, now_ms=self.now)

        if m.status != "active":
            refused(act, RunOver)
        elif phase not in m.chain[m.place + 1 : -1]:
            refused(act, PhaseRefused)
        else:
            act()
            self.happened(m, "skip", phase)
            m.skips.add(phase)

    def set(self, m, auto):
        def act():
            transitions.configure(self.conn, m.id, auto_advance=auto, actor=ME, now_ms=self.now)

        if m.status != "active":
            refused(act, RunOver)
            return
        act()
        self.happened(m, "set", m.phase)
        m.auto = auto

    def cancel(self, m):
        self._end(m, transitions.cancel, "cancel", "cancelled")

    def abandon(self, m):
        self._end(m, transitions.abandon, "abandon", "abandoned")

    def _end(self, m, end, what, status):
        def act():
            end(self.conn, m.id, actor=ME, now_ms=self.now)

        if m.status != "active":
            refused(act, RunOver)
            return
        act()
        self.happened(m, what, m.phase)
        m.status = status

    def rollback(self, m, step):
        phase = m.named(step)

        def act():
            return claims.rollback(self.conn, m.id, phase, reason="r", actor=ME, now_ms=self.now)

        if m.status not in ("active", "completed"):
            refused(act, RollbackRefused)
        elif phase not in m.chain[: m.place]:
            refused(act, PhaseRefused)
        elif (
            m.status == "completed"
            and m.scope
            and any(o.scope == m.scope and o.status == "active" for o in self.runs)
        ):
            refused(act, RunTaken)
        else:
            back = set(m.chain[m.chain.index(phase) + 1 : m.place + 1])
            marked = [p for p in m.artifacts if p in back]
            done = act()
            assert set(done.rolled_back_phases) == back
            assert (done.marked_artifacts, done.failed_agents) == (len(marked), m.agents)
            assert set(done.cleared_skips) == m.skips & back
            assert len(done.dispatches) == m.working
            self.happened(m, "rollback", phase)
            m.place, m.status = m.chain.index(phase), "active"
            m.artifacts = [p for p in m.artifacts if p not in back]
            m.skips -= back
            m.agents = m.working = 0

    def artifact(self, m, step):
        phase = m.named(step)
        self.conn.execute(
            "INSERT INTO run_artifacts (id, run_id, phase, path, type, status, created_at) "
            "VALUES (?, ?, ?, 'f', 'file', 'active', 0)",
            (new_id(), m.id, phase),
        )
        m.artifacts.append(phase)

    def agent(self, m, status):
        self.conn.execute(
            "INSERT INTO run_agents (id, run_id, agent_type, status, created_at, updated_at) "
            "VALUES (?, ?, 'claude', ?, 0, 0)",
            (new_id(), m.id, status),
        )
        m.agents += status == "active"

    def verdict(self, m, status):
        self._dispatch(m, "completed", status)
        m.passed = m.passed or status != "fail"

    def work(self, m):
        self._dispatch(m, "running", None)
        m.working += 1

    def _dispatch(self, m, status, verdict):
        self.conn.execute(
            "INSERT INTO dispatches (id, run_id, agent_type, status, verdict_status, project_dir, "
            "turns, commands, messages, input_tokens, output_tokens, created_at, created_ms, "
            "version) VALUES (?, ?, 'codex', ?, ?, '/p', 0, 0, 0, 0, 0, 0, 0, 1)",
            (new_id(), m.id, status, verdict),
        )

    def happened(self, m, what, to_phase):
        m.told.append((what, m.phase, to_phase))
        m.seen = self.now

    def agrees(self):
        for m in self.runs:
            row = runs.require(self.conn, m.id)
            assert (row.status, row.phase, row.auto_advance) == (m.status, m.phase, m.auto)
            assert (row.completed_at is None) == (m.status == "active")
            assert row.updated_ms == m.seen
            assert runs.skipped(self.conn, m.id) == m.skips
            log = events.read(self.conn, limit=1000, run_id=m.id, source="phase")
            assert [(e.type, e.from_state, e.to_state) for e in log] == m.told
            assert fold(m.chain, log) == (row.status, row.phase)


def refused(act, kind):
    with pytest.raises(IcError) as error:
        act()
    assert type(error.value) is kind


@settings(
    deadline=None,
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(operations=st.lists(OPERATIONS, min_size=30, max_size=100))
def test_runs_are_where_the_model_says_and_their_events_tell_how_they_got_there(
    scratch, operations
):
    with scratch() as conn:
        world = World(conn)
        world.create(None, None, None)
        for operation in operations:
            world.apply(*operation)

            world.agrees()
