"""The cosine of vectors: exact, and nearly as fast as the product of a matrix.

A product of float32 finds the rows that can be among the best, and these are computed again: the
products of two float32 are exact as float64, and their sum is rounded once.  So the result is a
function of the two vectors alone, wherever a row stands and whichever host computes it.

Promises
    - the best are those of the exact similarities: highest first, then by id;
    - all finite vectors can be compared: rows far from 1 are scaled by powers of two;
    - equal vectors, and multiples of each other by a power of two, have similarity 1.

numpy is the extra `intercore[vectors]`, and takes a tenth of a second to load: `np` loads it when
it is first used.  Verbs that compare call `require` first, so that both hosts refuse alike.
"""

import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from icd.errors import IcError, VectorsNotInstalled

__all__ = [
    "Best",
    "Query",
    "Rows",
    "cosines",
    "exact_sums",
    "load",
    "np",
    "pages",
    "require",
    "warm_up",
]

T = TypeVar("T")

# Norms within this range are left alone: neither they nor their products leave that of float32.
_TAME = 2.0**30
# More than all roundings but those of the sum: of the norms, the quotients and the limits.
_ROUNDINGS = 16
# Of vectors that are read from a database at once.
PAGE_BYTES = 1024 * 1024
# Of rows that are computed in float64 at once: all of a block would take twice its memory.
_AT_ONCE_BYTES = 2 * 1024 * 1024
# Of rows that are multiplied without a break: a tenth of a millisecond.  A thread that has just
# been woken would otherwise keep its processor until the next tick, four milliseconds.
_SLICE_BYTES = 2 * 1024 * 1024
# The machine belongs to the callers that wait for hooks: a product uses one thread.  The libraries
# below numpy read these while they are loaded.
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")

if TYPE_CHECKING:
    import numpy as np

    Floats = np.ndarray[tuple[int, ...], np.dtype[np.float32]]
    Doubles = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
    Booleans = np.ndarray[tuple[int, ...], np.dtype[np.bool]]
    Places = np.ndarray[tuple[int, ...], np.dtype[np.intp]]
else:

    class _Numpy:
        def __getattr__(self, name: str) -> Any:
            found = getattr(load(), name)
            setattr(self, name, found)
            return found

    np = _Numpy()


def require() -> None:
    """Refuse to compare where numpy is not installed; this does not load it."""
    if find_spec("numpy") is None:
        raise _not_installed()


def _not_installed() -> IcError:
    return VectorsNotInstalled("comparing embeddings needs numpy, which is not installed")


def warm_up() -> None:
    """Load numpy before a lock is taken; the verb itself reports that it is missing."""
    with suppress(VectorsNotInstalled):
        load()


def load() -> Any:
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        return import_module("numpy")
    except ImportError as exc:
        raise _not_installed() from exc
    finally:
        for name, value in before.items():  # programs that we start decide for themselves
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _pieces(count: int, row_bytes: int, most: int = _AT_ONCE_BYTES) -> Iterator[slice]:
    """All rows, in slices of at most so many bytes."""
    step = max(1, most // row_bytes)
    return (slice(start, start + step) for start in range(0, count, step))


def pages(rows: Iterable[T], dimension: int) -> Iterator[list[T]]:
    """Rows as they are read from a database, so many at once that memory stays bounded."""
    rest = iter(rows)
    while page := list(islice(rest, max(1, PAGE_BYTES // (4 * dimension)))):
        yield page


class Rows:
    """Vectors of one dimension, one below the other, with their norms."""

    def __init__(self, vectors: Sequence[bytes], dimension: int) -> None:
        given = np.frombuffer(b"".join(vectors), "<f4").reshape(-1, dimension)
        self.values: Floats = given.astype(np.float32, copy=False)
        with np.errstate(all="ignore"):  # what is no number is never stored, and never found
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
    found = np.empty(len(rows), np.float64)
    for piece in _pieces(len(rows), 8 * rows.shape[1]):
        wide = rows[piece].astype(np.float64)
        found[piece] = np.sqrt(np.einsum("ij,ij->i", wide, wide))
    return found


class Query:
    """The vector that rows are compared with."""

    def __init__(self, vector: bytes) -> None:
        self.dimension = len(vector) // 4
        self.exact: Doubles = Rows([vector], self.dimension).values[0].astype(np.float64)
        self.square = math.fsum((self.exact * self.exact).tolist())
        self.near: Floats = (self.exact / math.sqrt(self.square)).astype(np.float32)
        # How far a product in float32 can be from the truth.
        self.slack = (self.dimension + _ROUNDINGS) * 2.0**-24

    def products(self, values: "Floats") -> "Floats":
        """In slices: a thread that waits for the processor gets it after each."""
        found = np.empty(len(values), np.float32)
        for piece in _pieces(len(values), 4 * self.dimension, _SLICE_BYTES):
            np.dot(values[piece], self.near, out=found[piece])
            os.sched_yield()
        return found

    def similarities(self, rows: "Floats") -> list[float]:
        """The cosines, exactly."""
        different = {row.tobytes(): row for row in rows}  # many may be the same
        wide = np.stack(list(different.values())).astype(np.float64)
        sums = exact_sums(np.concatenate([wide * self.exact, wide * wide]))
        found = {
            row: max(-1.0, min(1.0, dot / math.sqrt(square * self.square)))
            for row, dot, square in zip(different, sums, sums[len(wide) :], strict=False)
        }
        return [found[row.tobytes()] for row in rows]


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
    """The cosines of all, to the precision of float64; that of one depends on no other."""
    found: list[float] = []
    for piece in _pieces(len(vectors), 8 * query.dimension):
        narrow = np.frombuffer(b"".join(vectors[piece]), "<f4").reshape(-1, query.dimension)
        rows = narrow.astype(np.float64)
        norms = np.sqrt(np.einsum("ij,ij->i", rows, rows) * query.square)
        found += (np.einsum("ij,j->i", rows, query.exact) / norms).clip(-1, 1).tolist()
    return found


class Best:
    """The `limit` most similar of all that were offered, none below `at_least`.

    `check` is called every few milliseconds, and may end it.
    """

    def __init__(
        self,
        query: Query,
        limit: int,
        at_least: float = -1.0,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.query = query
        self.found: list[tuple[str, float]] = []  # ids with their similarities, the best first
        self._limit = limit
        self._at_least = at_least
        self._check = check

    @property
    def floor(self) -> float:
        """No row whose similarity in float32 is below it is among the best."""
        full = len(self.found) >= self._limit
        least = max(self._at_least, self.found[-1][1]) if full else self._at_least
        return least - self.query.slack

    def drop(self, names: Collection[str]) -> int:
        """How many of them were among the best so far."""
        size = len(self.found)
        self.found = [one for one in self.found if one[0] not in names]
        return size - len(self.found)

    def take(self, vectors: Iterable[tuple[str, bytes]]) -> None:
        """Offer vectors of the query's dimension, each behind its id, a page at a time."""
        for page in pages(vectors, self.query.dimension):
            rows = Rows([vector for _, vector in page], self.query.dimension)
            self.offer(rows.values, rows.norms, [name for name, _ in page])

    def offer(self, values: "Floats", norms: "Floats", ids: Sequence[str]) -> None:
        """Offer rows of the query's dimension."""
        self.choose([(self.near(values, norms), values, ids)])

    def near(self, values: "Floats", norms: "Floats") -> "Floats":
        """The similarities of rows, in float32."""
        self._check()
        with np.errstate(all="ignore"):
            return self.query.products(values) / norms

    def choose(self, offered: Sequence[tuple["Floats", "Floats", Sequence[str]]]) -> None:
        """Offer blocks of rows: their similarities in float32, the rows, and their ids.

        All at once: fewer have to be computed exactly than one block after the other.
        """
        least = self._least(np.concatenate([near for near, _, _ in offered]))
        for near, values, ids in offered:
            places = np.flatnonzero(near >= least)
            for piece in _pieces(len(places), 16 * self.query.dimension):
                self._check()
                names = [ids[place] for place in places[piece].tolist()]
                self._rank(names, self.query.similarities(values[places[piece]]))

    def _least(self, near: "Floats") -> float:
        """What is below it cannot be among the best, for each is within `slack` of the truth."""
        near[~(near >= -2)] = -np.inf  # also what is no number
        last = len(near) - self._limit
        highest = float(np.partition(near, last)[last]) if last > 0 else -np.inf
        return max(self.floor, highest - 2 * self.query.slack, -2)

    def _rank(self, names: list[str], similarities: list[float]) -> None:
        new = [one for one in zip(names, similarities, strict=True) if one[1] >= self._at_least]
        ranked = sorted(self.found + new, key=lambda one: (-one[1], one[0]))
        self.found = ranked[: self._limit]
