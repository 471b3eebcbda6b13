"""Rows as interband envelopes: where they go, what is in them, how long they stay."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from icd import config
from icd.features import interband
from icd.features.state.store import Row

NOW = 1_800_000_000
DEFAULTS = interband.channels(config.Mirror())


def row(**facts):
    usual = {
        "key": "bead", "scope_id": "s1", "payload": '{"id": "x"}', "version": 3,
        "updated_at": NOW, "expires_at": None, "expires_ms": None,
        "writer_pid": 7, "writer_session": "writer",
    }  # fmt: skip
    return Row(**(usual | facts))


def envelope(found, key="bead"):
    return json.loads(interband.envelope(found, DEFAULTS[key], origin="/p/x.db"))


def test_the_usual_keys_go_where_the_usual_readers_look():
    places = {key: f"{c.namespace}/{c.name}" for key, c in DEFAULTS.items()}

    assert places == {
        "dispatch": "clavain/dispatch",
        "bead": "interphase/bead",
        "lane": "interphase/lane",
        "coordination": "interlock/coordination",
        "pressure": "intercheck/pressure",
        "budget": "interstat/budget",
    }


def test_an_envelope_has_what_readers_expect_and_says_whose_it_is():
    assert envelope(row()) == {
        "version": "1.0.0",
        "namespace": "interphase",
        "type": "bead_phase",
        "session_id": "s1",
        "timestamp": "2027-01-15T08:00:00Z",
        "source": "intercore",
        "origin": "/p/x.db",
        "payload": {"id": "x"},
    }


def test_a_channel_whose_scope_is_no_session_names_the_writers():
    assert envelope(row(scope_id="4711"), "dispatch")["session_id"] == "writer"
    assert envelope(row(scope_id="p-a", writer_session=None), "coordination")["session_id"] == ""


def test_a_payload_is_embedded_as_it_was_written():
    odd = '{"a": 1.50, "a": 2, "s": "\\ud800", "n": 123456789012345678901234567890}'

    content = interband.envelope(row(payload=odd), DEFAULTS["bead"], origin="/p")

    assert odd.encode() in content


def test_a_path_that_is_not_text_is_spelled_out():
    content = interband.envelope(row(), DEFAULTS["bead"], origin="/p\udcff/x.db")

    assert json.loads(content)["origin"] == "/p\\udcff/x.db"
    assert interband.is_from(content, "/p\udcff/x.db")


@pytest.mark.parametrize(
    ("scope", "file"),
    [
        ("s1", "s1.json"),
        ("a/b c:ü", "a_b_c__.json"),
        ("../../etc/passwd", ".._.._etc_passwd.json"),
        (".", "..json"),
        ("..", "...json"),
        ("", None),
    ],
)
def test_a_file_is_named_after_its_scope(scope, file):
    assert interband.file_name(scope) == file


@given(st.text(min_size=1))
def test_no_scope_names_a_file_outside_its_directory(scope):
    assert re.fullmatch(r"[A-Za-z0-9._-]+\.json", interband.file_name(scope))


def test_a_file_lives_as_long_as_its_row_and_not_longer_than_its_retention():
    day_ms = 86_400_000

    assert interband.until_ms(row(), DEFAULTS["bead"]) == NOW * 1000 + day_ms
    assert interband.until_ms(row(expires_ms=NOW * 1000 + 5), DEFAULTS["bead"]) == NOW * 1000 + 5
    assert interband.until_ms(row(expires_ms=NOW * 9000), DEFAULTS["bead"]) == NOW * 1000 + day_ms


def test_without_retention_a_file_stays_as_long_as_its_row():
    settings = config.Mirror(channels={"bead": config.Channel(retention_seconds=0)})
    channel = interband.channels(settings)["bead"]

    assert interband.until_ms(row(), channel) is None


def test_channels_can_be_added_changed_and_left_out():
    settings = config.Mirror(
        channels={
            "note": config.Channel(path="mine/notes", session="writer"),
            "bead": config.Channel(retention_seconds=60),
            "lane": config.Channel(enabled=False),
        }
    )

    found = interband.channels(settings)

    assert found["note"] == interband.Channel("mine", "notes", "notes", False, 86_400_000)
    assert found["bead"] == interband.Channel("interphase", "bead", "bead_phase", True, 60_000)
    assert "lane" not in found
    assert "dispatch" in found


def test_a_mirror_that_is_switched_off_has_no_channels():
    assert interband.channels(config.Mirror(enabled=False)) == {}


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"source":1}', b"\xff", b"[" * 100_000])
def test_what_is_no_envelope_of_ours_is_not_taken_for_one(content):
    assert interband.read_mark(content) == interband.Mark()


def test_the_envelope_of_another_database_is_ours_but_not_this_ones():
    content = interband.envelope(row(), DEFAULTS["bead"], origin="/p/x.db")

    assert interband.read_mark(content).source == "intercore"
    assert interband.is_from(content, "/p/x.db")
    assert not interband.is_from(content, "/q/x.db")
