"""Embeddings: what is one, where they are stored, and which of a source resembles another.

Invariants
    - a stored vector is little-endian float32, finite, and not all zero;
    - all vectors of a source have the dimension of its first one, for ever;
    - similarity is the cosine, computed exactly (see `similarity`).

`Index` keeps all vectors of a database in memory, for the searches to come.  `Scan` keeps the best
of one search, where all vectors would be too much.  Both are fed with the pages of `search.page`,
which hold the discoveries in the order of their last change: a discovery that changes meanwhile is
in a later page again.  After the last page either can be asked.

Callers run what takes a connection inside a transaction.  numpy is loaded only to compare.
"""

import math
import sqlite3
import struct
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from icd.config import Settings
from icd.errors import DimensionMismatch, InvalidVector
from icd.features.discoveries.similarity import Best, Query, Rows, np, pages, require
from icd.features.discoveries.store import STATUSES

if TYPE_CHECKING:
    from icd.features.discoveries.similarity import Booleans, Floats

# --- vectors in memory ----------------------------------------------------------------------------

# So few calls of numpy that they cost nothing, and a deadline is seen within milliseconds.
BLOCK_BYTES = 32 * 1024 * 1024
# What a row costs beside its vector: its id, twice, and the places of both.
ROW_BYTES = 300
# A scan keeps so many more than it is asked for: rows that change while it goes on may drop out.
SPARE = 100

Ranked = list[tuple[str, float]]  # ids with their similarities, the best first


class Row(NamedTuple):
    """A discovery as a search sees it; `weight` is its relevance times its decay."""

    id: str
    vector: bytes | None
    source: str
    version: int = 0
    weight: int = 0
    status: str = "new"


class Sieve(NamedTuple):
    """Which rows count: weights from `low` to below `high`, these statuses, but not `without`."""

    low: int
    high: int
    statuses: frozenset[str]
    without: str = ""


class Question(NamedTuple):
    """A search made precise: the vector, what competes, and sources that cannot be compared."""

    vector: bytes
    sources: list[str]
    others: list[str]
    sieve: Sieve
    min_score: float
    limit: int
    settings: Settings


class Mark(NamedTuple):
    """How far the discoveries have been read: the last row, and how many were deleted by then."""

    version: int = -1
    id: str = ""
    deleted: int = 0


class Page(NamedTuple):
    """`anew`: what was read before no longer holds.  `is_last`: it holds now."""

    rows: list[Row]
    mark: Mark
    anew: bool
    is_last: bool


class _Block:
    def __init__(self, size: int, dimension: int) -> None:
        self.values: Floats = np.empty((size, dimension), np.float32)
        self.norms: Floats = np.empty(size, np.float32)
        self.weights = np.empty(size, np.int64)
        self.statuses = np.empty(size, np.uint8)
        self.ids: list[str] = []

    def among(self, sieve: Sieve) -> "Booleans":
        size = len(self.ids)
        wanted = np.array([status in sieve.statuses for status in STATUSES])
        found: Booleans = wanted[self.statuses[:size]]
        weights = self.weights[:size]
        return found & (weights >= sieve.low) & (weights < sieve.high)


class Matrix:
    """The vectors of one source, in blocks, so that growing copies nothing."""

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self._size = max(1, BLOCK_BYTES // (4 * dimension))  # rows of a block
        self._blocks: list[_Block] = []
        self._places: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._places)

    def put(self, rows: Sequence[Row]) -> None:
        """Take in rows, or what has become of them; those of another dimension are left out."""
        fitting = [row for row in rows if row.vector and len(row.vector) == 4 * self.dimension]
        new = Rows([row.vector or b"" for row in fitting], self.dimension)
        for i, row in enumerate(fitting):
            block, place = self._place(row.id)
            block.values[place] = new.values[i]
            block.norms[place] = new.norms[i]
            block.weights[place] = row.weight
            block.statuses[place] = STATUSES.index(row.status)

    def _place(self, name: str) -> tuple[_Block, int]:
        place = self._places.setdefault(name, len(self._places))
        number, place = divmod(place, self._size)
        if number == len(self._blocks):
            self._blocks.append(_Block(self._size, self.dimension))
        block = self._blocks[number]
        if place == len(block.ids):
            block.ids.append(name)
        return block, place

    def offer(self, best: Best, sieve: Sieve) -> None:
        """Offer every row that passes."""
        offered = []
        for block in self._blocks:
            size = len(block.ids)
            near = best.near(block.values[:size], block.norms[:size])
            near[~block.among(sieve)] = -np.inf
            offered.append((near, block.values, block.ids))
        if offered:
            best.choose(offered)

    def offer_since(self, best: Best, count: int) -> None:
        """Offer the rows that came when there were so many."""
        for number, block in enumerate(self._blocks):
            start, size = max(0, count - number * self._size), len(block.ids)
            if start < size:
                best.offer(block.values[start:size], block.norms[start:size], block.ids[start:])

    def offer_to_all(self, bests: Sequence[Best]) -> None:
        """Offer every row to several, which reads it from memory once for all of them."""
        near = np.stack([best.query.near for best in bests], axis=1)
        for block in self._blocks:
            size = len(block.ids)
            values = block.values[:size]
            with np.errstate(all="ignore"):
                products = (values @ near) / block.norms[:size, None]
                # What is no number is left to a closer look.
                reached = ~(products.max(axis=0) < [best.floor for best in bests])
            for i in np.flatnonzero(reached).tolist():
                bests[i].choose([(products[:, i], values, block.ids)])


class Index:
    """The matrices of all sources of a database."""

    def __init__(self, mark: Mark = Mark()) -> None:  # noqa: B008 -- it cannot be changed
        self.mark = mark
        self._matrices: dict[str, Matrix] = {}

    @property
    def size(self) -> int:
        """In bytes."""
        return sum(len(m) * (4 * m.dimension + ROW_BYTES) for m in self._matrices.values())

    def take(self, page: Page) -> None:
        if page.anew:
            self._matrices.clear()
        rows = sorted((row for row in page.rows if row.vector), key=lambda row: row.source)
        for source, some in groupby(rows, key=lambda row: row.source):
            found = list(some)
            if source not in self._matrices:
                self._matrices[source] = Matrix(len(found[0].vector or b"") // 4)
            self._matrices[source].put(found)
        self.mark = page.mark

    def offer(self, best: Best, asked: Question) -> None:
        for source in asked.sources:
            matrix = self._matrices.get(source)
            if matrix is not None and matrix.dimension * 4 == len(asked.vector):
                matrix.offer(best, asked.sieve)

    def best(self, asked: Question, check: Callable[[], None]) -> Ranked:
        best = Best(Query(asked.vector), asked.limit + 1, asked.min_score, check)
        self.offer(best, asked)
        best.drop([asked.sieve.without])
        return best.found[: asked.limit]


class Scan:
    """One search."""

    def __init__(self, asked: Question, mark: Mark = Mark()) -> None:  # noqa: B008
        self.mark = mark
        self._asked = asked
        self._begin()

    def _begin(self) -> None:
        asked = self._asked
        self.mark = Mark(deleted=self.mark.deleted)
        self._best = Best(Query(asked.vector), asked.limit + 1 + SPARE, asked.min_score)
        self._dropped = 0

    def take(self, page: Page) -> None:
        if page.anew:
            self._begin()
        self._dropped += self._best.drop({row.id for row in page.rows})
        rows = Index()
        rows.take(page)
        rows.offer(self._best, self._asked)
        self.mark = page.mark
        if page.is_last and self._dropped > SPARE:
            self._begin()  # something better may have been turned away for one that dropped out

    def best(self, asked: Question, _check: Callable[[], None]) -> Ranked:
        self._best.drop([asked.sieve.without])
        return self._best.found[: asked.limit]


# --- stored vectors -------------------------------------------------------------------------------

# Several times what any model in use has; 64 KiB.
MAX_DIMENSION = 16_384
# What a `Batch` keeps in memory of one source; a larger one is read again for each question.
BATCH_BYTES = 512 * 1024 * 1024

_ALL = "SELECT discovery_id, vector FROM embeddings WHERE source = ? AND length(vector) = ?"


def parse(data: bytes) -> bytes:
    """The same bytes, if they are an embedding."""
    count, rest = divmod(len(data), 4)
    if rest or not count:
        raise InvalidVector(
            f"an embedding of {len(data)} bytes is not a multiple of 4 bytes (float32)"
        )
    if count > MAX_DIMENSION:
        raise InvalidVector(
            f"an embedding of {count} numbers is too long, at most {MAX_DIMENSION} are allowed"
        )
    numbers = struct.unpack(f"<{count}f", data)
    if not math.isfinite(sum(numbers)):  # float64 holds any sum of them, unless one is not finite
        raise InvalidVector("the embedding has a number that is not finite")
    if not any(numbers):
        raise InvalidVector("the embedding is the zero vector")
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
            f"the embedding has {len(vector) // 4} numbers, but source {source!r} has {known}"
        )


def store(conn: sqlite3.Connection, discovery_id: str, source: str, vector: bytes) -> None:
    """Give a discovery that is stored its embedding, or another one."""
    check_dimension(conn, source, vector)
    conn.execute(
        "INSERT INTO embedding_sources (source, dimension) VALUES (?, ?) ON CONFLICT DO NOTHING",
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
        if vectors:
            require()
        size = dimension(self._conn, source)
        fitting = {vector for vector in vectors if len(vector) // 4 == size}
        matrix = self._matrix(source, size) if size is not None and fitting else None
        if matrix is not None:
            bests = {vector: Best(Query(vector), 1, threshold) for vector in fitting}
            matrix.offer_to_all(list(bests.values()))
            self._ahead[source] = len(matrix), bests

    def nearest(self, source: str, vector: bytes, *, threshold: float) -> str | None:
        require()
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
