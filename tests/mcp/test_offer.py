"""Which methods are tools, and which of them without being asked for."""

import pytest

from icd.app import registry
from icd.errors import Usage
from icd.mcp import offer

KINDS = (offer.HARMLESS, offer.DESTRUCTIVE, offer.GUARDED, offer.LEFT_OUT)
# Not for agents: files of the caller, processes, the daemon itself, and other programs' state.
NOT_OFFERED = {
    "cursor",
    "compat",
    "statusline",
    "db",
    "backup",
    "dump",
    "hook",
    "dispatch",
    "icd",
    "rpc",
    "cli",
}


def test_someone_has_decided_about_every_noun():
    assert set(registry.METHODS) == {*offer.NOUNS, *NOT_OFFERED}


def test_someone_has_decided_about_every_method_that_writes():
    methods = {row.name: row for noun in offer.NOUNS for row in registry.table(noun).values()}
    writing = {name for name, row in methods.items() if row.writes is not None}

    assert sum(map(len, KINDS)) == len(frozenset().union(*KINDS)), "a method has two kinds"
    assert writing <= frozenset().union(*KINDS)
    assert frozenset().union(*KINDS) <= set(methods)
    assert writing >= offer.HARMLESS | offer.DESTRUCTIVE | offer.GUARDED | offer.IDEMPOTENT


def test_no_tool_is_a_stream_without_an_end_or_works_on_files():
    for row in offer.candidates():
        assert row.run is not None
        assert not (row.runs.local or row.runs.whole or row.runs.creates), row
        assert row.stream is None or not row.stream.notifies, row


def test_what_deletes_ends_or_starts_something_is_not_offered_by_default():
    names = {row.name for row in offer.offered(frozenset())}

    assert names.isdisjoint(offer.DESTRUCTIVE | offer.GUARDED)
    assert {"state.get", "state.set", "sentinel.check", "lease.acquire", "events.tail"} <= names


@pytest.mark.parametrize(
    ("words", "more"),
    [
        ("state.delete", {"state.delete"}),
        ("state", {"state.delete", "state.delete_all", "state.prune"}),
        ("all", offer.DESTRUCTIVE | offer.GUARDED),
        ("", set()),
        (" gate , sentinel.reset,", {"gate.override", "sentinel.reset"}),
    ],
)
def test_more_is_offered_by_name_noun_or_all(words, more):
    usual = {row.name for row in offer.offered(frozenset())}

    found = {row.name for row in offer.offered(offer.read_allowed(words))}

    assert found - usual == set(more)


@pytest.mark.parametrize(
    "words", ["dispatch", "state.watch", "state.nothing", "State", "db.init", "*"]
)
def test_a_word_that_names_no_tool_is_refused(words):
    with pytest.raises(Usage, match="there is no tool"):
        offer.read_allowed(words)
