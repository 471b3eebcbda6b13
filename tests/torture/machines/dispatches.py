"""Dispatches, as records: the first end wins, and every change of status is told."""

from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from tests.torture.hosts import ME
from tests.torture.machines.machine import Machine

WHICH = st.integers(0, 3)
OUTCOMES = st.sampled_from(["completed", "failed", "timeout", "cancelled"])
COUNTS = st.sampled_from([None, 0, 1, 5, 2**40])
OVER = ("completed", "failed", "timeout", "cancelled")


@dataclass
class Dispatch:
    id: str
    created: int
    status: str = "spawned"
    version: int = 1
    exit_code: int | None = None
    turns: int = 0
    tokens: int = 0
    error: str | None = None
    told: list[tuple[str, str]] = field(default_factory=lambda: [("", "spawned")])

    @property
    def is_over(self) -> bool:
        return self.status in OVER

    def becomes(self, status: str) -> None:
        self.told.append((self.status, status))
        self.status = status
        self.version += 1


class Dispatches(Machine):
    def __init__(self) -> None:
        super().__init__()
        self.all: list[Dispatch] = []
        self.gone: list[Dispatch] = []

    def one(self, which: int) -> Dispatch | None:
        return self.all[-1 - which % len(self.all)] if self.all else None

    @rule(scope=st.sampled_from([None, "s"]))
    def create(self, scope):
        given = {"project_dir": "/p", "scope_id": scope, "runner": {"pid": ME}}
        self.all.append(Dispatch(self.result("dispatch.create", **given)["id"], self.now))

    @rule()
    def create_for_a_run_that_is_not(self):
        self.refused("run_not_found", "dispatch.create", project_dir="/p", run_id="nothing1")

    @rule(which=WHICH, off=st.sampled_from([0, 0, 1]))
    def started(self, which, off):
        m = self.one(which)
        if m is None:
            return
        # Another process than the one that runs; a daemon looks at those that it is told of.
        given = {"id": m.id, "pid": ME + off if m.status == "running" else ME, "runner_pid": ME}
        if m.is_over:
            self.refused("dispatch_over", "dispatch.started", **given)
        elif m.status == "running" and off:
            self.refused("dispatch_running", "dispatch.started", **given)
        else:
            found = self.result("dispatch.started", **given)
            if m.status == "spawned":
                m.becomes("running")
            assert (found["status"], found["version"]) == (m.status, m.version)

    @rule(
        which=WHICH, status=OUTCOMES, exit_code=st.sampled_from([None, 0, 1]), turns=COUNTS,
        tokens=COUNTS, error=st.sampled_from([None, "why", "two\nlines"]),
    )  # fmt: skip
    def record(self, which, status, exit_code, *, turns, tokens, error):
        m = self.one(which)
        if m is None:
            return
        end = {"id": m.id, "status": status, "exit_code": exit_code, "error_message": error}
        found = self.result("dispatch.record", end={**end, "turns": turns, "input_tokens": tokens})
        is_first = not m.is_over
        assert found["recorded"] == is_first
        if is_first or (m.status == "cancelled" and m.exit_code is None):
            m.exit_code = exit_code
            m.turns, m.tokens = max(m.turns, turns or 0), max(m.tokens, tokens or 0)
            m.error = m.error or (error and error.replace("\n", " "))
            if is_first:
                m.becomes(status)
            else:
                m.version += 1
        self.agrees(m, found["dispatch"])

    @rule(which=WHICH, reason=st.sampled_from(["", "enough"]))
    def cancel(self, which, reason):
        m = self.one(which)
        if m is None:
            return
        if m.is_over:
            self.refused("dispatch_over", "dispatch.cancel", id=m.id, reason=reason)
            return
        found = self.result("dispatch.cancel", id=m.id, reason=reason)
        m.error = m.error or reason or None
        m.becomes("cancelled")
        self.agrees(m, found)

    @rule(which=WHICH, tokens=COUNTS)
    def tokens(self, which, tokens):
        m = self.one(which)
        if m is None:
            return
        self.result("dispatch.tokens", id=m.id, input_tokens=tokens)
        m.tokens = m.tokens if tokens is None else tokens
        m.version += 1

    @rule(which=WHICH, turns=st.integers(0, 3), stale=st.booleans())
    def progress(self, which, turns, stale):
        m = self.one(which)
        if m is None:
            return
        seen = {"version": m.version - stale, "runner": "alive", "progress": {"turns": turns}}
        found = self.result("dispatch.poll", id=m.id, seen=seen)
        if not stale and not m.is_over and turns != m.turns:
            m.turns = turns
            m.version += 1
        self.agrees(m, found)

    @rule(older=st.sampled_from([0, 1000, 60_000]))
    def prune(self, older):
        gone = [m for m in self.all if m.is_over and m.created <= self.now - older]
        assert self.result("dispatch.prune", older_than_ms=older)["pruned"] == len(gone)
        self.gone += gone
        self.all = [m for m in self.all if m not in gone]

    @rule()
    def ask_for_one_that_is_gone(self):
        for m in self.gone[-1:]:
            self.refused("dispatch_not_found", "dispatch.get", id=m.id)

    @rule(step=st.sampled_from([1, 1000, 60_000, -1000]))
    def time_passes(self, step):
        self.host.wall.move(step)

    def agrees(self, m: Dispatch, found: dict) -> None:
        shown = (found["status"], found["version"], found["turns"], found["in_tokens"])
        assert shown == (m.status, m.version, m.turns, m.tokens), f"{found} is not {m}"
        assert (found.get("exit_code"), found.get("error_message")) == (m.exit_code, m.error)

    @invariant()
    def lists_them_as_they_are(self):
        found = {each["id"]: each for each in self.result("dispatch.list")}
        assert found.keys() == {m.id for m in self.all}
        for m in self.all:
            self.agrees(m, found[m.id])

    def teardown(self) -> None:
        found = self.result("events.tail", source="dispatch", limit=10_000)["events"]
        for m in [*self.all, *self.gone]:
            ours = [(e["from_state"], e["to_state"]) for e in found if e["subject_id"] == m.id]
            assert ours == m.told
