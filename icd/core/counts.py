"""How many rows each table holds, for people who look inside.

SQLite reads the smallest index of a table for it, every page: a million rows take some 20 ms.
"""

import sqlite3

# Tables that hold what users store; not those with which intercore keeps its own books.
COUNTS = {
    "state": "SELECT count(*) FROM state",
    "sentinels": "SELECT count(*) FROM sentinels",
    "requests": "SELECT count(*) FROM requests",
    "events": "SELECT count(*) FROM events",
    "cursors": "SELECT count(*) FROM cursors",
    "runs": "SELECT count(*) FROM runs",
    "run_skips": "SELECT count(*) FROM run_skips",
    "run_agents": "SELECT count(*) FROM run_agents",
    "run_artifacts": "SELECT count(*) FROM run_artifacts",
    "dispatches": "SELECT count(*) FROM dispatches",
    "leases": "SELECT count(*) FROM leases",
    "discoveries": "SELECT count(*) FROM discoveries",
    "embeddings": "SELECT count(*) FROM embeddings",
    "embedding_sources": "SELECT count(*) FROM embedding_sources",
    "feedback_signals": "SELECT count(*) FROM feedback_signals",
    "interest_profile": "SELECT count(*) FROM interest_profile",
}


def rows(conn: sqlite3.Connection) -> dict[str, int]:
    return {table: int(conn.execute(count).fetchone()[0]) for table, count in COUNTS.items()}
