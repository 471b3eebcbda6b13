"""The table of legacy files."""

import pytest

from icd.features.compat.legacy.patterns import CHANNELS, FILES, KEYS, Pattern
from icd.values import validation as names

BY_KEY = {pattern.key: pattern for pattern in FILES}


@pytest.mark.parametrize(
    "key, name, scope",
    [
        ("dispatch", b"clavain-dispatch-4711.json", b"4711"),
        ("dispatch", b"clavain-dispatch-a.json.json", b"a.json"),
        ("dispatch", b"clavain-dispatch-.json", b""),
        ("dispatch", b"clavain-dispatch-4711.json.tmp", None),
        ("dispatch", b"clavain-dispatch", None),
        ("stop", b"clavain-stop-s1", b"s1"),
        ("stop", b"clavain-stop-", b""),
        ("stop", b"Xclavain-stop-s1", None),
        ("compound_throttle", b"clavain-compound-last-s1", b"s1"),
        ("drift_throttle", b"clavain-drift-last-s1", b"s1"),
        ("handoff", b"clavain-handoff-s1", b"s1"),
        ("autopub", b"clavain-autopub.lock", b"global"),
        ("autopub", b"clavain-autopub-x.lock", b"-x"),
        ("catalog_remind", b"clavain-catalog-remind-s1.lock", b"s1"),
        ("discovery_brief", b"clavain-discovery-brief-_home_me.cache", b"_home_me"),
        ("bead", b"clavain-bead-s1.json", b"s1"),
    ],
)
def test_the_scope_is_what_stands_for_the_star(key, name, scope):
    assert BY_KEY[key].scope(name) == scope


def test_prefix_and_suffix_do_not_overlap():
    assert Pattern("k", b"ab", b"bc").scope(b"abc") is None


@pytest.mark.parametrize("key", ["stop", "handoff", "catalog_remind"])
def test_guards_of_a_session_are_once_only(key):
    assert BY_KEY[key].interval_s == 0


@pytest.mark.parametrize("key, interval", [("compound_throttle", 300), ("drift_throttle", 600), ("autopub", 60)])  # fmt: skip
def test_throttles_have_the_interval_that_their_hooks_ask_with(key, interval):
    assert BY_KEY[key].interval_s == interval


@pytest.mark.parametrize("key", KEYS)
def test_every_key_may_be_a_key_of_state(key):
    names.check_key(key)


def test_no_name_means_two_keys():
    for pattern in FILES:
        name = pattern.prefix + b"s1" + pattern.suffix

        assert [other.key for other in FILES if other.scope(name) is not None] == [pattern.key]


def test_all_keys_are_listed_sorted():
    assert sorted({*BY_KEY, *CHANNELS}) == KEYS
