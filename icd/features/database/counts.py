"""How many rows each table holds, for people who look inside.

SQLite reads the smallest index of a table for it, every page: a million rows take some 20 ms.
"""

import sqlite3

# Tables that hold what users store; not those with which intercore keeps its own books.
COUNTS = {
    "state": "SELECT count(1) FROM state",
    "sentinels": "SELECT count(1) FROM sentinels",
    "requests": "SELECT count(1) FROM requests",
    "events": "SELECT count(1) FROM events",
    "cursors": "SELECT count(1) FROM cursors",
    "runs": "SELECT count(1) FROM runs",
    "run_skips": "SELECT count(1) FROM run_skips",
    "run_agents": "SELECT count(1) FROM run_agents",
    "run_artifacts": "SELECT count(1) FROM run_artifacts",
    "dispatches": "SELECT count(1) FROM dispatches",
    "leases": "SELECT count(1) FROM leases",
    "discoveries": "SELECT count(1) FROM discoveries",
    "embeddings": "SELECT count(1) FROM embeddings",
    "embedding_sources": "SELECT count(1) FROM embedding_sources",
    "feedback_signals": "SELECT count(1) FROM feedback_signals",
    "interest_profile": "SELECT count(1) FROM interest_profile",
}


def rows(conn: sqlite3.Connection) -> dict[str, int]:
    return {table: int(conn.execute(count).fetchone()[0]) for table, count in COUNTS.items()}
