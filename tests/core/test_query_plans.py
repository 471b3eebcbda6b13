"""The hot statements find their rows through an index: none reads a whole table."""

import re

import pytest

from icd.core import (
    compat,
    cursors,
    events,
    requests,
    retention,
    searches,
    sentinels,
    state,
    statusline,
)

# `sentinels._PRUNE`, `_LIST` and `state`'s empty prefix read everything because they are asked to.
HOT = {
    "sentinels._CLAIM": sentinels._CLAIM,
    "sentinels._FIND": sentinels._FIND,
    "sentinels._NOTE": sentinels._NOTE,
    "sentinels._AUTO_PRUNE": sentinels._AUTO_PRUNE,
    "sentinels._RESET": sentinels._RESET,
    "sentinels._RESET_ALL": sentinels._RESET_ALL,
    "state._GET": state._GET,
    "state._NEXT": state._NEXT,
    "state._PUT": state._PUT,
    "state._DELETE": state._DELETE,
    "state._DELETE_ALL": state._DELETE_ALL,
    "state._SCOPES": state._SCOPES,
    "state._BY_PREFIX": state._BY_PREFIX,
    "state._PRUNE": state._PRUNE,
    "state._PRUNE_SOME": state._PRUNE_SOME,
    "state._NEXT_EXPIRY": state._NEXT_EXPIRY,
    "sentinels._ADOPT": sentinels._ADOPT,
    "compat._STATE": compat._STATE,
    "compat._SENTINELS": compat._SENTINELS,
    "state._PAGE": state._PAGE,
    "state._PAGE_END": state._PAGE_END,
    "statusline._OF_SESSION": statusline._OF_SESSION,
    "statusline._COUNT": statusline._COUNT,
    "events._BY_KEY": events._BY_KEY,
    "events.OF_RUN": events.OF_RUN,
    "events.OF_SOURCE": events.OF_SOURCE,
    "events.ALL": events.ALL,
    "cursors._FIND": cursors._FIND,
    "cursors._FORGET": cursors._FORGET,
    "cursors._UNSEEN": cursors._UNSEEN,
    "cursors._LAST_OF": cursors._LAST_OF,
    "retention._COUNT": retention._COUNT,
    "retention._DELETE": retention._DELETE,
    "searches._PAGE": searches._PAGE,
    "searches._FETCH": searches._FETCH,
    "requests._FIND": requests._FIND,
    "requests._RECORD": requests._RECORD,
    "requests._PRUNE": requests._PRUNE,
}
INSERTS = {"sentinels._CLAIM", "sentinels._ADOPT", "state._PUT", "requests._RECORD"}


def plan(conn, statement):
    numbers = [int(number) for number in re.findall(r"\?(\d+)", statement)]
    names = re.findall(r":(\w+)", statement)
    values = dict.fromkeys(names) or [None] * (max(numbers) if numbers else statement.count("?"))
    return [detail for *_, detail in conn.execute(f"EXPLAIN QUERY PLAN {statement}", values)]


@pytest.mark.parametrize("name", HOT)
def test_a_hot_statement_reads_no_table_from_end_to_end(conn, name):
    steps = plan(conn, HOT[name])

    assert [step for step in steps if step.startswith("SCAN")] == []


@pytest.mark.parametrize("name", sorted(HOT.keys() - INSERTS))
def test_a_hot_statement_searches_by_an_index_or_the_primary_key(conn, name):
    searches = [step for step in plan(conn, HOT[name]) if step.startswith("SEARCH")]

    assert searches
    for search in searches:
        assert re.search(r"USING (COVERING )?INDEX|PRIMARY KEY", search)


@pytest.mark.parametrize("name", HOT)
def test_a_hot_statement_sorts_nothing_by_hand(conn, name):
    assert [step for step in plan(conn, HOT[name]) if "TEMP B-TREE" in step] == []


def test_a_table_read_from_end_to_end_would_be_noticed(conn):
    steps = plan(conn, "SELECT key FROM state WHERE payload = ?")

    assert steps == ["SCAN state"]
