"""Every event goes to its hooks once, in order."""

import sqlite3

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icd.db import migrate
from icd.features.events import retention
from icd.features.events import store as events
from icd.features.events.store import Fact
from icd.features.triggers import store as hooks
from icd.features.triggers.store import NAMES, Delivery, Done
from icd.values.processes import Writer
from tests.conftest import NOW_MS

ME = Writer()


def record(conn, source: str = "phase", type: str = "advance", **facts) -> int:  # noqa: A002
    return events.append(conn, Fact(source, type, **facts), actor=ME, now_ms=NOW_MS)


def finish(conn, delivery: Delivery, problem: str = "", status: int = 0) -> None:
    done = Done(delivery.hook, delivery.seq, delivery.run_id, problem, status)
    hooks.finish(conn, done, actor=ME, now_ms=NOW_MS)


def deliver_all(conn, names=NAMES, problem: str = "") -> list[tuple[int, str]]:
    found = []
    while delivery := hooks.start_next(conn, names):
        found.append((delivery.seq, delivery.hook))
        finish(conn, delivery, problem, 1 if problem else 0)
    return found


def test_a_hook_starts_with_the_event_after_it_was_trusted(conn):
    record(conn)
    assert hooks.begin(conn, ["on-event"]) == 1
    assert not hooks.is_pending(conn, ["on-event"])

    record(conn)

    assert hooks.is_pending(conn, ["on-event"])
    assert deliver_all(conn, ["on-event"]) == [(2, "on-event")]
    assert not hooks.is_pending(conn, ["on-event"])


def test_an_event_goes_to_the_hook_of_its_source_and_to_the_one_for_all(conn):
    hooks.begin(conn, NAMES)
    for source in ("phase", "review", "discovery", "dispatch"):
        record(conn, source)

    delivered = deliver_all(conn)

    assert delivered == [
        (1, "on-phase-advance"),
        (1, "on-event"),
        (2, "on-event"),
        (3, "on-discovery"),
        (3, "on-event"),
        (4, "on-dispatch-change"),
        (4, "on-event"),
    ]


def test_a_delivery_brings_the_event_as_tail_shows_it(conn):
    hooks.begin(conn, ["on-event"])
    record(conn, "phase", "advance", run_id="r1", from_state="a", to_state="b", payload='{"x":1}')

    delivery = hooks.start_next(conn, ["on-event"])

    (event,) = events.read(conn, limit=1)
    assert delivery == Delivery(
        "on-event", 1, "phase", "advance", "r1", msgspec.json.encode(event).decode()
    )


def test_what_was_started_and_never_finished_is_delivered_again_and_marked(conn):
    hooks.begin(conn, ["on-event"])
    record(conn)
    record(conn)
    first = hooks.start_next(conn, ["on-event"])

    again = hooks.start_next(conn, ["on-event"])

    assert first is not None
    assert again is not None
    assert (again.seq, again.redelivery) == (1, True)
    assert again.event == first.event[:-1] + ',"redelivery":true}'
    assert msgspec.json.decode(again.event)["redelivery"] is True
    finish(conn, again)
    following = hooks.start_next(conn, ["on-event"])
    assert following is not None
    assert (following.seq, following.redelivery) == (2, False)


def test_a_failure_is_an_event_of_its_own_that_goes_to_no_hook(conn):
    hooks.begin(conn, ["on-event"])
    record(conn, run_id="r1")

    delivered = deliver_all(conn, ["on-event"], problem="exited with 1")

    assert delivered == [(1, "on-event")]
    (failure,) = events.read(conn, limit=10, source="hook")
    assert (failure.type, failure.run_id, failure.subject_id) == ("failed", "r1", "on-event")
    assert failure.reason == "on-event exited with 1"
    assert failure.payload == msgspec.Raw(b'{"hook":"on-event","seq":1,"status":1}')
    assert not hooks.is_pending(conn, ["on-event"])


def test_a_hook_without_a_position_does_not_get_the_past(conn):
    record(conn)
    assert hooks.is_pending(conn, ["on-event"])

    assert hooks.start_next(conn, ["on-event"]) is None

    record(conn)
    assert deliver_all(conn, ["on-event"]) == [(2, "on-event")]


def test_a_hook_that_is_away_for_a_while_gets_what_it_has_missed(conn):
    hooks.begin(conn, ["on-event", "on-discovery"])
    record(conn, "discovery")
    assert deliver_all(conn, ["on-event"]) == [(1, "on-event")]

    assert deliver_all(conn, ["on-discovery", "on-event"]) == [(1, "on-discovery")]


def test_what_was_pruned_is_skipped(conn):
    hooks.begin(conn, ["on-event"])
    record(conn)
    record(conn)
    conn.execute("DELETE FROM events WHERE seq = 1")

    assert deliver_all(conn, ["on-event"]) == [(2, "on-event")]


def test_what_is_on_its_way_to_a_hook_is_not_pruned(conn):
    hooks.begin(conn, NAMES)
    for _ in range(3):
        record(conn)
    rule = retention.Rule(keep=0)
    delivery = hooks.start_next(conn, NAMES)
    assert delivery is not None

    retention.prune(conn, rule, force=False, now_ms=NOW_MS)

    assert events.oldest(conn) == 1
    finish(conn, delivery)
    assert deliver_all(conn)[-1] == (3, "on-event")
    assert retention.prune(conn, rule, force=False, now_ms=NOW_MS).pruned == 3


def test_what_a_hook_is_owed_is_not_pruned_while_nobody_delivers_it(conn):
    hooks.begin(conn, ["on-event"])
    for _ in range(3):
        record(conn)
    delivery = hooks.start_next(conn, ["on-event"])
    assert delivery is not None
    finish(conn, delivery)

    pruned = retention.prune(conn, retention.Rule(keep=0), force=False, now_ms=NOW_MS)

    assert (pruned.pruned, pruned.held) == (1, 2)
    assert deliver_all(conn, ["on-event"]) == [(2, "on-event"), (3, "on-event")]


def test_a_hook_that_nothing_concerns_holds_nothing(conn):
    hooks.begin(conn, ["on-discovery"])
    record(conn, "phase")

    assert hooks.floor(conn) is None


def test_what_was_not_started_here_does_not_end_here(conn):
    hooks.begin(conn, ["on-event"])
    record(conn)

    finish(conn, Delivery("on-event", 7, "phase", "advance", "", "{}"))

    assert deliver_all(conn, ["on-event"]) == [(1, "on-event")]


def test_a_hook_that_is_trusted_no_longer_holds_nothing(conn):
    hooks.begin(conn, NAMES)
    record(conn)
    hooks.start_next(conn, NAMES)
    assert hooks.floor(conn) == 0

    hooks.end(conn, NAMES)

    assert hooks.floor(conn) is None


@pytest.mark.sqlite_only
@pytest.mark.parametrize(
    ("statement", "wanted"),
    [(hooks.NEXT, (0,)), (hooks.NEXT_OF_SOURCE, ("phase", 0))],
)
def test_the_next_event_is_found_without_a_scan(conn, statement, wanted):
    plan = " ".join(row[3] for row in conn.execute(f"EXPLAIN QUERY PLAN {statement}", wanted))

    assert plan.startswith("SEARCH events USING")
    assert "TEMP B-TREE" not in plan


STEPS = st.one_of(
    st.tuples(st.just("record"), st.sampled_from(["phase", "dispatch", "discovery", "review"])),
    st.tuples(st.just("deliver"), st.sampled_from(["", "exited with 1"])),
    st.tuples(st.just("crash"), st.none()),
)


@given(st.lists(STEPS, max_size=40))
def test_whatever_fails_or_crashes_each_hook_gets_each_of_its_events_in_order(steps):
    conn = sqlite3.connect(":memory:", isolation_level=None)
    migrate.apply(conn, "", now_ms=NOW_MS)
    hooks.begin(conn, NAMES)
    owed: dict[str, list[int]] = {name: [] for name in NAMES}
    had: dict[str, list[int]] = {name: [] for name in NAMES}
    crashed: set[tuple[str, int]] = set()

    def step(kind: str, argument: str | None) -> bool:
        if kind == "record":
            seq = record(conn, argument)
            for name, source in hooks.SOURCES.items():
                if source in (None, argument):
                    owed[name].append(seq)
            return True
        delivery = hooks.start_next(conn, NAMES)
        if delivery is None:
            return False
        assert delivery.redelivery == ((delivery.hook, delivery.seq) in crashed)
        if kind == "crash":
            crashed.add((delivery.hook, delivery.seq))
        else:
            had[delivery.hook].append(delivery.seq)
            finish(conn, delivery, argument or "")
        return True

    for kind, argument in steps:
        step(kind, argument)
    while step("deliver", ""):
        pass

    assert had == owed
    conn.close()
