"""Artifacts of a run."""

import pytest

from icd.errors import RunNotFound
from icd.features.runs import store as runs
from icd.features.runs.store import Artifact, Origin
from tests.support import rows

NOW = rows.NOW * 1000 + 5_500
DIGEST = "sha256:" + "0" * 64


@pytest.fixture
def add(conn):
    def added(run_id="run00001", phase="planned", path="plan.md", **more):
        more = {"type": "file", "content_hash": None, "dispatch_id": None, "now_ms": NOW} | more
        return runs.add_artifact(conn, run_id, phase=phase, path=path, **more)

    return added


def test_an_artifact_is_kept_as_it_was_given(conn, add):
    rows.run(conn)

    found = add(type="plan", content_hash=DIGEST, dispatch_id="d1")

    expected = Artifact(
        found, "run00001", "planned", "plan.md", "plan", "active", NOW // 1000, DIGEST, "d1"
    )
    assert runs.artifacts_of(conn, "run00001") == [expected]


def test_an_artifact_needs_a_run_and_is_a_sign_of_its_life(conn, add):
    rows.run(conn)

    add()
    with pytest.raises(RunNotFound, match="not found: nobody"):
        add("nobody")

    assert runs.require(conn, "run00001").updated_ms == NOW
    assert len(runs.artifacts_of(conn, "run00001")) == 1
    assert runs.artifacts_of(conn, "nobody") == []


def test_artifacts_are_listed_by_age_all_or_of_one_phase(conn, add):
    rows.run(conn)
    one, two = add(phase="review", now_ms=NOW + 1000), add(phase="no-such-phase")
    three = add(phase="review")

    assert [a.id for a in runs.artifacts_of(conn, "run00001")] == [two, three, one]
    assert [a.id for a in runs.artifacts_of(conn, "run00001", "review")] == [three, one]
    assert runs.artifacts_of(conn, "run00001", "polish") == []


def test_origins_are_told_by_phase_and_age_with_the_dispatch_that_made_each(conn, add):
    rows.run(conn)
    rows.dispatch(conn, "run00001", None, "d1")
    conn.execute("UPDATE dispatches SET name = 'writer'")
    add(phase="review", path="late", now_ms=NOW + 1000)
    add(phase="review", path="early", dispatch_id="pruned", content_hash=DIGEST)
    add(phase="planned", path="plan", dispatch_id="d1", now_ms=NOW + 5000)
    conn.execute("UPDATE run_artifacts SET status = 'rolled_back' WHERE path = 'late'")

    plan = Origin("d1", "writer", "planned", "plan", None, "file", "active")
    early = Origin("pruned", None, "review", "early", DIGEST, "file", "active")
    late = Origin(None, None, "review", "late", None, "file", "rolled_back")
    assert runs.origins(conn, "run00001") == [plan, early, late]
    assert runs.origins(conn, "run00001", "review") == [early, late]


def test_origins_of_an_unknown_run_are_not_an_empty_list(conn):
    with pytest.raises(RunNotFound):
        runs.origins(conn, "nobody")
