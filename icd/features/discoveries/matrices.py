"""The vectors of one source in memory, in blocks, so that growing copies nothing.

A row is replaced when its discovery has changed.  Beside each vector stands what filters ask for.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from icd.features.discoveries.arrays import np
from icd.features.discoveries.similarity import Best, Query, Rows
from icd.features.discoveries.store import STATUSES

if TYPE_CHECKING:
    from icd.features.discoveries.arrays import Booleans, Floats

# So few calls of numpy that they cost nothing, and a deadline is seen within milliseconds.
BLOCK_BYTES = 32 * 1024 * 1024
# What a row costs beside its vector: its id, twice, and the places of both.
ROW_BYTES = 300


class Row(NamedTuple):
    """A discovery as a search sees it; `weight` is its relevance times its decay."""

    id: str
    version: int
    source: str
    weight: int
    status: str
    vector: bytes | None


class Sieve(NamedTuple):
    """Which rows count: weights from `low` to below `high`, these statuses, but not `without`."""

    low: int
    high: int
    statuses: frozenset[str]
    without: str = ""

    def passes(self, row: Row) -> bool:
        return (
            self.low <= row.weight < self.high
            and row.status in self.statuses
            and row.id != self.without
        )


class _Block:
    def __init__(self, size: int, dimension: int) -> None:
        self.values: Floats = np.empty((size, dimension), np.float32)
        self.norms: Floats = np.empty(size, np.float32)
        self.weights = np.empty(size, np.int64)
        self.statuses = np.empty(size, np.uint8)
        self.ids: list[str] = []

    def among(self, sieve: Sieve) -> "Booleans":
        size = len(self.ids)
        weights, statuses = self.weights[:size], self.statuses[:size]
        wanted = np.array([status in sieve.statuses for status in STATUSES])
        found: Booleans = wanted[statuses]
        return found & (weights >= sieve.low) & (weights < sieve.high)


class Matrix:
    """All rows of a source."""

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self._size = max(1, BLOCK_BYTES // (4 * dimension))  # rows of a block
        self._blocks: list[_Block] = []
        self._places: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._places)

    def put(self, rows: list[Row]) -> None:
        """Take in rows, or what has become of them; those without a vector are none of ours."""
        fitting = [row for row in rows if row.vector and len(row.vector) == 4 * self.dimension]
        if not fitting:
            return
        new = Rows([row.vector or b"" for row in fitting], self.dimension)
        for i, row in enumerate(fitting):
            block, place = self._place(row.id)
            block.values[place] = new.values[i]
            block.norms[place] = new.norms[i]
            block.weights[place] = row.weight
            block.statuses[place] = STATUSES.index(row.status)

    def _place(self, name: str) -> tuple[_Block, int]:
        place = self._places.get(name)
        if place is None:
            place = self._places[name] = len(self._places)
            if place // self._size == len(self._blocks):
                self._blocks.append(_Block(self._size, self.dimension))
            self._blocks[-1].ids.append(name)
        return self._blocks[place // self._size], place % self._size

    def offer(self, best: Best, sieve: Sieve | None = None) -> Iterator[None]:
        """Offer every row that passes; between two blocks the caller may look at its clock."""
        for block in self._blocks:
            size = len(block.ids)
            among = None if sieve is None else block.among(sieve)
            if among is not None and sieve is not None and sieve.without in self._places:
                own = self._places[sieve.without]
                if self._blocks[own // self._size] is block:
                    among[own % self._size] = False
            best.offer(block.values[:size], block.norms[:size], block.ids, among)
            yield

    def glimpse(self, queries: list[Query], at_least: float) -> "Glimpse":
        """Compare with several at once, which reads each row once for all of them."""
        near = np.stack([query.near for query in queries], axis=1)
        floor = at_least - 2 * queries[0].slack
        blocks: list[set[int]] = [set() for _ in queries]
        for number, block in enumerate(self._blocks):
            size = len(block.ids)
            with np.errstate(all="ignore"):
                products = (block.values[:size] @ near) / block.norms[:size, None]
                # What is no number is left to whoever looks closer.
                reached = ~(products.max(axis=0) < floor)
            for query in np.flatnonzero(reached).tolist():
                blocks[query].add(number)
        return Glimpse(len(self), blocks)

    def offer_rest(self, best: Best, blocks: set[int], since: int) -> None:
        """Offer the rows of these blocks, and of the others those that came since."""
        for number, block in enumerate(self._blocks):
            size = len(block.ids)
            start = 0 if number in blocks else min(size, max(0, since - number * self._size))
            if start < size:
                best.offer(block.values[start:size], block.norms[start:size], block.ids[start:])


class Glimpse(NamedTuple):
    """When there were `size` rows: the blocks in which each query can have something similar."""

    size: int
    blocks: list[set[int]]
