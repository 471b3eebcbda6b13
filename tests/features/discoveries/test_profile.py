"""The interest profile: versions, and updates that keep the rest."""

import re
import struct

import msgspec
import pytest

from icd.errors import ProfileConflict
from icd.features.discoveries import profile as profiles
from icd.features.discoveries.profile import Profile
from icd.features.discoveries.store import Told
from icd.features.events import store as events
from icd.values.processes import Writer

NOW = 1_800_000_000_123
VECTOR = struct.pack("<2f", 1, 2)


def update(conn, if_version=None, *, now_ms=NOW, **changes):
    told = Told(Writer(41, "me"), now_ms)
    return profiles.update(conn, changes, if_version=if_version, told=told)


def test_before_the_first_update_nothing_is_of_interest(conn):
    assert profiles.get(conn) == Profile(0, None, "{}", "{}", 0)


def test_an_update_keeps_what_it_does_not_mention(conn):
    update(conn, keyword_weights='{"a": 1}', topic_vector=VECTOR)
    update(conn, source_weights='{"s": 2}', now_ms=NOW + 5000)

    found = update(conn, keyword_weights="{}", now_ms=NOW + 9000)

    assert found == Profile(3, VECTOR, "{}", '{"s": 2}', NOW // 1000 + 9)
    assert profiles.get(conn) == found


def test_a_topic_can_be_forgotten(conn):
    update(conn, topic_vector=VECTOR)

    assert update(conn, topic_vector=b"").topic_vector is None


@pytest.mark.parametrize(
    "updates, expected, told",
    [
        (0, 1, "the profile is absent, expected version 1"),
        (2, 1, "the profile is at version 2, expected version 1"),
        (2, 3, "the profile is at version 2, expected version 3"),
        (1, 0, "the profile already exists (version 1)"),
    ],
)
def test_an_update_that_expects_another_version_changes_nothing(conn, updates, expected, told):
    for _ in range(updates):
        update(conn, keyword_weights="{}")
    before = profiles.get(conn), events.head(conn)

    with pytest.raises(ProfileConflict, match=f"^{re.escape(told)}$"):
        update(conn, expected, keyword_weights='{"mine": 1}')

    assert (profiles.get(conn), events.head(conn)) == before


@pytest.mark.parametrize("updates", [0, 1, 2])
def test_an_update_that_expects_the_right_version_gets_the_next(conn, updates):
    for _ in range(updates):
        update(conn, source_weights="{}")

    assert update(conn, updates, source_weights="{}").version == updates + 1


def test_every_update_is_in_the_log(conn):
    update(conn, keyword_weights="{}", topic_vector=VECTOR)
    update(conn, source_weights="{}")

    found = list(events.read(conn, limit=10))

    assert [(event.source, event.type, event.session) for event in found] == [
        ("discovery", "profile.updated", "me")
    ] * 2
    assert [msgspec.json.decode(event.payload) for event in found] == [
        {"changed": ["keyword_weights", "topic_vector"], "version": 1},
        {"changed": ["source_weights"], "version": 2},
    ]
