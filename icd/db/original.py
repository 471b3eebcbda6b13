"""Databases of the original Go program, schema v1 to v9: taken over in place.

The caller has made a backup and is inside a transaction.  `state` and `sentinels` are rebuilt in
our shape; every other table of the original stays as it is until the nouns it belongs to arrive.

What the original did not store, we assume on the safe side: an unknown interval is never pruned,
and a claim that was recorded as second S may have happened at its very end.
"""

import sqlite3

LAST_SCHEMA = 9


def is_original(application_id: int, user_version: int) -> bool:
    return application_id == 0 and user_version > 0


def has_its_tables(conn: sqlite3.Connection) -> bool:
    """Any program may count its schema from one; only the original has these two tables."""
    (found,) = conn.execute(
        "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name IN ('state', 'sentinels')"
    ).fetchone()
    return bool(found == 2)


def set_aside(conn: sqlite3.Connection) -> None:
    """Free the names that our first migration needs."""
    conn.execute("ALTER TABLE state RENAME TO original_state")
    conn.execute("ALTER TABLE sentinels RENAME TO original_sentinels")


def bring_over(conn: sqlite3.Connection) -> None:
    """Copy the rows that were set aside, then drop the old tables."""
    conn.execute(
        """
        INSERT INTO state (key, scope_id, payload, version, updated_at, expires_at, expires_ms)
        SELECT key, scope_id, CAST(payload AS TEXT), row_number() OVER (ORDER BY key, scope_id),
               CAST(updated_at AS INTEGER), CAST(expires_at AS INTEGER),
               CAST(expires_at AS INTEGER) * 1000
        FROM original_state
        """
    )
    conn.execute(
        "UPDATE counters SET value = (SELECT count(*) FROM original_state) WHERE name = 'state'"
    )
    conn.execute(
        """
        INSERT INTO sentinels
            (name, scope_id, last_fired, fired_ms, interval_ms, once)
        SELECT name, scope_id, CAST(last_fired AS INTEGER),
               CAST(last_fired AS INTEGER) * 1000 + 999, 0, 0
        FROM original_sentinels
        """
    )
    conn.execute("DROP TABLE original_state")
    conn.execute("DROP TABLE original_sentinels")
    conn.execute("DROP TABLE IF EXISTS _migrate_lock")
