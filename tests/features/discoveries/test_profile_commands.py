"""`icctl discovery profile`, `rank` and `prune`: what is printed, and the exit codes."""

import json
import struct

import pytest
from msgspec import structs

from tests.conftest import NOW_MS
from tests.support.discovery_lines import DISCOVERY, EMBEDDING, VECTOR
from tests.support.lines import take


@pytest.fixture
def found(conn):
    """Store discoveries."""

    def stored(*lines):
        assert all(take(conn, *lines, now_ms=NOW_MS))

    return stored


@pytest.fixture
def update(ic):
    def output(*words, **world):
        return ic("discovery", "profile", "update", *words, **world)

    return output


# --- profile --------------------------------------------------------------------------------


def test_a_profile_is_three_lines_as_in_the_original(stdout, update):
    assert stdout("discovery", "profile") == (
        "keyword_weights: {}\nsource_weights: {}\nupdated_at: 0\n"
    )

    update("--keyword-weights", '{"a": 1}', "--source-weights={}")

    assert stdout("discovery", "profile") == (
        f'keyword_weights: {{"a": 1}}\nsource_weights: {{}}\nupdated_at: {NOW_MS // 1000}\n'
    )


def test_json_shows_weights_as_strings_and_the_version(stdout, update):
    update("--source-weights", '{"s":2}')

    shown = json.loads(stdout("--json", "discovery", "profile"))

    assert shown == {
        "id": 1, "version": 1, "keyword_weights": "{}", "source_weights": '{"s":2}',
        "topic_dimension": None, "updated_at": NOW_MS // 1000,
        "updated_at_iso": "2027-01-15T08:00:00Z",
    }  # fmt: skip


def test_an_update_says_so(update):
    done = update("--keyword-weights={}", "--source-weights={}")

    assert (done.exit, done.stdout, done.stderr) == (0, b"profile updated\n", b"")


@pytest.mark.parametrize("option", ["--keyword-weights", "--source-weights"])
def test_weights_may_come_from_a_file_of_several_lines(update, stdout, option):
    update(f"{option}=@w.json", files={"w.json": b'{\n  "a": 0.5\n}\n'})

    assert f'{option[2:].replace("-", "_")}: {{   "a": 0.5 }}\n' in stdout("discovery", "profile")


def test_a_topic_comes_from_a_file_and_can_be_forgotten(update):
    def dimension(output):
        return json.loads(output.stdout)["topic_dimension"]

    assert dimension(update("--topic-vector=@t.f32", "--json", files={"t.f32": VECTOR})) == 3
    assert dimension(update("--keyword-weights={}", "--json")) == 3
    assert dimension(update("--topic-vector=", "--json")) is None


def test_finding_8_an_update_of_another_version_is_a_no_that_names_both(update, stdout):
    """Else whoever comes last would win, and nobody would know."""
    update("--keyword-weights", '{"a": 1}')

    refused = update("--keyword-weights={}", "--if-version=0")

    assert (refused.exit, refused.stdout) == (1, b"")
    assert b"the profile already exists (version 1); re-read it" in (refused.stderr)
    assert 'keyword_weights: {"a": 1}' in stdout("discovery", "profile")
    assert update("--keyword-weights={}", "--if-version=1").exit == 0


@pytest.mark.parametrize(
    "words, exit_code, told",
    [
        ([], 3, b"pass --keyword-weights, --source-weights or --topic-vector"),
        (["--if-version=1"], 3, b"pass --keyword-weights"),
        (["--if-version=x", "--keyword-weights={}"], 3, b"'x' is not an integer"),
        (["--keyword-weights=null"], 3, b"weights must be a JSON object; use {} for no weights"),
        (["--keyword-weights=x"], 2, b"invalid JSON payload"),
        (["--keyword-weights=[]"], 2, b"not an object of numbers"),
        (["--source-weights", '{"a": "1"}'], 2, b"not an object of numbers"),
        (["--keyword-weights=@gone"], 2, b"cannot read gone: No such file"),
        (["--topic-vector=t.f32"], 3, b"use --topic-vector=@FILE"),
        (["--topic-vector=@empty"], 3, b"empty is empty; use --topic-vector= to clear"),
        (["--topic-vector=@odd"], 2, b"3 bytes is not a multiple of 4 bytes (float32)"),
        (["--topic-vector=@nan"], 2, b"a number that is not finite"),
        (["extra"], 3, b"unexpected"),
    ],
)
def test_what_is_no_update_is_refused_and_changes_nothing(update, stdout, words, exit_code, told):
    files = {
        "gone": "No such file or directory", "empty": b"", "odd": b"abc",
        "nan": struct.pack("<f", float("nan")),
    }  # fmt: skip
    output = update(*words, files=files)

    assert (output.exit, output.stdout) == (exit_code, b"")
    assert told in output.stderr
    assert "updated_at: 0\n" in stdout("discovery", "profile")


@pytest.mark.parametrize("words", [["show"], ["--keyword-weights={}"], ["--if-version=1"]])
def test_only_update_changes_it(ic, words):
    assert ic("discovery", "profile", *words).exit == 3


# --- rank -----------------------------------------------------------------------------------


def test_a_ranking_explains_itself(stdout, update, found):
    found(DISCOVERY, EMBEDDING, structs.replace(DISCOVERY, id="b", source="exa", decay=0))
    update(
        "--keyword-weights", '{"title": 0.25, "summary": -0.5}', "--source-weights",
        '{"arxiv": 1}', "--topic-vector=@t", files={"t": VECTOR},
    )  # fmt: skip

    assert stdout("discovery", "rank") == (
        "disc1\tarxiv\ta title\tscored\t2.40\t"
        "0.65 score, -0.50 summary, +0.25 title, +1.00 arxiv, +1.00 topic\n"
        "b\texa\ta title\tscored\t-0.25\t0.00 score, -0.50 summary, +0.25 title\n"
    )


def test_a_ranking_as_json_is_an_array(stdout, found):
    assert stdout("discovery", "rank", "--json") == "[]\n"

    found(DISCOVERY)

    (item,) = json.loads(stdout("discovery", "rank", "--json"))
    assert (item["rank_score"], item["keywords"], item["similarity"]) == (0.6525, {}, None)


def test_filters_and_a_limit_narrow_a_ranking(stdout, found):
    found(
        DISCOVERY,
        structs.replace(DISCOVERY, id="b", source="exa", status="dismissed"),
        structs.replace(DISCOVERY, id="c", source="exa", source_id="c"),
    )

    def ids(*words):
        return [line.split("\t")[0] for line in stdout("discovery", "rank", *words).splitlines()]

    assert ids() == ["c", "disc1"]
    assert ids("--limit=1") == ["c"]
    assert ids("--source=arxiv") == ["disc1"]
    assert ids("--status", "dismissed") == ["b"]
    assert ids("--status=new") == []


@pytest.mark.parametrize("words", [["--limit=0"], ["--limit=1001"], ["--status=odd"], ["x"]])
def test_a_ranking_that_cannot_be_is_a_usage_error(ic, words):
    assert ic("discovery", "rank", *words).exit == 3


# --- prune ----------------------------------------------------------------------------------


def test_pruning_tells_how_many_went(stdout, found):
    found(structs.replace(DISCOVERY, status="dismissed", dismissed_ms=NOW_MS - 3_600_000))

    assert stdout("discovery", "prune", "--older-than=2h") == "0 pruned\n"
    assert stdout("discovery", "prune", "--older-than", "1h") == "1 pruned\n"
    assert stdout("discovery", "prune", "--older-than=0", "--json") == '{"pruned":0}\n'


@pytest.mark.parametrize("words", [[], ["--older-than=x"], ["--older-than=-1h"]])
def test_pruning_needs_an_age(ic, words):
    assert ic("discovery", "prune", *words).exit == 3
