"""The hot statements find their rows through an index: none reads a whole table."""

import re

import pytest

from icd.app import idempotency as requests
from icd.features.compat import store as compat
from icd.features.coordination import lookup
from icd.features.coordination import store as reservations
from icd.features.database import import_
from icd.features.discoveries import lifecycle as dismissals
from icd.features.discoveries import profile as profiles
from icd.features.discoveries import rank as ranking
from icd.features.discoveries import search as searches
from icd.features.discoveries import store as discoveries
from icd.features.dispatches import store as dispatches
from icd.features.events import cursors, retention
from icd.features.events import store as events
from icd.features.gates import store as gates
from icd.features.runs import store as runs
from icd.features.sentinels import store as sentinels
from icd.features.state import store as state
from icd.features.statusline import store as statusline
from tests.support.query_plans import plan

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
    "events.NEWEST": events.NEWEST,
    "events.NEWEST_OF_RUN": events.NEWEST_OF_RUN,
    "events.NEWEST_OF_SOURCE": events.NEWEST_OF_SOURCE,
    "events.ALL": events.ALL,
    "cursors._FIND": cursors._FIND,
    "cursors._FORGET": cursors._FORGET,
    "cursors._UNSEEN": cursors._UNSEEN,
    "cursors._LAST_OF": cursors._LAST_OF,
    "retention._COUNT": retention._COUNT,
    "retention._DELETE": retention._DELETE,
    "gates._ARTIFACTS": gates._ARTIFACTS,
    "gates._VERDICT": gates._VERDICT,
    "searches._PAGE": searches._PAGE,
    "searches._FETCH": searches._FETCH,
    "requests._FIND": requests._FIND,
    "requests._RECORD": requests._RECORD,
    "requests._PRUNE": requests._PRUNE,
    "runs._FIND": runs._FIND,
    "runs._ACTIVE": runs._ACTIVE,
    "dispatches._ALIVE": dispatches._ALIVE,
    "dispatches._ALIVE_OF": dispatches._ALIVE_OF,
    "runs._SKIPPED": runs._SKIPPED,
    "runs._TOUCH": runs._TOUCH,
    "import_._RUN": import_._RUN,
    "import_._HOLDER": import_._HOLDER,
    "import_._FORGET_SKIPS": import_._FORGET_SKIPS,
    "dispatches._FIND": dispatches._FIND,
    "dispatches._CLAIM_AGENT": dispatches._CLAIM_AGENT,
    "dispatches._START": dispatches._START,
    "dispatches._END": dispatches._END,
    "dispatches._TOKENS": dispatches._TOKENS,
    "dismissals._DUE": dismissals._DUE,
    "dismissals._OLDEST": dismissals._OLDEST,
    "dismissals._FORGET_FEEDBACK": dismissals._FORGET_FEEDBACK,
    "dismissals._FORGET": dismissals._FORGET,
    "import_._FOUND": import_._FOUND,
    "import_._SAME": import_._SAME,
    "import_._BARE": import_._BARE,
    "import_._EQUAL": import_._EQUAL,
    "profiles._GET": profiles._GET,
    "discoveries._FIND": discoveries._FIND,
    "lookup._BY_RANGE": lookup._BY_RANGE,
    "reservations._SAME": reservations._SAME,
    "reservations._EXPIRED": reservations._EXPIRED,
    "lookup._FIND": lookup._FIND,
}
# A scope has a handful of runs: these may be put in order.
SORTED = {"runs._MEANT": runs._MEANT}

# What each index of these tables is for: whoever changes one or the other is told.
EXPECTED = {
    "SELECT id FROM runs WHERE id = ?": "sqlite_autoindex_runs_1 (id=?)",
    "SELECT id FROM runs WHERE scope_id = ?": "runs_by_scope (scope_id=?)",
    """
    SELECT id, phase, goal FROM runs WHERE project_dir = ? AND status = 'active'
    ORDER BY created_ms DESC, rowid DESC LIMIT 1
    """: "runs_by_project (project_dir=?)",
    """
    SELECT id, updated_ms FROM runs
    WHERE project_dir = ? AND scope_id = ? AND status = 'active'
    """: "runs_by_claim (project_dir=? AND scope_id=?)",
    "SELECT phase FROM run_skips WHERE run_id = ?": "PRIMARY KEY (run_id=?)",
    "SELECT name FROM run_agents WHERE run_id = ?": "run_agents_by_run (run_id=?)",
    "SELECT path FROM run_artifacts WHERE run_id = ?": "run_artifacts_by_phase (run_id=?)",
    """
    SELECT count(*) FROM run_artifacts WHERE run_id = ? AND phase = ? AND status = 'active'
    """: "run_artifacts_by_phase (run_id=? AND phase=?)",
    "SELECT status FROM dispatches WHERE id = ?": "sqlite_autoindex_dispatches_1 (id=?)",
    "SELECT sum(input_tokens) FROM dispatches WHERE run_id = ?": "dispatches_by_run (run_id=?)",
    "SELECT id FROM dispatches WHERE scope_id = ?": "dispatches_by_scope (scope_id=?)",
    """
    SELECT id, pid FROM dispatches WHERE status IN ('spawned', 'running')
    """: "dispatches_alive (status=?)",
    """
    DELETE FROM dispatches WHERE created_ms < ? AND status NOT IN ('spawned', 'running')
    """: "dispatches_by_age (created_ms<?)",
    "SELECT token FROM leases WHERE name = ? AND scope_id = ?": (
        "PRIMARY KEY (name=? AND scope_id=?)"
    ),
    "SELECT title FROM discoveries WHERE id = ?": "sqlite_autoindex_discoveries_1 (id=?)",
    "SELECT id FROM discoveries WHERE source = ? AND source_id = ?": (
        "sqlite_autoindex_discoveries_2 (source=? AND source_id=?)"
    ),
    "SELECT id FROM discoveries WHERE version > ?": "discoveries_by_version (version>?)",
    "SELECT id FROM discoveries WHERE relevance * decay >= ?": "discoveries_by_score (<expr>>?)",
    "SELECT id FROM discoveries WHERE dismissed_ms <= ?": (
        "discoveries_by_dismissal (dismissed_ms<?)"
    ),
    "SELECT vector FROM embeddings WHERE discovery_id = ?": (
        "sqlite_autoindex_embeddings_1 (discovery_id=?)"
    ),
    "SELECT vector FROM embeddings WHERE source = ?": "embeddings_by_source (source=?)",
    "SELECT dimension FROM embedding_sources WHERE source = ?": "PRIMARY KEY (source=?)",
    "SELECT signal_type FROM feedback_signals WHERE discovery_id = ?": (
        "feedback_signals_by_discovery (discovery_id=?)"
    ),
}
INSERTS = {"sentinels._CLAIM", "sentinels._ADOPT", "state._PUT", "requests._RECORD"}


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


@pytest.mark.parametrize("name", SORTED)
def test_what_is_put_in_order_is_found_by_an_index(conn, name):
    steps = plan(conn, SORTED[name])

    assert [step for step in steps if step.startswith("SEARCH")]
    assert [step for step in steps if step.startswith("SCAN")] == []


@pytest.mark.parametrize("statement", EXPECTED)
def test_every_question_has_its_index(conn, statement):
    (step,) = plan(conn, statement)

    assert step.startswith("SEARCH")
    assert step.endswith(EXPECTED[statement])


def test_a_ranking_reads_the_highest_scores_first_and_sorts_nothing(conn):
    steps = plan(conn, ranking._CANDIDATES)

    assert steps[0] == "SCAN d USING INDEX discoveries_by_score"
    assert [step for step in steps if "TEMP B-TREE" in step] == []


def test_a_table_read_from_end_to_end_would_be_noticed(conn):
    steps = plan(conn, "SELECT key FROM state WHERE payload = ?")

    assert steps == ["SCAN state"]
