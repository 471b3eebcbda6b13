"""Embeddings: what is one, and where they are stored.

Invariants
    - a stored vector is little-endian float32, finite, and not all zero;
    - all vectors of a source have the dimension of its first one, for ever.

Callers run these inside a transaction.
"""

import math
import sqlite3
import struct

from icd.errors import DimensionMismatch, InvalidVector

# Several times what any model in use has; 64 KiB.
MAX_DIMENSION = 16_384


def parse(data: bytes) -> bytes:
    """The same bytes, if they are an embedding."""
    count, rest = divmod(len(data), 4)
    if rest or not count:
        raise InvalidVector(f"an embedding of {len(data)} bytes is not a whole number of float32")
    if count > MAX_DIMENSION:
        raise InvalidVector(
            f"an embedding of {count} numbers is too long; {MAX_DIMENSION} are allowed"
        )
    numbers = struct.unpack(f"<{count}f", data)
    if not all(map(math.isfinite, numbers)):
        raise InvalidVector("the embedding holds a number that is not finite")
    if not any(numbers):
        raise InvalidVector("the embedding is zero: it resembles nothing")
    return data


def dimension(conn: sqlite3.Connection, source: str) -> int | None:
    """None: it has no embeddings yet."""
    row = conn.execute(
        "SELECT dimension FROM embedding_sources WHERE source = ?", (source,)
    ).fetchone()
    return None if row is None else int(row[0])


def check_dimension(conn: sqlite3.Connection, source: str, vector: bytes) -> None:
    known = dimension(conn, source)
    if known is not None and known != len(vector) // 4:
        raise DimensionMismatch(
            f"the embedding has {len(vector) // 4} numbers, those of source {source!r} have {known}"
        )


def store(conn: sqlite3.Connection, discovery_id: str, source: str, vector: bytes) -> None:
    """Give a discovery that is stored its embedding, or another one."""
    check_dimension(conn, source, vector)
    conn.execute(
        "INSERT OR IGNORE INTO embedding_sources (source, dimension) VALUES (?, ?)",
        (source, len(vector) // 4),
    )
    conn.execute(
        "INSERT INTO embeddings (discovery_id, source, vector) VALUES (?1, ?2, ?3)"
        " ON CONFLICT (discovery_id) DO UPDATE SET source = ?2, vector = ?3",
        (discovery_id, source, vector),
    )
