"""events.* and cursor.*: the log as the API tells it."""

import msgspec
import pytest

from icd.errors import CursorBehind, InvalidName, InvalidPayload, NoSuchEvent, SecretRefused
from icd.features.events import record as records
from icd.features.events.cursors import DAY_MS
from icd.features.events.store import Marks

PAYLOADS = {
    "agency": {"agency_name": "a", "cycle_id": "c", "stage": "s"},
    "interspect": {"agent_name": "a"},
    "review": {
        "finding_id": "f", "agents": {"a": 1}, "resolution": "r", "chosen_severity": "P1",
        "impact": "i",
    },
    "coordination": {"lock_id": "l", "owner": "o", "pattern": "*", "scope": "s"},
    "intent": {"intent_type": "t", "bead_id": "b", "idempotency_key": "k"},
}  # fmt: skip
TYPES = {"review": "execution_defect"}


@pytest.fixture
def record(result):
    def recorded(source="ci", kind="built", payload=None, **params):
        text = None if payload is None else msgspec.json.encode(payload).decode()
        return result("events.record", source=source, type=kind, payload=text, **params)

    return recorded


@pytest.fixture
def tail(result):
    def seqs(**params):
        return [event.seq for event in result("events.tail", **params).events]

    return seqs


@pytest.fixture
def consume(result):
    def seqs(consumer="c", **params):
        return [e.seq for e in result("events.consume", consumer=consumer, **params).events]

    return seqs


def test_an_event_is_recorded_with_who_did_it(record, result):
    done = record(session="other", trace_id="t", span_id="s", project_dir="/p")
    record()

    first, second = result("events.tail").events
    assert (done.seq, done.recorded) == (1, True)
    assert (first.pid, first.session, first.trace_id, first.span_id) == (41, "other", "t", "s")
    assert (second.session, second.trace_id) == ("session-a", None)


def test_a_key_tells_the_first_number_again(record):
    first, again = record(idempotency_key="k"), record(idempotency_key="k")

    assert [first.seq, again.seq] == [1, 1]
    assert [first.recorded, again.recorded] == [True, False]


def test_a_retry_is_told_the_same_and_records_nothing(record, tail):
    first, again = record(request_id="r"), record(request_id="r")

    assert first == again
    assert tail() == [1]


@pytest.mark.parametrize("source", PAYLOADS)
def test_the_sources_of_the_contract_say_what_they_must(record, result, source):
    kind, key = TYPES.get(source, "t"), {"agency": "k"}.get(source)

    record(source, kind, PAYLOADS[source], idempotency_key=key)

    (event,) = result("events.tail").events
    assert event.subject_id == PAYLOADS[source][records.SOURCES[source].subject]
    assert event.idempotency_key == {"agency": "k", "intent": "k"}.get(source)


@pytest.mark.parametrize(
    "source, missing", [(source, name) for source, said in PAYLOADS.items() for name in said]
)
def test_a_source_that_leaves_out_a_field_is_refused(record, source, missing):
    said = {name: value for name, value in PAYLOADS[source].items() if name != missing}

    with pytest.raises(InvalidPayload, match=f"{source} lacks {missing}"):
        record(source, TYPES.get(source, "t"), said, idempotency_key="k")


@pytest.mark.parametrize(
    "source, kind, payload",
    [
        ("review", "other", PAYLOADS["review"]),
        ("review", "execution_defect", {**PAYLOADS["review"], "agents": []}),
        ("agency", "t", PAYLOADS["agency"]),
        ("interspect", "t", None),
        ("interspect", "t", ["agent_name"]),
        ("interspect", "t", {"agent_name": ""}),
    ],
)
def test_what_the_contract_forbids_is_refused(record, source, kind, payload):
    with pytest.raises(InvalidPayload):
        record(source, kind, payload)


def test_names_and_payloads_are_judged(record):
    with pytest.raises(InvalidName):
        record("Not a source")
    with pytest.raises(SecretRefused):
        record(payload={"note": "ghp_0123456789abcdefghijklmnopqrstuvwxyz"})


def test_the_batch_says_where_to_go_on(record, result):
    for _ in range(3):
        record()

    first = result("events.tail", limit=2)
    rest = result("events.tail", limit=2, since=first.through)
    none = result("events.tail", type="other")

    assert (first.through, first.more) == (2, True)
    assert (rest.through, rest.more) == (3, False)
    assert (none.events, none.through, none.more) == ([], 3, False)


# --- consumers ------------------------------------------------------------------------------


def test_a_batch_is_shown_again_until_it_is_acknowledged(record, consume, result):
    for _ in range(3):
        record()

    assert [consume(limit=2), consume(limit=2)] == [[1, 2], [1, 2]]

    result("cursor.ack", consumer="c", seq=1)

    assert consume(limit=2) == [2, 3]
    assert consume(limit=2, acked=3) == []


def test_an_explicit_place_is_read_from_and_leaves_the_cursor_alone(record, consume):
    for _ in range(3):
        record("phase")
    consume(acked=3)

    assert consume(since=1) == [2, 3]
    assert consume(marks=Marks(phase=2)) == [3]
    assert consume() == []


def test_whoever_is_overtaken_by_pruning_is_told_so_until_it_decides(record, ask, consume, result):
    for _ in range(5):
        record()
    consume(acked=1)
    result("events.prune", keep=2)

    error = ask("events.consume", consumer="c").error

    assert isinstance(error, CursorBehind)
    assert error.data["oldest"] == 4
    assert "icctl events cursor reset c" in error.hint
    assert [place.behind for place in result("cursor.list")] == [True]
    result("cursor.reset", consumer="c")
    assert consume() == [4, 5]


def test_a_new_consumer_of_a_pruned_log_begins_with_the_oldest(record, consume, tail, ask, result):
    for _ in range(3):
        record()
    result("events.prune", keep=1)
    result("cursor.register", consumer="registered")

    assert [consume("new"), consume("registered"), tail(), tail(since=2)] == [[3]] * 4
    assert isinstance(ask("events.tail", since=1).error, CursorBehind)


def test_a_cursor_that_expired_is_not_silent_about_it(record, ask, consume, still):
    record()
    consume(acked=1)
    still.wall_ms += DAY_MS

    answer = ask("events.consume", consumer="c")

    assert [event.seq for event in answer.result.events] == [1]
    assert "starts again at the oldest event" in answer.warnings[0]
    assert "register c --durable" in answer.warnings[0]
    assert not ask("events.consume", consumer="new").warnings


def test_pruning_keeps_what_a_durable_cursor_needs_and_says_how_much(record, result, tail):
    for _ in range(4):
        record()
    result("cursor.register", consumer="c", durable=True)
    result("cursor.ack", consumer="c", seq=1)

    done = result("events.prune", keep=1)

    assert (done.pruned, done.through, done.held) == (1, 1, 2)
    assert tail() == [2, 3, 4]
    assert result("events.prune", keep=1, force=True).pruned == 2


def test_pruning_by_age_counts_from_now(record, result, tail, still):
    record()
    still.wall_ms += 1000
    record()
    still.wall_ms += 1000

    result("events.prune", older_than_ms=1500)

    assert tail() == [2]


# --- cursors --------------------------------------------------------------------------------


def test_a_cursor_tells_its_place_in_both_terms_and_its_lag(record, result):
    for source in ("phase", "dispatch", "phase", "ci"):
        record(source)
    result("cursor.set", consumer="c", seq=2)

    (place,) = result("cursor.list")

    assert result("cursor.get", consumer="c") == place
    assert msgspec.to_builtins(place) == {
        "consumer": "c", "run_id": "", "phase": 1, "dispatch": 2, "interspect": 0, "discovery": 0,
        "seq": 2, "lag": 2, "durable": False, "updated_at": 1_800_000_000,
        "updated_at_iso": "2027-01-15T08:00:00Z", "expires_at": 1_800_086_401,
        "expires_at_iso": "2027-01-16T08:00:01Z",
    }  # fmt: skip


def test_a_cursor_is_set_by_the_ids_of_the_original(record, result, consume):
    for source in ("phase", "dispatch", "phase"):
        record(source)

    result("cursor.set", consumer="c", marks=Marks(phase=1, dispatch=2))

    assert consume() == [3]


def test_one_word_names_the_cursor_of_a_run(record, result):
    record(run_id="r1")
    result("cursor.ack", consumer="c", run_id="r1", seq=1)

    assert result("cursor.get", consumer="c:r1").seq == 1
    assert result("cursor.get", consumer="c") is None
    assert result("cursor.reset", consumer="c").reset == 1


def test_what_has_not_happened_cannot_be_acknowledged(ask):
    assert isinstance(ask("cursor.ack", consumer="c", seq=1).error, NoSuchEvent)
    assert isinstance(ask("events.consume", consumer="c", acked=1).error, NoSuchEvent)
