"""The cosine of vectors: exact, and nearly as fast as the product of a matrix.

A product of float32 finds those that can be among the best, and these are computed again: the
products of two float32 are exact as float64, and their sum is rounded once (`fsum`).  So the
result is a function of the two vectors alone, wherever a row stands and whoever computes it.

Promises
    - the best are those of the exact similarities: highest first, then by id;
    - whatever is finite can be compared: rows far from 1 are scaled by powers of two;
    - equal vectors, and multiples of each other by a power of two, have similarity 1.
"""

import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from icd.features.discoveries.arrays import np

if TYPE_CHECKING:
    from icd.features.discoveries.arrays import Booleans, Doubles, Floats, Places

# Norms within this range are left alone: neither they nor their products leave that of float32.
_TAME = 2.0**30
# More than all roundings but those of the sum: of the norms, the quotients and the limits.
_ROUNDINGS = 16
# Of rows that are computed in float64 at once.
_AT_ONCE_BYTES = 2 * 1024 * 1024
# Of rows that are multiplied without a break: a tenth of a millisecond.  A thread that has just
# been woken would otherwise keep its processor until the next tick, four milliseconds.
_SLICE_BYTES = 2 * 1024 * 1024
# So many more than asked for may be undecided before they are compared exactly.
_UNDECIDED = 64


class Rows:
    """Vectors of one dimension, one below the other, with their norms."""

    def __init__(self, vectors: Sequence[bytes], dimension: int) -> None:
        given = np.frombuffer(b"".join(vectors), "<f4").reshape(-1, dimension)
        self.values: Floats = given.astype(np.float32, copy=False)
        with np.errstate(all="ignore"):  # what is no number is not found: nobody stores it
            self.norms: Floats = _norms(self.values).astype(np.float32)
            wild = ~((self.norms >= 1 / _TAME) & (self.norms <= _TAME))
            if wild.any():
                self._scale(wild)

    def _scale(self, wild: "Booleans") -> None:
        rows = self.values[wild]
        _, exponents = np.frexp(np.abs(rows).max(axis=1))
        self.values = self.values.copy()
        self.values[wild] = np.ldexp(rows, -exponents[:, None])
        self.norms[wild] = _norms(self.values[wild])


def _norms(rows: "Floats") -> "Doubles":
    """In pieces: all of it as float64 would be twice what there is."""
    found = np.empty(len(rows), np.float64)
    step = max(1, _AT_ONCE_BYTES // (8 * rows.shape[1]))
    for start in range(0, len(rows), step):
        piece = rows[start : start + step].astype(np.float64)
        found[start : start + step] = np.sqrt(np.einsum("ij,ij->i", piece, piece))
    return found


class Query:
    """What everything is compared with."""

    def __init__(self, vector: bytes) -> None:
        self.dimension = len(vector) // 4
        self.exact: Doubles = Rows([vector], self.dimension).values[0].astype(np.float64)
        self.square = math.fsum((self.exact * self.exact).tolist())
        self.near: Floats = (self.exact / math.sqrt(self.square)).astype(np.float32)
        # How far a product in float32, and one in float64, can be from the truth.
        self.slack = (self.dimension + _ROUNDINGS) * 2.0**-24
        self.fine_slack = (2 * self.dimension + _ROUNDINGS) * 2.0**-53

    def similarities(self, rows: Sequence["Floats"]) -> list[float]:
        found: list[float] = []
        step = max(1, _AT_ONCE_BYTES // (16 * self.dimension))
        for start in range(0, len(rows), step):
            exact = np.stack(rows[start : start + step]).astype(np.float64)
            sums = exact_sums(np.concatenate([exact * self.exact, exact * exact]))
            for dot, square in zip(sums[: len(exact)], sums[len(exact) :], strict=True):
                found.append(max(-1.0, min(1.0, dot / math.sqrt(square * self.square))))
        return found


def exact_sums(terms: "Doubles") -> list[float]:
    """The sum of each row, rounded once, as `fsum` has it, but without Python's lock.

    Every term is cut at one binary digit.  The parts above it add up without rounding, those below
    are so small that their roundings hardly matter.  Where they could, `fsum` decides.
    """
    width = terms.shape[1]
    _, exponents = np.frexp(np.abs(terms).max(axis=1))
    cut = np.ldexp(1.0, exponents + (width + 1).bit_length())[:, None]
    parts = (terms + cut) - cut
    above = parts.sum(axis=1)
    below = np.subtract(terms, parts, out=parts).sum(axis=1)
    rounded = above + below
    back = rounded - above
    rest = np.abs((above - (rounded - back)) + (below - back))
    doubt = width * width * 2.0**-105 * cut[:, 0]
    gap = np.spacing(np.nextafter(np.abs(rounded), 0))
    found: list[float] = rounded.tolist()
    for row in np.flatnonzero(~(rest + doubt < gap / 2)).tolist():
        found[row] = math.fsum(terms[row].tolist())
    return found


def cosines(query: Query, vectors: Sequence[bytes]) -> list[float]:
    """Of all of them, to the precision of float64; what it is does not depend on the others."""
    found: list[float] = []
    step = max(1, _AT_ONCE_BYTES // (8 * query.dimension))
    for start in range(0, len(vectors), step):
        piece = np.frombuffer(b"".join(vectors[start : start + step]), "<f4")
        rows = piece.reshape(-1, query.dimension).astype(np.float64)
        squares = np.einsum("ij,ij->i", rows, rows) * query.square
        found += (np.einsum("ij,j->i", rows, query.exact) / np.sqrt(squares)).tolist()
    return [max(-1.0, min(1.0, cosine)) for cosine in found]


def _products(values: "Floats", near: "Floats") -> "Floats":
    """In slices: whoever waits for the processor meanwhile gets it after each."""
    found = np.empty(len(values), np.float32)
    step = max(1, _SLICE_BYTES // (4 * len(near)))
    for start in range(0, len(values), step):
        np.dot(values[start : start + step], near, out=found[start : start + step])
        os.sched_yield()
    return found


class Best:
    """The `limit` most similar of all that were offered, none below `at_least`.

    Those that can still be among them are kept with their rows; which of them are, is computed
    exactly at the end, or when there are too many that resemble each other.
    """

    def __init__(self, query: Query, limit: int, at_least: float = -1.0) -> None:
        self._query = query
        self._limit = limit
        self._at_least = at_least
        self._kept: list[_Candidate] = []  # the nearest first

    @property
    def found(self) -> list[tuple[str, float]]:
        self._settle()
        return [(one.name, one.near) for one in self._kept]

    @property
    def is_full(self) -> bool:
        return len(self._kept) >= self._limit

    def drop(self, name: str) -> bool:
        """Whether it was among the best so far."""
        size = len(self._kept)
        self._kept = [one for one in self._kept if one.name != name]
        return len(self._kept) < size

    def offer(
        self, values: "Floats", norms: "Floats", ids: Sequence[str], among: "Booleans | None" = None
    ) -> None:
        """Rows of the query's dimension; if `among` is given, only those that it marks."""
        with np.errstate(all="ignore"):
            near = _products(values, self._query.near) / norms
        if among is not None:
            near[~among] = -np.inf
        near[~(near >= -2)] = -np.inf  # also what is no number
        places = self._promising(near, self._query.slack)
        step = max(1, _AT_ONCE_BYTES // (8 * self._query.dimension))
        for start in range(0, len(places), step):
            self._keep(values, places[start : start + step], ids)

    def _promising(self, near: "Floats", slack: float) -> "Places":
        """Those that can be among the best, if each is within `slack` of the truth."""
        floor = self._floor - slack
        if len(near) > self._limit:
            last = len(near) - self._limit
            floor = max(floor, float(np.partition(near, last)[last]) - 2 * slack)
        return np.flatnonzero(near >= max(floor, -2))

    @property
    def _floor(self) -> float:
        """What is below it is not among the best, to the precision of float64."""
        floor = self._at_least
        if self.is_full:
            floor = max(floor, self._kept[self._limit - 1].near - self._query.fine_slack)
        return floor - self._query.fine_slack

    def _keep(self, values: "Floats", places: "Places", ids: Sequence[str]) -> None:
        """Look again with more digits: of rows that resemble each other, few are left."""
        rows = values[places]
        wide = rows.astype(np.float64)
        squares = np.einsum("ij,ij->i", wide, wide) * self._query.square
        nears = ((wide @ self._query.exact) / np.sqrt(squares)).tolist()
        floor = self._floor
        self._kept += [
            _Candidate(near, ids[place], row.copy())
            for near, place, row in zip(nears, places.tolist(), rows, strict=True)
            if near >= floor
        ]
        self._kept.sort(key=lambda one: -one.near)
        floor = self._floor
        self._kept = [one for one in self._kept if one.near >= floor]
        if len(self._kept) > self._limit + _UNDECIDED:
            self._settle()

    def _settle(self) -> None:
        different = {one.row.tobytes(): one.row for one in self._kept}  # many may be the same
        if not different:
            return
        nears = self._query.similarities(list(different.values()))
        exact = dict(zip(different, nears, strict=True))
        for one in self._kept:
            one.near = exact[one.row.tobytes()]
        ranked = sorted(self._kept, key=lambda one: (-one.near, one.name))
        self._kept = [one for one in ranked if one.near >= self._at_least][: self._limit]


class _Candidate:
    """`near` is its similarity, to the precision of float64 or exactly."""

    __slots__ = ("name", "near", "row")

    def __init__(self, near: float, name: str, row: "Floats") -> None:
        self.near = near
        self.name = name
        self.row = row
