"""Small line plots as plain SVG: axes with labels, each line named at its end, light or dark.

A line's last figure stands beside its name, a floor is grey and dashed, and a logarithmic axis says
so: whoever only glances at a plot should not be misled by it.

The same figures give the same bytes, so that a diff shows what changed.
"""

import math
from collections.abc import Sequence
from html import escape

from msgspec import Struct

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 76, 210, 44, 52
LINE_HEIGHT = 15  # of two labels, one above the other
STYLE = """\
svg { font: 12px system-ui, sans-serif; background: #ffffff; }
text { fill: #24292f; } .title { font-size: 15px; font-weight: 600; } .tick { fill: #57606a; }
.grid { stroke: #d8dee4; } .axis { stroke: #57606a; }
.line { fill: none; stroke-width: 2; } .floor { stroke-dasharray: 5 4; }
.cf { stroke: #57606a; } .df { fill: #57606a; }
.c0 { stroke: #0969da; } .c1 { stroke: #8a6d00; } .c2 { stroke: #b3248f; } .c3 { stroke: #1a7f37; }
.d0 { fill: #0969da; } .d1 { fill: #8a6d00; } .d2 { fill: #b3248f; } .d3 { fill: #1a7f37; }
@media (prefers-color-scheme: dark) {
svg { background: #0d1117; } text { fill: #e6edf3; } .tick { fill: #9198a1; }
.grid { stroke: #2a313c; } .axis { stroke: #9198a1; }
.cf { stroke: #9198a1; } .df { fill: #9198a1; }
.c0 { stroke: #58a6ff; } .c1 { stroke: #e3b341; } .c2 { stroke: #f778ba; } .c3 { stroke: #56d364; }
.d0 { fill: #58a6ff; } .d1 { fill: #e3b341; } .d2 { fill: #f778ba; } .d3 { fill: #56d364; }
}
"""
COLOURS = 4
MANY_POWERS = 4  # of ten on an axis: those between them would be too many
NEARLY = 1.05

Point = tuple[float, float]


class Series(Struct, frozen=True):
    """A line; that of a floor is grey, and dashed."""

    label: str
    points: Sequence[Point]
    is_floor: bool = False


class Plot(Struct, frozen=True, kw_only=True):
    """`name` is that of its file."""

    name: str
    title: str
    x: str
    y: str
    series: Sequence[Series]
    log_x: bool = True
    log_y: bool = True


class _Scale:
    """From values to pixels, and where the ticks are."""

    def __init__(self, values: Sequence[float], start: float, end: float, *, log: bool) -> None:
        low, high = min(values), max(values)
        self._log, self._start, self._end = log, start, end
        self.ticks = _logarithmic(low, high) if log else _steps(high)
        self._low = min(low, self.ticks[0]) if log else 0.0
        self._high = max(high, self.ticks[-1])

    def __call__(self, value: float) -> float:
        low, high, at = self._low, self._high, value
        if self._log:
            low, high, at = math.log10(low), math.log10(high), math.log10(value)
        part = (at - low) / (high - low or 1.0)
        return self._start + part * (self._end - self._start)


def svg(plot: Plot) -> str:
    points = [point for series in plot.series for point in series.points]
    across = _Scale([x for x, _ in points], LEFT, WIDTH - RIGHT, log=plot.log_x)
    up = _Scale([y for _, y in points], HEIGHT - BOTTOM, TOP, log=plot.log_y)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>{escape(plot.title)}</title>",
        f"<style>\n{STYLE}</style>",
        f'<text class="title" x="{LEFT}" y="22">{escape(plot.title)}</text>',
        *_axes(plot, across, up),
        *_lines(plot, across, up),
        *_labels(plot, up),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _axes(plot: Plot, across: _Scale, up: _Scale) -> list[str]:
    floor, end = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = []
    for tick in up.ticks:
        y = up(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{end}" y2="{y:.1f}"/>')
        parts.append(_text(LEFT - 8, y + 4, short(tick), kind="tick", anchor="end"))
    for tick in across.ticks:
        x = across(tick)
        parts.append(
            f'<line class="axis" x1="{x:.1f}" y1="{floor}" x2="{x:.1f}" y2="{floor + 5}"/>'
        )
        parts.append(_text(x, floor + 19, short(tick), kind="tick", anchor="middle"))
    parts.append(f'<line class="axis" x1="{LEFT}" y1="{floor}" x2="{end}" y2="{floor}"/>')
    title = _axis(plot.x, log=plot.log_x)
    parts.append(_text((LEFT + end) / 2, HEIGHT - 12, title, anchor="middle"))
    middle = (TOP + floor) / 2
    parts.append(
        f'<text x="18" y="{middle:.1f}" text-anchor="middle"'
        f' transform="rotate(-90 18 {middle:.1f})">{escape(_axis(plot.y, log=plot.log_y))}</text>'
    )
    return parts


def _axis(title: str, *, log: bool) -> str:
    return f"{title} (log scale)" if log else title


def _colour(number: int, series: Series) -> str:
    return "f" if series.is_floor else str(number % COLOURS)


def _lines(plot: Plot, across: _Scale, up: _Scale) -> list[str]:
    parts = []
    for number, series in enumerate(plot.series):
        places = [(across(x), up(y)) for x, y in series.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        colour = _colour(number, series)
        kind = f"line c{colour}{' floor' if series.is_floor else ''}"
        parts.append(f'<polyline class="{kind}" points="{path}"/>')
        parts += [f'<circle class="d{colour}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in places]
    return parts


def _labels(plot: Plot, up: _Scale) -> list[str]:
    """Each with its last figure at the end of its line, or as near as its neighbours allow."""
    ends = sorted((up(s.points[-1][1]), n, s) for n, s in enumerate(plot.series))
    rows = [y for y, _, _ in ends]
    for i in range(1, len(rows)):
        rows[i] = max(rows[i], rows[i - 1] + LINE_HEIGHT)
    lowest = HEIGHT - BOTTOM
    for i in reversed(range(len(rows))):
        rows[i] = min(rows[i], lowest - LINE_HEIGHT * (len(rows) - 1 - i))
    return [
        _text(
            WIDTH - RIGHT + 10,
            y + 4,
            f"{series.label}: {_rounded(series.points[-1][1])}",
            kind=f"d{_colour(number, series)}",
        )
        for y, (_, number, series) in zip(rows, ends, strict=True)
    ]


def _text(x: float, y: float, text: str, *, kind: str = "", anchor: str = "start") -> str:
    style = f' class="{kind}"' if kind else ""
    return f'<text{style} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def short(value: float) -> str:
    """1k, 20M, 0.5."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _rounded(value: float) -> str:
    return short(float(f"{value:.3g}"))


def _logarithmic(low: float, high: float) -> list[float]:
    """From 1, 2 or 5 times a power of ten below the values to one above; of many, powers only."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    fine = [f * 10.0**e for e in range(first, last + 1) for f in (1, 2, 5)]
    # A mebibyte is nearly a million: no room is made for what is a little more than a tick.
    below = max(t for t in fine if t <= low * NEARLY)
    above = min((t for t in fine if t >= high / NEARLY), default=fine[-1])
    ticks = [t for t in fine if below <= t <= above]
    powers = [t for t in ticks if math.log10(t).is_integer()]
    return ticks if len(powers) < MANY_POWERS else sorted({*powers, below, above})


def _steps(high: float) -> list[float]:
    size = 10.0 ** math.floor(math.log10(high))
    step = next(s for s in (size / 5, size / 2, size, 2 * size) if high / s <= 6)
    return [step * i for i in range(math.ceil(high / step) + 1)]
