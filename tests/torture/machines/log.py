"""The log with its cursors: nothing is lost, nothing comes again in another order."""

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from tests.support.log_model import DURABLE, SHORT, Model
from tests.torture.machines.machine import Machine

HOUR = 3_600_000
CONSUMERS = st.sampled_from([DURABLE, SHORT])
RUNS = st.sampled_from(["", "r1"])


class Log(Machine):
    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.begun = self.now
        self.keys: dict[str, int] = {}
        self.register(consumer=DURABLE)

    @rule(consumer=CONSUMERS)
    def register(self, consumer):
        self.result("cursor.register", consumer=consumer, durable=consumer == DURABLE)
        self.model.cursors.setdefault((consumer, ""), self.model.pruned)

    @rule(run_id=RUNS, key=st.sampled_from([None, None, "k1", "k2"]))
    def record(self, run_id, key):
        given = {"source": "ci", "type": "t", "run_id": run_id, "idempotency_key": key}
        found = self.result("events.record", payload={"n": self.model.head}, **given)
        kept = self.keys.get(key)
        if kept is not None and kept in self.model.after(0, ""):
            assert found == {"seq": kept, "recorded": False}
            return
        self.model.head += 1
        assert found == {"seq": self.model.head, "recorded": True}
        self.model.log.append((self.model.head, run_id, self.now))
        self.keys[key] = self.model.head if key else 0

    @rule(consumer=CONSUMERS, run_id=RUNS, limit=st.integers(1, 4))
    def consume(self, consumer, run_id, limit):
        place = consumer, run_id
        given = {"consumer": consumer, "run_id": run_id, "limit": limit}
        since = self.model.cursors.get(place)
        if since is not None and since < self.model.pruned:
            self.refused("cursor_behind", "events.consume", **given)
            return
        found = self.result("events.consume", **given)
        seqs = [event["seq"] for event in found["events"]]
        expected = self.model.after(since or 0, run_id)
        assert seqs == expected[:limit], f"{consumer} after {since} was shown {seqs}"
        assert found["more"] == (len(expected) >= limit)
        assert found["through"] == (seqs[-1] if found["more"] else self.model.head)
        self.model.shown[place] = seqs

    @rule(consumer=CONSUMERS, run_id=RUNS, number=st.integers(1, 4))
    def ack(self, consumer, run_id, number):
        place = consumer, run_id
        shown = self.model.shown.get(place, [])[:number]
        if shown:
            moved = self.result("cursor.ack", consumer=consumer, run_id=run_id, seq=shown[-1])
            self.model.cursors[place] = max(self.model.cursors.get(place, 0), shown[-1])
            assert moved["seq"] == self.model.cursors[place]

    @rule(consumer=CONSUMERS, run_id=RUNS, back=st.integers(1, 3))
    def ack_again(self, consumer, run_id, back):
        here = self.model.cursors.get((consumer, run_id), 0)
        if here:
            given = {"consumer": consumer, "run_id": run_id, "seq": max(0, here - back)}
            assert self.result("cursor.ack", **given)["seq"] == here, "a cursor went back"

    @rule(consumer=CONSUMERS, run_id=RUNS, ahead=st.integers(1, 3))
    def ack_what_has_not_happened(self, consumer, run_id, ahead):
        given = {"consumer": consumer, "run_id": run_id, "seq": self.model.head + ahead}
        self.refused("no_such_event", "cursor.ack", **given)

    @rule(consumer=CONSUMERS, run_id=RUNS, seq=st.integers(0, 9))
    def set(self, consumer, run_id, seq):
        seq = min(seq, self.model.head)
        self.result("cursor.set", consumer=consumer, run_id=run_id, seq=seq)
        self.model.cursors[consumer, run_id] = seq

    @rule(consumer=CONSUMERS)
    def reset(self, consumer):
        ours = [key for key in self.model.cursors if key[0] == consumer]
        assert self.result("cursor.reset", consumer=consumer)["reset"] == len(ours)
        for key in ours:
            del self.model.cursors[key]
        self.register(consumer=DURABLE)

    @rule(keep=st.integers(0, 5), force=st.booleans())
    def prune(self, keep, force):
        log = self.model.log
        end = log[-keep - 1][0] if keep < len(log) else 0
        self.result("events.prune", keep=keep, force=force)
        self.model.prune(end if force else min(end, self.model.floor()))

    @rule(age=st.sampled_from([0, HOUR, 2 * HOUR]))
    def prune_old(self, age):
        young = [seq for seq, _, at in self.model.log if at >= self.now - age]
        end = young[0] - 1 if young else self.model.head
        self.result("events.prune", older_than_ms=age)
        self.model.prune(min(end, self.model.floor()))

    @rule(step=st.sampled_from([-HOUR, HOUR, 1, -1]))
    def time_passes(self, step):
        # Within a day: what a cursor does when it expires is told elsewhere.
        if abs(self.now + step - self.begun) <= 5 * HOUR:
            self.host.wall.move(step)

    @invariant()
    def shows_what_was_kept(self):
        found = self.result("events.tail", limit=10_000)["events"]
        assert [event["seq"] for event in found] == self.model.after(0, "")

    @rule()
    def shows_where_everybody_is(self):
        found = self.result("cursor.list")
        shown = {(each["consumer"], each["run_id"]): each["seq"] for each in found}
        assert shown == self.model.cursors
