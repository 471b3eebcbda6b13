"""What is asked of a run looks at that run alone, however many there are, and events."""

import pytest

from icd.features.runs import create, transitions
from icd.features.runs import history as histories
from icd.features.runs import store as runs
from tests.support.query_plans import plan

pytestmark = pytest.mark.sqlite_only

INDEXES = {
    "runs_by_claim": runs._HOLDER,
    "runs_by_project": runs._CURRENT,
    "runs_by_age": runs._LIST,
    "autoindex_runs": transitions._MOVE,
    "autoindex_runs_1": transitions._SET,
    "run_skips": runs._SKIPPED,
    "events_by_run": histories._LAST_MOVE,
    "run_artifacts_by_phase": create._MARK,
    "PRIMARY KEY (run_id=? AND phase=?)": create._UNSKIP,
    "run_agents_by_run": create._FAIL,
    "dispatches_by_run": create._DISPATCHES,
}


@pytest.mark.parametrize("index", INDEXES)
def test_a_statement_about_a_run_finds_it_by_an_index_and_sorts_nothing(conn, index):
    first, *rest = plan(conn, INDEXES[index])

    assert index in first
    assert not [step for step in rest if "TEMP B-TREE" in step]
