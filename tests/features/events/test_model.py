"""Any interleaving of writing, reading, acknowledging, pruning and clock steps, against a model.

Consumers are shown every event that was not pruned before they came to it, in order; a cursor moves
back only by set and reset; whoever was overtaken by pruning is told.
"""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from icd.errors import CursorBehind
from icd.features.events import cursors, retention
from icd.features.events import store as events
from icd.features.events.retention import Rule
from icd.features.events.store import Fact, Wanted
from icd.values.processes import Writer
from tests.support.log_model import DURABLE, NOW, SHORT, Model

HOUR = 3_600_000
CONSUMERS = st.sampled_from([DURABLE, SHORT])
RUNS = st.sampled_from(["", "r1"])

OPERATIONS = st.one_of(
    st.tuples(st.just("record"), RUNS, st.integers(1, 3)),
    st.tuples(st.just("read"), CONSUMERS, RUNS, st.integers(1, 4)),
    st.tuples(st.just("ack"), CONSUMERS, RUNS, st.integers(0, 4)),
    st.tuples(st.just("set"), CONSUMERS, RUNS, st.integers(0, 9)),
    st.tuples(st.just("reset"), CONSUMERS),
    st.tuples(st.just("register"), CONSUMERS),
    st.tuples(st.just("prune"), st.integers(0, 5), st.booleans()),
    st.tuples(st.just("prune old"), st.sampled_from([0, HOUR, 2 * HOUR])),
    st.tuples(st.just("clock"), st.sampled_from([-HOUR, HOUR, 1, -1])),
)


def read(model, conn, consumer, run_id, limit):
    """What the model expects is shown, and only if nothing was lost on the way."""
    cursor = cursors.use(conn, consumer, run_id, now_ms=model.now)
    assert (cursor and cursor.seq) == model.cursors.get((consumer, run_id))
    if cursor is not None:
        if cursor.seq < model.pruned:
            with pytest.raises(CursorBehind) as behind:
                events.require_kept(conn, cursor.seq, hint="")
            assert behind.value.facts["oldest"] == (
                model.log[0][0] if model.log else model.head + 1
            )
            return
        events.require_kept(conn, cursor.seq, hint="")
    since = cursor.seq if cursor else 0
    found, more = events.page(conn, Wanted(since=since, limit=limit, run_id=run_id))
    seqs = [event.seq for event in found]
    expected = model.after(since, run_id)
    assert seqs == expected[:limit]
    assert more == (len(expected) >= limit)
    model.shown[consumer, run_id] = seqs


def apply(model, conn, what, *words):
    if what == "clock":
        # Within a day: what a cursor does when it expires is told elsewhere.
        model.now = min(max(model.now + words[0], NOW - 5 * HOUR), NOW + 5 * HOUR)
    elif what == "record":
        for _ in range(words[1]):
            seq = events.append(conn, Fact("ci", "t", words[0]), actor=Writer(), now_ms=model.now)
            model.head += 1
            assert seq == model.head
            model.log.append((seq, words[0], model.now))
    elif what == "read":
        read(model, conn, *words)
    elif what == "ack":
        consumer, run_id, number = words
        shown = model.shown.get((consumer, run_id), [])[:number]
        if shown:
            before = model.cursors.get((consumer, run_id), 0)
            moved = cursors.advance(conn, consumer, run_id, shown[-1], now_ms=model.now)
            assert moved.seq == max(before, shown[-1])
            model.cursors[consumer, run_id] = moved.seq
    elif what == "set":
        consumer, run_id, seq = words[0], words[1], min(words[2], model.head)
        cursors.put(conn, consumer, run_id, seq, now_ms=model.now)
        model.cursors[consumer, run_id] = seq
    elif what == "reset":
        ours = [key for key in model.cursors if key[0] == words[0]]
        assert cursors.reset(conn, words[0], now_ms=model.now) == len(ours)
        for key in ours:
            del model.cursors[key]
        register(model, conn, DURABLE)
    elif what == "register":
        register(model, conn, words[0])
    elif what == "prune":
        keep, force = words
        end = model.log[-keep - 1][0] if keep < len(model.log) else 0
        retention.prune(conn, Rule(keep=keep), force=force, now_ms=model.now)
        model.prune(end if force else min(end, model.floor()))
    elif what == "prune old":
        before = model.now - words[0]
        young = [seq for seq, _, at in model.log if at >= before]
        end = young[0] - 1 if young else model.head
        retention.prune(conn, Rule(before_ms=before), force=False, now_ms=model.now)
        model.prune(min(end, model.floor()))


def register(model, conn, consumer):
    cursors.register(conn, consumer, durable=consumer == DURABLE, now_ms=model.now)
    model.cursors.setdefault((consumer, ""), model.pruned)


@settings(
    deadline=None,
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(operations=st.lists(OPERATIONS, max_size=60))
def test_nothing_is_lost_nothing_is_reordered_and_cursors_are_where_they_should_be(
    scratch, operations
):
    with scratch() as conn:
        model = Model()
        register(model, conn, DURABLE)
        for operation in operations:
            apply(model, conn, *operation)

            assert [event.seq for event in events.read(conn, limit=1000)] == model.after(0, "")
            assert (events.head(conn), events.pruned_through(conn)) == (model.head, model.pruned)
