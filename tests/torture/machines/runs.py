"""Runs: phases, gates, claims on a scope; the log folds to every row."""

from types import SimpleNamespace

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from icd.features.runs import phases
from tests.support.folding import fold
from tests.support.run_model import Model
from tests.torture.hosts import ME
from tests.torture.machines.machine import Machine

MINUTE = 60_000
# Two of its gates are those of everybody, and two steps lead to its end.
OWN = ("planned", "executing", "review", "polish", "done")
# Which of the runs there are, the newest first; and which phase, seen from where it is.
RUNS = st.sampled_from([0, 0, 0, 1, 2])
PHASES = st.sampled_from([*range(-4, 5), "nowhere"])


class Runs(Machine):
    def __init__(self) -> None:
        super().__init__()
        self.runs: list[Model] = []
        self.agents: dict[str, list[str]] = {}

    def run(self, number: int) -> Model:
        return self.runs[-1 - number % len(self.runs)]

    def happened(self, m: Model, what: str, to_phase: str) -> None:
        m.told.append((what, m.phase, to_phase))
        m.seen = self.now

    def touched(self, m: Model) -> None:
        if m.status == "active":
            m.seen = self.now

    @initialize()
    def begin(self):
        self.create(scope=None, chain=None, takeover=None)

    @rule(
        scope=st.sampled_from([None, "s1", "s1"]),
        chain=st.sampled_from([None, OWN, OWN, ("a", "b", "c")]),
        takeover=st.sampled_from([None, 0, MINUTE]),
    )
    def create(self, scope, chain, takeover):
        given = {"goal": "g", "scope_id": scope, "phases": chain, "takeover_after_ms": takeover}
        holder = next(
            (m for m in self.runs if scope and m.scope == scope and m.status == "active"), None
        )
        if holder and (takeover is None or max(0, self.now - holder.seen) < takeover):
            self.refused("run_taken", "run.create", **given)
            return
        made = self.result("run.create", **given)
        assert made.get("took_over") == (holder.id if holder else None)
        if holder:
            self.happened(holder, "abandon", holder.phase)
            holder.status = "abandoned"
        self.runs.append(Model(made["id"], chain or phases.DEFAULT, scope, self.now))
        self.agents[made["id"]] = []

    @rule(
        number=RUNS,
        priority=st.sampled_from([0, 3, 4]),
        disabled=st.booleans(),
        reason=st.sampled_from(["", "because"]),
        step=st.sampled_from([None, None, 0, 0, 1, -1, "nowhere"]),
    )
    def advance(self, number, priority, disabled, reason, step):
        m = self.run(number)
        if_phase = None if step is None else m.named(step)
        given = {"run_id": m.id, "priority": priority, "disable_gates": disabled}
        given |= {"skip_reason": reason, "if_phase": if_phase}
        if if_phase is not None and if_phase not in m.chain:
            self.refused("phase_refused", "run.advance", **given)
            return
        if if_phase not in (None, m.phase):
            found = self.result("run.advance", **given)
            assert (found["advanced"], found["event_type"]) == (False, "stale")
            return
        if m.status != "active":
            self.refused("run_over", "run.advance", **given)
            return
        to = m.next(m.skips)
        checked = priority < 4 and not disabled
        expected = "advance"
        if not m.auto and not reason:
            expected = "pause"
        elif checked and priority == 0 and not m.opens(to):
            expected = "block"
        result = ("pass" if m.opens(to) else "fail") if checked and expected != "pause" else "none"
        found = self.result("run.advance", **given)
        shown = (found["event_type"], found["gate_result"], found["from_phase"], found["to_phase"])
        assert shown == (expected, result, m.phase, m.chain[to])
        assert found["advanced"] == (expected == "advance")
        self.happened(m, expected, m.chain[to])
        if expected == "advance":
            m.go(to)

    @rule(number=RUNS)
    def hurry(self, number):
        self.advance(number=number, priority=4, disabled=False, reason="r", step=None)

    @rule(number=RUNS)
    def override(self, number):
        m = self.run(number)
        if m.status != "active":
            self.refused("run_over", "gate.override", run_id=m.id, reason="r")
            return
        self.result("gate.override", run_id=m.id, reason="r")
        to = m.next(())
        self.happened(m, "override", m.chain[to])
        m.go(to)

    @rule(number=RUNS, step=PHASES)
    def skip(self, number, step):
        m = self.run(number)
        phase = m.named(step)
        given = {"run_id": m.id, "phase": phase, "reason": "r"}
        if m.status != "active":
            self.refused("run_over", "run.skip", **given)
        elif phase not in m.chain[m.place + 1 : -1]:
            self.refused("phase_refused", "run.skip", **given)
        else:
            self.result("run.skip", **given)
            self.happened(m, "skip", phase)
            m.skips.add(phase)

    @rule(number=RUNS, auto=st.booleans())
    def set(self, number, auto):
        m = self.run(number)
        if m.status != "active":
            self.refused("run_over", "run.set", run_id=m.id, auto_advance=auto)
            return
        self.result("run.set", run_id=m.id, auto_advance=auto)
        self.happened(m, "set", m.phase)
        m.auto = auto

    @rule(number=RUNS, how=st.sampled_from([("cancel", "cancelled"), ("abandon", "abandoned")]))
    def end(self, number, how):
        m = self.run(number)
        what, status = how
        if m.status != "active":
            self.refused("run_over", f"run.{what}", run_id=m.id)
            return
        self.result(f"run.{what}", run_id=m.id)
        self.happened(m, what, m.phase)
        m.status = status

    @rule(number=RUNS, step=PHASES)
    def rollback(self, number, step):
        m = self.run(number)
        phase = m.named(step)
        given = {"run_id": m.id, "to_phase": phase, "reason": "r"}
        others = [o for o in self.runs if o is not m and o.status == "active"]
        if m.status not in ("active", "completed"):
            self.refused("rollback_refused", "run.rollback", **given)
        elif phase not in m.chain[: m.place]:
            self.refused("phase_refused", "run.rollback", **given)
        elif m.status == "completed" and m.scope and any(o.scope == m.scope for o in others):
            self.refused("run_taken", "run.rollback", **given)
        else:
            back = {*m.chain[m.chain.index(phase) + 1 : m.place + 1]}
            done = self.result("run.rollback", **given)
            assert {*done["rolled_back_phases"]} == back
            marked = sum(p in back for p in m.artifacts)
            assert (done["marked_artifacts"], done["failed_agents"]) == (marked, m.agents)
            assert {*done.get("cleared_skips", ())} == m.skips & back
            assert done["cancelled_dispatches"] == m.working
            self.happened(m, "rollback", phase)
            m.place, m.status = m.chain.index(phase), "active"
            m.artifacts = [p for p in m.artifacts if p not in back]
            m.skips -= back
            m.agents = m.working = 0
            self.agents[m.id].clear()

    @rule(number=RUNS, step=st.sampled_from([0, 0, 1, -1]))
    def artifact(self, number, step):
        m = self.run(number)
        self.result("artifact.add", run_id=m.id, phase=m.named(step), path="/f")
        m.artifacts.append(m.named(step))
        self.touched(m)

    @rule(number=RUNS)
    def agent(self, number):
        m = self.run(number)
        self.agents[m.id].append(self.result("agent.add", run_id=m.id)["id"])
        m.agents += 1
        self.touched(m)

    @rule(number=RUNS, status=st.sampled_from(["completed", "failed"]))
    def agent_is_done(self, number, status):
        m = self.run(number)
        if self.agents[m.id]:
            self.result("agent.update", agent_id=self.agents[m.id].pop(), status=status)
            m.agents -= 1
            self.touched(m)

    @rule(number=RUNS, verdict=st.sampled_from([None, "pass", "warn", "fail"]))
    def dispatch(self, number, verdict):
        m = self.run(number)
        given = {"project_dir": "/p", "run_id": m.id, "runner": {"pid": ME}}
        made = self.result("dispatch.create", **given)
        self.touched(m)
        if verdict is None:
            m.working += 1
        else:
            end = {"id": made["id"], "status": "completed", "verdict_status": verdict}
            assert self.result("dispatch.record", end=end)["recorded"]
            m.passed = m.passed or verdict != "fail"

    @rule(step=st.sampled_from([1, MINUTE, -MINUTE]))
    def time_passes(self, step):
        self.host.wall.move(step)

    @invariant()
    def lists_them_as_they_are(self):
        found = {each["id"]: each for each in self.result("run.list")}
        assert len(found) == len(self.runs)
        for m in self.runs:
            row = found[m.id]
            assert (row["status"], row["phase"], row["auto_advance"]) == (m.status, m.phase, m.auto)
            assert row["updated_at"] == m.seen // 1000
            assert (row.get("completed_at") is None) == (m.status == "active")

    def teardown(self) -> None:
        for m in self.runs:
            given = {"run_id": m.id, "source": "phase", "limit": 10_000}
            log = [
                SimpleNamespace(**each) for each in self.result("events.tail", **given)["events"]
            ]
            assert [(e.type, e.from_state, e.to_state) for e in log] == m.told
            assert fold(m.chain, log) == (m.status, m.phase)
            assert {*self.result("run.status", run_id=m.id).get("skipped", ())} == m.skips
