"""Vectors in memory, and the searches that they answer.

`Index` keeps all vectors of a database, for the searches to come.  `Scan` keeps the best of one
search, where all vectors would be too much.  Both are fed with the pages of `search.page`, which
hold the discoveries in the order of their last change: a discovery that changes meanwhile is in a
later page again.  After the last page either can be asked.
"""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from icd.config import Settings
from icd.features.discoveries.similarity import Best, Query, Rows, np
from icd.features.discoveries.store import STATUSES

if TYPE_CHECKING:
    from icd.features.discoveries.similarity import Booleans, Floats

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
