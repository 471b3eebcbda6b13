"""Embeddings: what is one, where they are stored, and which of a source resembles another.

Invariants
    - a stored vector is little-endian float32, finite, and not all zero;
    - all vectors of a source have the dimension of its first one, for ever;
    - similarity is the cosine, computed exactly (see `similarity`).

Callers run these inside a transaction.  numpy is loaded only to compare.
"""

import math
import sqlite3
import struct
from collections.abc import Sequence

from icd.errors import DimensionMismatch, InvalidVector
from icd.features.discoveries.index import Matrix, Row
from icd.features.discoveries.similarity import Best, Query, pages

# Several times what any model in use has; 64 KiB.
MAX_DIMENSION = 16_384
# What a `Batch` keeps in memory of one source; a larger one is read again for each question.
BATCH_BYTES = 512 * 1024 * 1024

_ALL = "SELECT discovery_id, vector FROM embeddings WHERE source = ? AND length(vector) = ?"


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
    if not math.isfinite(sum(numbers)):  # float64 holds any sum of them, unless one is not finite
        raise InvalidVector("the embedding holds a number that is not finite")
    if not any(numbers):
        raise InvalidVector("the embedding is zero: it resembles nothing")
    return data


def dimension(conn: sqlite3.Connection, source: str) -> int | None:
    """The dimension of a source; None: it has no embeddings yet."""
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


def read(conn: sqlite3.Connection, statement: str, *values: object) -> sqlite3.Cursor:
    """Rows to compare with: no part of an answer, so they may be more than an answer has."""
    cursor = conn.cursor()
    cursor.row_factory = None
    return cursor.execute(statement, values)


def nearest(
    conn: sqlite3.Connection, source: str, vector: bytes, *, threshold: float
) -> str | None:
    """The id of the most similar discovery of that source, whatever its status.

    None if no similarity reaches the threshold.  Memory is bounded, however many there are.
    """
    check_dimension(conn, source, vector)
    best = Best(Query(vector), 1, threshold)
    best.take(read(conn, _ALL, source, len(vector)))
    return best.found[0][0] if best.found else None


class Batch:
    """`nearest` and `store` for many in one transaction: each source is read once.

    `keeps` False is for a single one: nothing is kept in memory.
    """

    def __init__(self, conn: sqlite3.Connection, *, keeps: bool = True) -> None:
        self._conn = conn
        self._keeps = keeps
        self._matrices: dict[str, Matrix | None] = {}  # None: too large
        # What was looked for ahead among so many, by source.
        self._ahead: dict[str, tuple[int, dict[bytes, Best]]] = {}

    def expect(self, source: str, vectors: Sequence[bytes], *, threshold: float) -> None:
        """Look for several at once, before `nearest` asks for each of them with this threshold.

        A row is read from memory once for all of them: that is what comparing takes time for.
        """
        self._ahead.pop(source, None)
        size = dimension(self._conn, source)
        fitting = {vector for vector in vectors if len(vector) // 4 == size}
        matrix = self._matrix(source, size) if size is not None and fitting else None
        if matrix is not None:
            bests = {vector: Best(Query(vector), 1, threshold) for vector in fitting}
            matrix.offer_to_all(list(bests.values()))
            self._ahead[source] = len(matrix), bests

    def nearest(self, source: str, vector: bytes, *, threshold: float) -> str | None:
        check_dimension(self._conn, source, vector)
        matrix = self._matrix(source, len(vector) // 4)
        if matrix is None:
            return nearest(self._conn, source, vector, threshold=threshold)
        count, bests = self._ahead.get(source, (0, {}))
        best = bests.get(vector)
        if best is None:
            count, best = 0, Best(Query(vector), 1, threshold)
        matrix.offer_since(best, count)
        return best.found[0][0] if best.found else None

    def add(self, discovery_id: str, source: str, vector: bytes) -> None:
        """Store the embedding of a discovery that is stored, and compare with it from now on."""
        store(self._conn, discovery_id, source, vector)
        matrix = self._matrices.get(source)
        if matrix is not None:
            matrix.put([Row(discovery_id, vector, source)])
            if len(matrix) * len(vector) > BATCH_BYTES:
                self._matrices[source] = None

    def _matrix(self, source: str, dimension: int) -> Matrix | None:
        if source not in self._matrices:
            self._matrices[source] = self._read(source, dimension) if self._keeps else None
        return self._matrices[source]

    def _read(self, source: str, dimension: int) -> Matrix | None:
        (count,) = self._conn.execute(
            "SELECT count(*) FROM embeddings WHERE source = ?", (source,)
        ).fetchone()
        if count * 4 * dimension > BATCH_BYTES:
            return None
        matrix = Matrix(dimension)
        for page in pages(read(self._conn, _ALL, source, 4 * dimension), dimension):
            matrix.put([Row(name, vector, source) for name, vector in page])
        return matrix
