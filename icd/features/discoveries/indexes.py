"""What a search is computed from, fed with the pages of `searches.page`.

`Index` keeps everything, for the searches to come; `Scan` keeps the best of one search only, where
everything would be too much.  Either may be asked once it was given the last page.
"""

from collections.abc import Callable

from icd.features.discoveries.matrices import ROW_BYTES, Matrix, Row
from icd.features.discoveries.search_store import Mark, Page, Question
from icd.features.discoveries.similarity import Best, Query, Rows

# A scan keeps so many more than it is asked for: rows that change while it goes on may drop out.
SPARE = 100

Check = Callable[[], None]
Ranked = list[tuple[str, float]]  # ids with their similarities, the best first


class Index:
    """The matrices of all sources of a database."""

    def __init__(self) -> None:
        self.mark = Mark()
        self._matrices: dict[str, Matrix] = {}

    @property
    def size(self) -> int:
        """In bytes."""
        return sum(len(m) * (4 * m.dimension + ROW_BYTES) for m in self._matrices.values())

    def take(self, page: Page) -> None:
        if page.anew:
            self._matrices.clear()
        by_source: dict[str, list[Row]] = {}
        for row in page.rows:
            if row.vector is not None:
                by_source.setdefault(row.source, []).append(row)
        for source, rows in by_source.items():
            if source not in self._matrices:
                self._matrices[source] = Matrix(len(rows[0].vector or b"") // 4)
            self._matrices[source].put(rows)
        self.mark = page.mark

    def best(self, asked: Question, check: Check) -> Ranked:
        """`check` is called every few milliseconds, and may end it."""
        best = Best(Query(asked.vector), asked.limit, asked.min_score)
        for source in asked.sources:
            matrix = self._matrices.get(source)
            if matrix is not None and matrix.dimension * 4 == len(asked.vector):
                for _ in matrix.offer(best, asked.sieve):
                    check()
        return best.found


class Scan:
    """One search."""

    def __init__(self, asked: Question) -> None:
        self._asked = asked
        self._query = Query(asked.vector)
        self._begin()

    def _begin(self) -> None:
        self.mark = Mark()
        self._best = Best(self._query, self._asked.limit + SPARE, self._asked.min_score)
        self._dropped = 0

    def take(self, page: Page) -> None:
        if page.anew:
            self._begin()
        was_full = self._best.is_full
        dropped = sum(self._best.drop(row.id) for row in page.rows)
        self._dropped += dropped if was_full or self._dropped else 0
        asked, length = self._asked, len(self._asked.vector)
        fitting = [
            row
            for row in page.rows
            if row.source in asked.sources
            and row.vector is not None
            and len(row.vector) == length
            and asked.sieve.passes(row)
        ]
        if fitting:
            new = Rows([row.vector or b"" for row in fitting], self._query.dimension)
            self._best.offer(new.values, new.norms, [row.id for row in fitting])
        self.mark = page.mark
        if page.is_last and self._dropped > SPARE:
            self._begin()  # something better may have been turned away for one that dropped out

    def best(self, _asked: Question, _check: Check) -> Ranked:
        return self._best.found[: self._asked.limit]
