"""discovery.*: what is refused before anything is locked, settings, retries, files."""

import base64
import json
import time
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw

from icd.app import dispatch
from icd.app import line_files as lines
from icd.errors import (
    DeadlineExceeded,
    DiscoveryRefused,
    DuplicateDiscovery,
    InvalidName,
    InvalidPayload,
    InvalidScore,
    InvalidVector,
    SecretRefused,
    UnreadableInput,
)
from icd.features.events import store as events
from tests.support.processes import until
from tests.support.submitted import vector

GIVEN = {"source": "exa", "source_id": "1", "title": "A title"}
DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def submitted(result):
    """The id of a new discovery."""

    def name(source_id="1", **given):
        return result("discovery.submit", **{**GIVEN, "source_id": source_id, **given}).id

    return name


@pytest.fixture
def setting(database):
    def changed(**values):
        database.settings = msgspec.structs.replace(database.settings, **values)

    return changed


@pytest.fixture
def file(tmp_path):
    def written(*given):
        path = tmp_path / "lines"
        texts = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in given]
        path.write_bytes(b"".join(text + b"\n" for text in texts))
        return str(path)

    return written


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"source": ""}, InvalidName),
        ({"source": "a\tb"}, InvalidName),
        ({"source_id": "a\nb"}, InvalidName),
        ({"title": " "}, InvalidName),
        ({"score": 7.0}, InvalidScore),
        ({"score": float("nan")}, InvalidScore),
        ({"dedup_threshold": 1.5}, InvalidScore),
        ({"metadata": Raw(b"{")}, InvalidPayload),
        ({"metadata": Raw(b'"ghp_0123456789abcdefghijklmnopqrstuvwxyz"')}, SecretRefused),
        ({"embedding": b"12345"}, InvalidVector),
        ({"embedding": bytes(8)}, InvalidVector),
    ],
)
def test_an_unfit_submission_is_refused_before_anything_is_locked(call, given, error):
    with pytest.raises(error):
        call("discovery.submit", **{**GIVEN, **given})


@pytest.mark.parametrize(
    ("method", "params", "error"),
    [
        ("discovery.score", {"id": "x", "score": -0.1}, InvalidScore),
        ("discovery.promote", {"id": "x", "bead_id": ""}, InvalidName),
        ("discovery.promote", {"id": "x", "bead_id": "b", "actor": "a\tb"}, InvalidName),
        ("discovery.feedback", {"id": "x", "signal": ""}, InvalidName),
        ("discovery.feedback", {"id": "x", "signal": "s", "data": Raw(b"no")}, InvalidPayload),
        ("discovery.decay", {"rate": 1.1}, InvalidScore),
        ("discovery.decay", {"rate": 0.1, "min_floor": -1.0}, InvalidScore),
        ("discovery.retire", {"source": "", "since": 0}, InvalidName),
    ],
)
def test_so_is_any_other_unfit_call(call, method, params, error):
    with pytest.raises(error):
        call(method, **params)


def test_a_duplicate_names_the_discovery_that_is_there(ask, submitted):
    name = submitted()

    error = ask("discovery.submit", **GIVEN).error

    assert isinstance(error, DuplicateDiscovery)
    assert error.message == (
        "duplicate discovery: source/source_id already exists: source=exa source_id=1"
    )
    assert name in error.hint


def test_a_submission_that_is_repeated_with_its_request_id_is_no_duplicate(result, conn):
    first = result("discovery.submit", **GIVEN, request_id="r-1")
    again = result("discovery.submit", **GIVEN, request_id="r-1")

    assert again == first
    assert events.head(conn) == 1


def test_a_threshold_without_an_embedding_is_warned_about(ask):
    answer = ask("discovery.submit", **GIVEN, dedup_threshold=0.9)

    assert answer.result.verdict == "new"
    assert answer.warnings == ["not checked for similar discoveries, because there is no embedding"]


def test_the_metadata_is_kept_as_it_was_written(result, submitted):
    name = submitted(metadata=Raw(b' {"b": 1,  "a": 2} '))

    assert result("discovery.get", id=name).raw_metadata == '{"b": 1,  "a": 2}'


def test_settings_say_where_tiers_start(result, submitted, setting):
    name = submitted(score=0.7)
    assert result("discovery.get", id=name).confidence_tier == "medium"

    setting(tier_high=0.65)

    assert result("discovery.get", id=name).confidence_tier == "high"
    assert [found.id for found in result("discovery.list", tier="high")] == [name]
    assert result("discovery.list", tier="medium") == []


def test_searches_go_by_the_same_settings(result, submitted, setting):
    name = submitted(score=0.7, embedding=vector(1.0, 0.0))
    setting(tier_high=0.65)

    found = result("discovery.search", embedding=vector(1.0, 0.0), tier="high")

    assert [(row.id, row.confidence_tier) for row in found] == [(name, "high")]


def test_what_is_compared_is_no_part_of_the_answer_however_much_it_is(ask, submitted, monkeypatch):
    monkeypatch.setattr(dispatch, "RESULT_CHARACTERS", 10_000)
    names = [submitted(str(i), embedding=vector(*[1.0] * 999, i + 2)) for i in range(5)]
    given = {**GIVEN, "source_id": "6", "embedding": vector(*[1.0] * 999, 3.0)}

    found = ask("discovery.search", embedding=given["embedding"], limit=1)
    similar = ask("discovery.submit", **given, dedup_threshold=1.0)

    assert [row.id for row in found.result] == [names[1]]
    assert similar.result.id == names[1]


def test_a_setting_says_what_can_be_promoted(ask, submitted, setting):
    name = submitted(score=0.7)
    setting(promotion_threshold=0.75)

    refused = ask("discovery.promote", id=name, bead_id="b").error

    assert isinstance(refused, DiscoveryRefused)
    assert refused.message.endswith("confidence 0.70 below promotion threshold 0.75")


def test_a_setting_makes_feedback_move_the_score(result, submitted, setting):
    name = submitted(score=0.5)
    assert result("discovery.feedback", id=name, signal="boost").relevance_score == 0.5

    setting(feedback_learning_rate=0.5)

    assert result("discovery.feedback", id=name, signal="boost").relevance_score == 0.75


@pytest.mark.parametrize(("actor", "who"), [("me", "me"), (None, "session-a")])
def test_whoever_forces_a_promotion_is_recorded(result, submitted, conn, actor, who):
    name = submitted()
    result("discovery.promote", id=name, bead_id="b", force=True, actor=actor)

    (event,) = events.read(conn, limit=9, type="discovery.promoted")

    assert msgspec.json.decode(event.payload)["actor"] == who


def test_what_fades_is_shown_with_both_its_numbers(result, submitted, still):
    name = submitted(score=0.8)
    still.wall_ms += 2 * DAY_MS

    assert result("discovery.decay", rate=0.25).decayed == 1

    found = result("discovery.get", id=name)
    assert (found.relevance_score, found.base_score, found.decay) == (0.6, 0.8, 0.75)


def test_lists_leave_out_what_the_original_leaves_out(result, submitted):
    name = submitted(metadata=Raw(b'{"k":1}'))
    result("discovery.promote", id=name, bead_id="b", force=True)
    result("discovery.dismiss", id=name)

    (listed,) = result("discovery.list")

    left_out = {
        "raw_metadata", "bead_id", "promoted_at", "promoted_at_iso",
        "reviewed_at", "reviewed_at_iso",
    }  # fmt: skip
    shown = msgspec.to_builtins(result("discovery.get", id=name))
    assert msgspec.to_builtins(listed) == {k: v for k, v in shown.items() if k not in left_out}
    assert left_out < shown.keys()


# --- many at once -----------------------------------------------------------------------------


def test_each_line_of_a_file_gets_a_verdict(result, submitted, file):
    known = submitted("1", embedding=vector(1.0, 2.0))
    packed = base64.b64encode(vector(5.0, -1.0)).decode()
    path = file(
        {"source_id": "1", "title": "t"},
        {"source_id": "2", "title": "t", "embedding": [2, 4]},
        {"source_id": "3", "title": "t", "embedding": packed},
        {"source_id": "4", "title": "t", "embedding": [5.1, -1.0]},
        {"source_id": "1", "title": "t", "source": "other", "score": 0.5, "metadata": [1]},
    )

    done = result("discovery.submit_file", file=path, source="exa", dedup_threshold=0.99)

    assert [(each.id == known, each.verdict) for each in done.verdicts] == [
        (True, "duplicate"),
        (True, "deduped"),
        (False, "new"),
        (False, "deduped"),
        (False, "new"),
    ]
    assert done.verdicts[3].id == done.verdicts[2].id
    assert (done.new, done.deduped, done.duplicate) == (2, 2, 1)
    assert result("discovery.get", id=done.verdicts[4].id).raw_metadata == "[1]"


def test_a_file_can_be_submitted_again(result, file, conn):
    path = file({"source_id": "1", "title": "t"}, {"source_id": "2", "title": "t"})
    first = result("discovery.submit_file", file=path, source="exa")
    head = events.head(conn)

    again = result("discovery.submit_file", file=path, source="exa")

    assert [each.id for each in again.verdicts] == [each.id for each in first.verdicts]
    assert (again.duplicate, events.head(conn)) == (2, head)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "the line is empty"),
        (b"{", "Input data was truncated"),
        (b"\xff", "malformed"),
        ({"title": "t"}, "Object missing required field `source_id`"),
        ({"source_id": "2", "title": "t", "scoer": 1}, "unknown field `scoer`"),
        ({"source_id": "2", "title": "t", "source": "a\tb"}, "control characters"),
        ({"source_id": "2", "title": ""}, "the title is empty"),
        ({"source_id": "2", "title": "t", "score": 7}, "not between 0 and 1"),
        ({"source_id": "2", "title": "t", "embedding": [0, 0]}, "zero"),
        ({"source_id": "2", "title": "t", "embedding": [1e300, 0]}, "outside the range of float32"),
        ({"source_id": "2", "title": "t", "embedding": [1, 2, 3]}, "3 numbers"),
        ({"source_id": "2", "title": "t", "metadata": "x" * 200_000}, "too long"),
    ],
)
def test_a_line_that_is_wrong_is_named_and_nothing_is_submitted(ask, file, conn, line, reason):
    path = file({"source_id": "1", "title": "t", "embedding": [1, 2]}, line)

    error = ask("discovery.submit_file", file=path, source="exa").error

    assert isinstance(error, UnreadableInput)
    assert error.message.startswith(f"{path}:2: ")
    assert reason in error.message
    assert conn.execute("SELECT count(*) FROM discoveries").fetchone() == (0,)
    assert events.head(conn) == 0


def test_a_line_without_a_source_needs_one_for_all(ask, file):
    error = ask("discovery.submit_file", file=file({"source_id": "1", "title": "t"})).error

    assert error.message.endswith(":1: no source given, in the line or with --source")


def test_a_line_that_is_too_long_is_refused(ask, file):
    path = file(b" " * lines.LINE_BYTES)

    error = ask("discovery.submit_file", file=path, source="exa").error

    assert error.message == f"{path}:1: longer than {lines.LINE_BYTES} bytes"


def test_a_file_that_takes_too_long_is_not_submitted(call, once, file, conn):
    path = file({"source_id": "1", "title": "t"}, {"source_id": "2", "title": "t"})
    # The clock of the batch stands still; lines are timed by the machine's.
    late = call("discovery.submit_file", file=path, source="exa", deadline=time.monotonic() + 0.05)
    late.progress = lambda _done, _total, _what: until(lambda: time.monotonic() >= late.deadline)

    (answer,) = once(late)

    assert isinstance(answer.error, DeadlineExceeded)
    assert answer.error.message == "the deadline passed; nothing was changed"
    assert conn.execute("SELECT count(*) FROM discoveries").fetchone() == (0,)


def test_progress_is_told_by_the_bytes_that_were_read(call, batch, file):
    path = file({"source_id": "1", "title": "t"}, {"source_id": "2", "title": "t"})
    told = []
    planned = call("discovery.submit_file", file=path, source="exa")
    planned.progress = lambda *how_far: told.append(how_far)

    batch(planned)

    size = Path(path).stat().st_size
    assert told == [(size // 2, size, ""), (size, size, "")]
