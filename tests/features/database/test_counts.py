"""Counting rows."""

from icd.features.database import counts

# With which intercore keeps its own books.
OWN = {"migrations", "counters", "hook_positions"}


def test_every_table_of_users_is_counted(conn):
    tables = conn.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()

    assert counts.rows(conn).keys() == {name for (name,) in tables} - OWN - {"sqlite_sequence"}


def test_counts_are_those_of_the_tables(conn):
    conn.execute(
        "INSERT INTO requests (id, method, digest, effect, at_ms) VALUES ('a', 'm', 1, '1', 1)"
    )

    assert counts.rows(conn) == {
        "state": 0, "sentinels": 0, "requests": 1, "events": 0, "cursors": 0, "runs": 0,
        "run_skips": 0, "run_agents": 0, "run_artifacts": 0, "dispatches": 0, "leases": 0,
        "discoveries": 0, "embeddings": 0, "embedding_sources": 0, "feedback_signals": 0,
        "interest_profile": 0,
    }  # fmt: skip
