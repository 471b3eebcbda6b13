"""Which methods are tools, and which of them without being asked for."""

import pytest

from icd.app import registry
from icd.errors import Usage
from icd.mcp import offer

WITHHELD = {row.name for row in offer.candidates() if not offer.is_default(row)}
# Not for agents: files of the caller, processes, the daemon itself, and other programs' state.
NOT_OFFERED = {
    "config",
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


def test_the_tables_name_methods_that_write_and_each_once():
    methods = {row.name: row for noun in offer.NOUNS for row in registry.table(noun).values()}
    writing = {name for name, row in methods.items() if row.writes is not None}

    assert offer.HARMLESS.isdisjoint(offer.GUARDED)
    assert writing >= offer.HARMLESS | offer.GUARDED | offer.IDEMPOTENT
    assert set(methods) >= offer.LEFT_OUT


def test_every_tool_that_writes_is_harmless_guarded_or_destructive():
    for row in offer.candidates():
        kinds = (row.name in offer.HARMLESS, row.name in offer.GUARDED, offer.is_destructive(row))

        assert sum(kinds) == (row.writes is not None), row


def test_what_deletes_ends_undoes_or_overrides_is_destructive():
    words = ("delete", "delete_all", "prune", "reset", "reset_all", "cancel", "abandon", "skip")
    words += ("rollback", "override", "dismiss", "retire", "kill", "release_all")

    for row in offer.candidates():
        if row.name.partition(".")[2] in words:
            assert offer.is_destructive(row), row


def test_no_tool_is_a_stream_without_an_end_or_works_on_files():
    for row in offer.candidates():
        assert row.run is not None
        assert not any((row.runs.local, row.runs.whole, row.runs.creates)), row
        assert row.stream is None or not row.stream.notifies, row


def test_what_deletes_ends_or_starts_something_is_not_offered_by_default():
    found = offer.offered(frozenset())
    names = {row.name for row in found}

    assert [row for row in found if offer.is_destructive(row)] == []
    assert names.isdisjoint(offer.GUARDED)
    assert {"state.get", "state.set", "sentinel.check", "lease.acquire", "events.tail"} <= names


@pytest.mark.parametrize(
    ("words", "more"),
    [
        ("state.delete", {"state.delete"}),
        ("sentinel", {"sentinel.reset", "sentinel.reset_all", "sentinel.prune"}),
        ("all", WITHHELD),
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
