"""What dispatches use up, and how far they say that they are.

Callers run these inside a transaction.
"""

import sqlite3

from icd.features.dispatches import store as dispatches
from icd.features.dispatches.store import Dispatch
from icd.features.runs import store as runs

_PROGRESS = """
UPDATE dispatches SET turns = ?1, commands = ?2, messages = ?3, version = version + 1
WHERE id = ?4 AND (turns, commands, messages) IS NOT (?1, ?2, ?3)
"""
_TOKENS = """
UPDATE dispatches
SET input_tokens = coalesce(?, input_tokens), output_tokens = coalesce(?, output_tokens),
    cache_hits = coalesce(?, cache_hits), version = version + 1
WHERE id = ?
"""


def set_tokens(
    conn: sqlite3.Connection,
    dispatch_id: str,
    *,
    input_tokens: int | None = None,
    output_tokens: int | None = None,
    cache_hits: int | None = None,
    now_ms: int,
) -> Dispatch:
    """Set what is given, also of one that has ended: some are counted afterwards."""
    dispatches.require(conn, dispatch_id)
    conn.execute(_TOKENS, (input_tokens, output_tokens, cache_hits, dispatch_id))
    found = dispatches.require(conn, dispatch_id)
    if found.run_id is not None:
        runs.touch(conn, found.run_id, now_ms=now_ms)
    return found


def set_progress(
    conn: sqlite3.Connection, dispatch_id: str, *, turns: int, commands: int, messages: int
) -> Dispatch:
    conn.execute(_PROGRESS, (turns, commands, messages, dispatch_id))
    return dispatches.require(conn, dispatch_id)
