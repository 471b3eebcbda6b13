"""Sessions: one row in a project; what is known is never forgotten, and tokens only grow."""

from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from tests.torture.machines.machine import Machine

SESSIONS = st.sampled_from(["s1", "s2", "s3"])
PLACES = st.sampled_from([None, "/elsewhere/q"])
WORDS = st.sampled_from([None, "", "x", "y"])
COUNTS = st.sampled_from([0, 1, 1000, 2**62])
STEPS = st.sampled_from([1, 999, 1000, 60_000, -500])
MOST = 2**63 - 1
FIELDS = ("bead", "run", "phase")
KINDS = ("input", "output", "cache_creation", "cache_read")


@dataclass
class Known:
    id: int
    started: int
    agent: str = "claude-code"
    model: str | None = None
    ended: int | None = None
    tokens: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))


class Sessions(Machine):
    def __init__(self) -> None:
        super().__init__()
        self.known: dict[tuple[str, str | None], Known] = {}
        self.works_on: dict[tuple[str, str | None], dict[str, str | None]] = {}

    def where(self, place):
        return {} if place is None else {"project": place}

    @rule(session=SESSIONS, place=PLACES, agent=st.sampled_from(["", "codex"]), model=WORDS)
    def start(self, session, place, agent, model):
        found = self.result(
            "session.start",
            session_id=session,
            agent_type=agent,
            model=model,
            **self.where(place),
        )
        before = self.known.get((session, place))
        if before is None:
            ids = {each.id for each in self.known.values()}
            assert found["id"] not in ids
            before = self.known[session, place] = Known(found["id"], self.now // 1000)
        assert found["id"] == before.id
        before.agent, before.model = agent or before.agent, model or before.model
        before.ended = None

    @rule(session=SESSIONS)
    def end(self, session):
        active = [each for (name, _), each in self.known.items() if name == session]
        active = [each for each in active if each.ended is None]
        if not active:
            self.refused("unknown_session", "session.end", session_id=session)
            return
        assert self.result("session.end", session_id=session)["ended"]
        for each in active:
            each.ended = self.now // 1000

    @rule(session=SESSIONS, place=PLACES, kind=st.sampled_from(KINDS), count=COUNTS)
    def tokens(self, session, place, kind, count):
        given = {"session_id": session, kind: count, **self.where(place)}
        known = self.known.get((session, place))
        if known is None:
            self.refused("unknown_session", "session.tokens", **given)
            return
        self.result("session.tokens", **given)
        known.tokens[kind] = min(known.tokens[kind] + count, MOST)

    @rule(session=SESSIONS, place=PLACES, bead=WORDS, run=WORDS, phase=WORDS)
    def attribute(self, session, place, bead, run, phase):
        given = {"bead": bead, "run": run, "phase": phase}
        self.result("session.attribute", session_id=session, **given, **self.where(place))
        before = self.works_on.get((session, place), dict.fromkeys(FIELDS))
        if run and run != before["run"]:
            before = {**before, "phase": None}
        self.works_on[session, place] = {name: given[name] or before[name] for name in FIELDS}

    @rule(step=STEPS)
    def time_passes(self, step):
        self.host.wall.move(step)

    @invariant()
    def every_session_is_as_it_was_told(self):
        found = self.result("session.list")
        told = {each["id"]: each for each in found}
        assert sorted(told) == sorted(each.id for each in self.known.values())
        assert found == sorted(found, key=lambda e: (e["started_at"], e["id"]), reverse=True)
        for (session, _), each in self.known.items():
            row = told[each.id]
            assert (row["session_id"], row["agent_type"], row["model"]) == (
                session,
                each.agent,
                each.model,
            )
            assert (row["started_at"], row["ended_at"]) == (each.started, each.ended)
            assert {kind: row[f"{kind}_tokens"] for kind in KINDS} == each.tokens

    @invariant()
    def what_a_session_works_on_is_known(self):
        for (session, place), told in self.works_on.items():
            found = self.result("session.current", session_id=session, **self.where(place))
            assert {
                name: found[name if name == "phase" else f"{name}_id"] for name in FIELDS
            } == told
