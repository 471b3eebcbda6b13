"""One place for every measurement: printed as it comes, and kept for the report.

A row is a ratio of two things measured in the same run, and may have a limit; a note is a figure
without one, or the reason why there is none.  A suite that fails is a row, too: the others run.
"""

import statistics
from collections.abc import Sequence

from msgspec import Struct

from tests.bench.plots import Plot


class Row(Struct, frozen=True, kw_only=True):
    """`ratio` is None for a note, whose figure is `text`."""

    section: str
    name: str
    measured: float = 0.0
    against: float = 0.0
    ratio: float | None = None
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
        print(f"{'what':<66} {'measured':>16} {'against':>16} {'ratio':>8} {'limit':>8}")

    def section(self, name: str, about: str) -> None:
        self.sections.append(Section(name, about))

    def ratio(
        self,
        what: str,
        measured: float,
        floor: float,
        *,
        unit: str,
        most: float = 0,
        least: float = 0,
        meaning: str = "",
    ) -> None:
        """`most`: the ratio must not be above it; `least`: nor below it."""
        ratio = measured / floor
        missed = bool((most and ratio > most) or (least and ratio < least))
        limit = f"<= {most:g}" if most else f">= {least:g}" if least else ""
        verdict = "" if not limit else "miss" if missed else "ok"
        row = Row(
            section=self._current, name=what, measured=measured, against=floor, ratio=ratio,
            limit=limit, verdict=verdict, unit=unit, meaning=meaning,
        )  # fmt: skip
        self._add(row)
        print(
            f"{what:<66} {figure(measured):>9} {unit:<6} {figure(floor):>9} {unit:<6}"
            f" {ratio:>8.2f} {limit:>8}{'  miss' if missed else ''}",
            flush=True,
        )

    def note(self, what: str, text: str, *, meaning: str = "") -> None:
        self._add(Row(section=self._current, name=what, text=text, meaning=meaning))
        print(f"{what:<66} {text}", flush=True)

    def calls(self, what: str, times: Sequence[float], *, unit: str, more: str = "") -> None:
        """How long calls took, all of them: what a caller sees, noise of the machine included."""
        p50, p99 = statistics.median(times), p99_of(times)
        text = f"p50 {figure(p50)} {unit}, p99 {figure(p99)} {unit}, of {len(times):,} calls{more}"
        self.note(what, text)

    def plot(self, plot: Plot) -> None:
        self.plots.setdefault(self._current, []).append(plot)

    def failed(self, why: str) -> None:
        """The suite broke off: what it has measured so far stands."""
        row = Row(section=self._current, name="not measured", verdict="failed", text=why)
        self._add(row)
        print(f"{self._current}: failed: {why}", flush=True)

    def close(self) -> int:
        bad = [row for row in self.rows if row.verdict in ("miss", "failed")]
        print(f"{len(bad)} beyond their limit" if bad else "all within their limits")
        return 1 if bad else 0

    @property
    def _current(self) -> str:
        return self.sections[-1].name if self.sections else ""

    def _add(self, row: Row) -> None:
        self.rows.append(row)


def p99_of(times: Sequence[float]) -> float:
    return sorted(times)[len(times) * 99 // 100]


def figure(value: float) -> str:
    """Three digits that count, so that a report changes where the figures do."""
    if value and abs(value) < 100:
        return f"{value:.3g}" if abs(value) < 10 else f"{value:.1f}"
    return f"{value:,.0f}"
