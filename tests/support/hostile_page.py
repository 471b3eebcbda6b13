"""A stranger's database for pages: one row of every noun, and all that is shown of it hostile."""

import sqlite3
from contextlib import closing
from pathlib import Path

from tests.support.hostile_rows import make

TEXTS = {
    "events": ["source", "type", "reason", "actor_session"],
    "runs": ["goal", "phase", "scope_id", "metadata"],
    "dispatches": ["name", "model", "error_message", "verdict_summary", "output_file"],
    "sentinels": ["name", "scope_id"],
    "leases": ["name", "owner", "session"],
    "reservations": ["pattern", "owner", "reason"],
    "sessions": ["session_id", "agent_type", "model", "project_dir"],
    "state": ["scope_id"],
    "discoveries": ["title", "summary", "source"],
}
NUMBERS = {
    "events": ["at_ms"],
    "runs": ["updated_at", "created_at"],
    "dispatches": ["started_at", "created_at"],
    "sentinels": ["last_fired", "fired_ms", "interval_ms"],
    "leases": ["acquired_at", "expires_at"],
    "reservations": ["created_at", "expires_at"],
    "sessions": ["started_at", "input_tokens"],
    "state": ["updated_at"],
    "discoveries": ["discovered_at"],
}


def spoiled(path: Path, value: str | int) -> None:
    """Make the database, with this value in all that is shown and can hold it."""
    make(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        conn.execute("BEGIN")
        for table, names in (TEXTS if isinstance(value, str) else NUMBERS).items():
            for name in names:
                conn.execute(f"UPDATE OR IGNORE {table} SET {name} = ?", [value])
        conn.execute("COMMIT")
