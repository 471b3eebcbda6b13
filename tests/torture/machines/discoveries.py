"""Discoveries: submitted once, scored, promoted, dismissed, and fading."""

import base64
import struct
from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from tests.torture.machines.machine import Machine

ONE = 1_000_000
DAY = 24 * 3_600_000
FLOOR = 50_000
WHICH = st.integers(0, 3)
SOURCES = st.sampled_from(["x", "y"])
SCORES = st.sampled_from([0.0, 0.25, 0.499999, 0.5, 0.9, 1.0])
# What is alike is the same here; how alike things must be is told elsewhere.
LIKENESSES = st.sampled_from([None, None, (1.0, 0.0), (0.0, 1.0)])
THRESHOLD = 500_000  # the usual one, for a promotion


@dataclass
class Discovery:
    id: str
    source: str
    source_id: str
    relevance: int
    found_at: int
    likeness: tuple[float, float] | None
    decay: int = ONE
    decayed_at: int | None = None
    status: str = "new"
    bead: str | None = None

    @property
    def is_open(self) -> bool:
        return self.status not in ("promoted", "dismissed")


class Discoveries(Machine):
    def __init__(self) -> None:
        super().__init__()
        self.all: list[Discovery] = []
        self.told: list[str] = []

    def one(self, which: int) -> Discovery | None:
        return self.all[-1 - which % len(self.all)] if self.all else None

    @rule(source=SOURCES, name=st.sampled_from("abcdef"), score=SCORES, likeness=LIKENESSES)
    def submit(self, source, name, score, likeness):
        given = {"source": source, "source_id": name, "title": "t", "score": score}
        if likeness:
            packed = base64.b64encode(struct.pack("<2f", *likeness)).decode()
            given |= {"embedding": packed, "dedup_threshold": 0.9}
        if any((m.source, m.source_id) == (source, name) for m in self.all):
            self.refused("duplicate_discovery", "discovery.submit", **given)
            return
        found = self.result("discovery.submit", **given)
        alike = {
            m.id for m in self.all if likeness and (m.source, m.likeness) == (source, likeness)
        }
        assert found["verdict"] == ("deduped" if alike else "new")
        if alike:
            assert found["id"] in alike
            self.told.append("discovery.deduped")
        else:
            relevance = round(score * ONE)
            self.all.append(Discovery(found["id"], source, name, relevance, self.now, likeness))
            self.told.append("discovery.submitted")

    @rule(which=WHICH, score=SCORES)
    def score(self, which, score):
        if (m := self.one(which)) is None:
            return
        if not m.is_open:
            self.refused("discovery_refused", "discovery.score", id=m.id, score=score)
            return
        self.result("discovery.score", id=m.id, score=score)
        m.relevance, m.decay, m.status = round(score * ONE), ONE, "scored"
        self.told.append("discovery.scored")

    @rule(score=st.sampled_from([-0.1, 1.1, 1e300]))
    def score_what_cannot_be(self, score):
        self.refused("invalid_score", "discovery.score", id="x", score=score)

    @rule(which=WHICH, bead=st.sampled_from(["b1", "b2"]), force=st.booleans())
    def promote(self, which, bead, force):
        if (m := self.one(which)) is None:
            return
        given = {"id": m.id, "bead_id": bead, "force": force}
        reaches = force or m.relevance * m.decay >= THRESHOLD * ONE
        if m.is_open and reaches:
            assert self.result("discovery.promote", **given)["promoted"]
            m.status, m.bead = "promoted", bead
            self.told.append("discovery.promoted")
        elif m.status == "promoted" and m.bead == bead:
            assert not self.result("discovery.promote", **given)["promoted"]
        else:
            self.refused("discovery_refused", "discovery.promote", **given)

    @rule(which=WHICH)
    def dismiss(self, which):
        if (m := self.one(which)) is None:
            return
        found = self.result("discovery.dismiss", id=m.id)
        assert found["dismissed"] == (m.status != "dismissed")
        if m.status != "dismissed":
            m.status = "dismissed"
            self.told.append("discovery.dismissed")

    @rule(which=WHICH, signal=st.sampled_from(["boost", "penalize", "seen"]))
    def feedback(self, which, signal):
        if (m := self.one(which)) is None:
            return
        self.result("discovery.feedback", id=m.id, signal=signal)
        self.told.append("feedback.recorded")

    @rule(rate=st.sampled_from([0.0, 0.1, 0.5, 1.0]))
    def decay(self, rate):
        keep = ONE - round(rate * ONE)
        fading = [
            m
            for m in self.all
            if m.is_open
            and m.decay > FLOOR
            and keep < ONE
            and m.found_at < self.now - DAY
            and (m.decayed_at is None or abs(self.now - m.decayed_at) >= DAY)
        ]
        assert self.result("discovery.decay", rate=rate)["decayed"] == len(fading)
        for m in fading:
            m.decay, m.decayed_at = max(m.decay * keep // ONE, FLOOR), self.now
        if fading:
            self.told.append("discovery.decayed")

    @rule(source=SOURCES, ago=st.sampled_from([0, DAY, 10 * DAY]), apply=st.booleans())
    def retire(self, source, ago, apply):
        since = (self.now - ago) // 1000
        ours = [
            m for m in self.all if m.source == source and m.is_open and m.found_at // 1000 >= since
        ]
        found = self.result("discovery.retire", source=source, since=since, apply=apply)
        assert found["count"] == len(ours)
        for m in ours if apply else ():
            m.status = "dismissed"
            self.told.append("discovery.dismissed")

    @rule(step=st.sampled_from([1, DAY // 2, DAY, DAY + 1, -DAY // 4]))
    def time_passes(self, step):
        self.host.wall.move(step)

    @invariant()
    def lists_them_by_what_they_are_worth(self):
        found = self.result("discovery.list", limit=1000)
        shown = [(each["id"], each["status"], each["relevance_score"]) for each in found]
        by_worth = sorted(self.all, key=lambda m: (-m.relevance * m.decay, m.id))
        assert shown == [(m.id, m.status, m.relevance * m.decay // ONE / ONE) for m in by_worth]

    def teardown(self) -> None:
        found = self.result("events.tail", source="discovery", limit=10_000)["events"]
        assert [event["type"] for event in found] == self.told
