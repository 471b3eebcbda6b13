"""One place for every measurement: printed as it comes, and kept for the report.

A row is a ratio of two things measured in the same run, and may have a limit; a note is a figure
without one, or the reason why there is none.  A suite that fails is a row, too: the others run.

What was repeated is given as all its repetitions: here, and nowhere else, they become a median and
a p99, and the ratio is that of the medians.
"""

import statistics
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from tests.bench.plots import Plot

# Every repetition, or one figure: a size, a count, a budget.
Figures = Sequence[float] | float


class Side(Struct, frozen=True):
    """One of the two that are compared; what was not repeated has no p99."""

    p50: float
    p99: float | None = None
    count: int = 1


class Row(Struct, frozen=True, kw_only=True):
    """`ratio` is None for a note, whose figure is `text`."""

    section: str
    name: str
    against: str = ""
    measured: Side = Side(0.0)
    floor: Side = Side(0.0)
    ratio: float | None = None
    by: str = "p50"
    limit: str = ""
    verdict: str = ""  # ok, miss, failed; empty: there is no limit
    unit: str = ""
    text: str = ""
    meaning: str = ""  # a sentence


class Section(Struct, frozen=True):
    name: str
    about: str


class Table:
    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.sections: list[Section] = []
        self.plots: dict[str, list[Plot]] = {}
        print(f"{'what / against':<70} {'p50, p99':>22} {'p50, p99':>22} {'ratio':>8} {'limit':>8}")

    def section(self, name: str, about: str) -> None:
        self.sections.append(Section(name, about))

    def ratio(
        self,
        what: str,
        measured: Figures,
        floor: Figures,
        *,
        unit: str,
        most: float = 0,
        least: float = 0,
        by: Literal["p50", "p99"] = "p50",
        meaning: str = "",
    ) -> None:
        """`what` is "this / that".  The ratio must not be above `most`, nor below `least`.

        A row with `least` is one where more is better: its p99 is the low end.
        """
        ours, theirs = (side(figures, high=bool(least)) for figures in (measured, floor))
        ratio = ours.p50 / theirs.p50
        if by == "p99" and ours.p99 is not None and theirs.p99 is not None:
            ratio = ours.p99 / theirs.p99
        missed = bool((most and ratio > most) or (least and ratio < least))
        limit = f"<= {most:g}" if most else f">= {least:g}" if least else ""
        name, _, against = what.partition(" / ")
        row = Row(
            section=self._current, name=name, against=against, measured=ours, floor=theirs,
            ratio=ratio, by=by, limit=limit, unit=unit, meaning=meaning,
            verdict="" if not limit else "miss" if missed else "ok",
        )  # fmt: skip
        self.rows.append(row)
        print(
            f"{what:<70} {_shown(ours, unit):>22} {_shown(theirs, unit):>22}"
            f" {ratio:>8.2f} {limit:>8}{'  miss' if missed else ''}",
            flush=True,
        )

    def note(self, what: str, text: str, *, meaning: str = "") -> None:
        self.rows.append(Row(section=self._current, name=what, text=text, meaning=meaning))
        print(f"{what:<70} {text}", flush=True)

    def plot(self, plot: Plot) -> None:
        self.plots.setdefault(self._current, []).append(plot)

    def failed(self, why: str) -> None:
        """The suite broke off: what it has measured so far stands."""
        row = Row(section=self._current, name="not measured", verdict="failed", text=why)
        self.rows.append(row)
        print(f"{self._current}: failed: {why}", flush=True)

    def close(self) -> int:
        bad = [row for row in self.rows if row.verdict in ("miss", "failed")]
        print(f"{len(bad)} beyond their limit" if bad else "all within their limits")
        return 1 if bad else 0

    @property
    def _current(self) -> str:
        return self.sections[-1].name if self.sections else ""


def side(figures: Figures, *, high: bool = False) -> Side:
    """`high`: more is better."""
    if isinstance(figures, Sequence):
        return Side(statistics.median(figures), p99_of(figures, high=high), len(figures))
    return Side(figures)


def p99_of(figures: Sequence[float], *, high: bool = False) -> float:
    """What 99 of 100 are no worse than; of fewer, the worst."""
    return sorted(figures, reverse=high)[len(figures) * 99 // 100]


def _shown(side: Side, unit: str) -> str:
    p99 = "" if side.p99 is None else f", {figure(side.p99)}"
    return f"{figure(side.p50)}{p99} {unit}"


def figure(value: float) -> str:
    """Three digits that count, so that a report changes where the figures do."""
    if value and abs(value) < 100:
        return f"{value:.3g}" if abs(value) < 10 else f"{value:.1f}"
    return f"{value:,.0f}"
