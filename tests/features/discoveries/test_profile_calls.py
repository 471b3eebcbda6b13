"""discovery.profile, .update_profile, .rank and .prune, as they are called."""

import json
import struct

import pytest
from msgspec import Raw, structs

from icd.errors import (
    InvalidName,
    InvalidParams,
    InvalidPayload,
    InvalidVector,
    InvalidWeights,
    ProfileConflict,
)
from icd.features.discoveries import rank as ranking
from tests.support.call_fixtures import NOW_MS
from tests.support.discovery_lines import DISCOVERY, EMBEDDING, VECTOR
from tests.support.lines import take


@pytest.fixture
def update(result):
    def done(**params):
        raws = {
            name: Raw(value.encode()) if name.endswith("weights") else value
            for name, value in params.items()
        }
        return result("discovery.update_profile", **raws)

    return done


@pytest.fixture
def found(conn):
    """Store discoveries."""

    def stored(*lines):
        assert all(take(conn, *lines, now_ms=NOW_MS))

    return stored


def test_a_profile_that_nobody_has_set_has_the_originals_defaults(result):
    shown = result("discovery.profile")

    assert structs.astuple(shown) == (1, 0, "{}", "{}", None, 0, None)


def test_an_update_answers_with_what_there_is_now(update, result):
    update(keyword_weights='{"a": 1}', topic_vector=VECTOR)

    done = update(source_weights='{"s": 2}', if_version=1)

    assert (done.version, done.topic_dimension) == (2, 3)
    assert (done.keyword_weights, done.source_weights) == ('{"a": 1}', '{"s": 2}')
    assert (done.updated_at, done.updated_at_iso) == (NOW_MS // 1000, "2027-01-15T08:00:00Z")
    assert result("discovery.profile") == done


def test_a_retry_is_answered_with_the_first_outcome(update, result):
    first = update(keyword_weights='{"a": 1}', if_version=0, request_id="r1")

    assert update(keyword_weights='{"a": 1}', if_version=0, request_id="r1") == first
    assert result("discovery.profile").version == 1


def test_an_update_that_expects_another_version_is_a_conflict(update):
    update(keyword_weights="{}")

    with pytest.raises(ProfileConflict):
        update(keyword_weights="{}", if_version=0)


@pytest.mark.parametrize(
    "params, error",
    [
        ({}, InvalidParams),
        ({"if_version": 1}, InvalidParams),
        ({"keyword_weights": "[]"}, InvalidWeights),
        ({"keyword_weights": '{"!": 1}'}, InvalidWeights),
        ({"source_weights": '{"a": "b"}'}, InvalidWeights),
        ({"source_weights": "{"}, InvalidPayload),
        ({"topic_vector": b"abc"}, InvalidVector),
        ({"topic_vector": struct.pack("<f", float("nan"))}, InvalidVector),
        ({"topic_vector": struct.pack("<f", 0)}, InvalidVector),
    ],
)
def test_what_is_no_profile_is_refused_before_anything_is_locked(update, params, error):
    with pytest.raises(error):
        update(**params)


def test_a_ranking_shows_a_discovery_with_its_reasons(update, result, found):
    found(DISCOVERY, EMBEDDING)
    update(keyword_weights='{"title": 0.25}', source_weights='{"arxiv": -1}', topic_vector=VECTOR)

    (item,) = result("discovery.rank")

    assert (item.id, item.source_id, item.status) == ("disc1", "2401.1", "scored")
    assert (item.summary, item.url) == ("a summary", "https://example.org")
    assert item.relevance_score == 0.6525
    assert (item.keywords, item.source_weight, item.similarity) == ({"title": 0.25}, -1.0, 1.0)
    assert item.rank_score == 0.9025


def test_a_ranking_that_was_cut_says_so(ask, found, monkeypatch):
    monkeypatch.setattr(ranking, "CANDIDATES", 1)
    found(DISCOVERY)
    assert list(ask("discovery.rank").warnings) == []

    found(structs.replace(DISCOVERY, id="b", source_id="b"))
    answer = ask("discovery.rank")

    assert len(answer.result) == 1
    assert answer.warnings[0].startswith("only the 1 with the highest scores were ranked; ")


def test_a_source_that_no_discovery_can_have_is_refused(call):
    with pytest.raises(InvalidName):
        call("discovery.rank", source="a\tb")


def test_pruning_goes_by_the_age_of_the_dismissal(result, found, still):
    found(structs.replace(DISCOVERY, status="dismissed", dismissed_ms=NOW_MS))
    still.wall_ms = NOW_MS + 59_999
    assert result("discovery.prune", older_than_ms=60_000).pruned == 0

    still.wall_ms += 1

    assert result("discovery.prune", older_than_ms=60_000).pruned == 1
    assert result("discovery.rank", status="dismissed") == []


def test_the_parameters_can_be_described(result):
    from icd.app.reference.openrpc import document

    described = {method["name"]: method for method in document()["methods"]}

    names = [param["name"] for param in described["discovery.update_profile"]["params"]]
    assert {"keyword_weights", "source_weights", "topic_vector", "if_version"} <= set(names)
    json.dumps(described)
