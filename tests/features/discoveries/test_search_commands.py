"""`icctl discovery search`: from argv to what is printed."""

import json

import pytest

from icd.app.invocation import Need
from icd.features.discoveries.search import PATH_CHARACTERS, SEARCH_DEADLINE_MS, Search
from tests.support.discovered import discover, packed


@pytest.fixture
def several(conn):
    discover(conn, "d1", packed(1.0, 0.0), score=0.9)
    discover(conn, "d2", packed(3.0, 4.0), source="arxiv", score=0.123456)
    discover(conn, "d3", packed(0.0, -1.0), status="dismissed")
    return conn


QUERY = {"q": packed(1.0, 0.0)}


@pytest.mark.usefixtures("several")
def test_a_line_has_the_columns_of_the_original(stdout):
    shown = stdout("discovery", "search", "--embedding=@q", files=QUERY)

    assert shown == (
        "d1\ts\tAbout d1\t0.90\t1.0000\thigh\nd2\tarxiv\tAbout d2\t0.12\t0.6000\tdiscard\n"
    )


@pytest.mark.usefixtures("several")
def test_json_has_the_fields_of_the_original_and_the_similarity(stdout):
    shown = stdout("discovery", "search", "--embedding=@q", "--json", "--limit=1", files=QUERY)

    assert list(json.loads(shown)[0].items()) == list(
        {
            "id": "d1",
            "source": "s",
            "source_id": "d1",
            "title": "About d1",
            "relevance_score": 0.9,
            "confidence_tier": "high",
            "status": "new",
            "discovered_at": 1,
            "similarity": 1.0,
        }.items()
    )


@pytest.mark.usefixtures("several")
def test_nothing_found_is_nothing_printed(stdout):
    words = ("discovery", "search", "--embedding=@q", "--source=nobody")

    assert stdout(*words, files=QUERY) == ""
    assert stdout(*words, "--json", files=QUERY) == "[]\n"


@pytest.mark.usefixtures("several")
def test_an_existing_file_is_read_without_the_sign_but_with_a_warning(ic):
    output = ic("discovery", "search", "--embedding=q", files=QUERY)

    assert output.exit == 0
    assert output.stdout.startswith(b"d1\t")
    assert output.stderr == (
        b"icctl: discovery search: warning: q is read as a file; use --embedding=@q\n"
    )


@pytest.mark.usefixtures("several")
def test_what_is_no_file_is_taken_literally(ic):
    output = ic("discovery", "search", "--embedding=abcde", files={"abcde": "No such file"})

    assert output.exit == 2
    assert b"an embedding of 5 bytes is not a multiple of 4 bytes (float32)" in output.stderr


def test_what_is_too_long_for_a_path_is_never_looked_for(invoke):
    planned = invoke("discovery", "search", "--embedding=" + "x" * (PATH_CHARACTERS + 4))

    assert not isinstance(planned, Need)


def test_a_file_that_cannot_be_read_is_named(ic):
    output = ic("discovery", "search", "--embedding=@q", files={"q": "Permission denied"})

    assert output.exit == 2
    assert b"cannot read q: Permission denied" in output.stderr


@pytest.mark.usefixtures("several")
def test_sources_of_another_dimension_are_named_in_a_warning(ic, several):
    discover(several, "long", packed(1.0, 2.0, 3.0), source="u")

    output = ic("discovery", "search", "--embedding=@q", "--limit=1", files=QUERY)

    assert output.exit == 0
    assert output.stderr == (
        b"icctl: discovery search: warning: not compared because of another dimension: u\n"
    )


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ((), 3),
        (("--embedding=@q", "--like=d1"), 3),
        (("--like=d1", "--limit=0"), 3),
        (("--like=d1", "--limit=1001"), 3),
        (("--like=d1", "--min-score=nan"), 3),
        (("--like=d1", "--min-score=1.1"), 3),
        (("--like=d1", "--tier=top"), 3),
        (("--like=d1", "--status=open"), 3),
        (("--like=nobody",), 1),
        (("--embedding=@q",), 2),
    ],
)
@pytest.mark.usefixtures("several")
def test_what_makes_no_sense_is_refused(ic, words, status):
    output = ic("discovery", "search", *words, files={"q": packed(0.0, 0.0)})

    assert output.exit == status
    assert output.stdout == b""
    assert output.stderr.startswith(b"icctl: discovery search: ")


def test_a_discovery_without_an_embedding_resembles_nothing(ic, conn):
    discover(conn, "mute")

    output = ic("discovery", "search", "--like=mute")

    assert output.exit == 1
    assert b"discovery mute has no embedding" in output.stderr


@pytest.mark.usefixtures("several")
def test_a_deadline_that_has_passed_is_an_error_without_results(ic):
    output = ic("discovery", "search", "--like=d1", deadline=0)

    assert (output.exit, output.stdout) == (2, b"")


def test_a_search_has_ten_seconds_by_itself():
    assert Search(like="d").deadline_ms == SEARCH_DEADLINE_MS == 10_000
