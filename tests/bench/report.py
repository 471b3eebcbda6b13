"""What a complete run writes: docs/performance.md and its plots.

The order is that of the suites, and every figure has three digits, so that a diff shows what
changed and nothing else.
"""

import os
import platform
import sqlite3
import time
from pathlib import Path

from tests.bench.plots import svg
from tests.bench.table import Row, Section, Side, Table, figure

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "performance.md"
PLOTS = ROOT / "docs" / "performance"

HEAD = """\
# Performance

What calls cost, each against a floor or a peer that was measured in the same run.
`make bench` writes this page; do not edit it.

- **What** is compared with **Against**; both took turns, **n** times each, so that a busy minute of the machine is everybody's.
- **p50** is the median, and **p99** what 99 of 100 were no worse than (of fewer than 100, the worst), noise of the machine included.
- **Ratio** is that of the medians, or where it says so of the p99; it can be compared between machines, and milliseconds cannot.
- **Limit** is what the project promised itself, and **Met** says whether it holds; a row without one is there to compare.
- A size, a count or a budget is one figure, and has no p99.
"""
COLUMNS = "| What | p50 | p99 | Against | p50 | p99 | Ratio | Limit | Met | n |"
ALIGNED = "|---|---:|---:|---|---:|---:|---:|---:|:---:|---:|"
MET = {"": "", "ok": "yes", "miss": "**no**"}


def machine() -> dict[str, str]:
    return {
        "Processor": f"{_processor()}, {os.cpu_count()} cores",
        "Memory": f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.1f} GiB",
        "Load": f"{os.getloadavg()[2]:.1f} processes in the last 15 minutes, those of the bench included",
        "Kernel": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "SQLite": sqlite3.sqlite_version,
        "Date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def write(table: Table, page: Path = PAGE, plots: Path = PLOTS) -> None:
    plots.mkdir(exist_ok=True)
    for old in plots.glob("*.svg"):
        old.unlink()
    for drawn in table.plots.values():
        for plot in drawn:
            (plots / f"{plot.name}.svg").write_text(svg(plot))
    page.write_text(text(table, machine(), plots.name))


def text(table: Table, about: dict[str, str], plots: str) -> str:
    parts = [HEAD, *_glance(table.rows), "\n## Machine\n", "| | |\n|---|---|"]
    parts += [f"| {name} | {value} |" for name, value in about.items()]
    for section in table.sections:
        parts += _section(table, section, plots)
    return "\n".join(parts) + "\n"


def _glance(rows: list[Row]) -> list[str]:
    """What most readers want to know, first."""
    limited = [row for row in rows if row.limit]
    missed = [row for row in limited if row.verdict == "miss"]
    failed = [row for row in rows if row.verdict == "failed"]
    parts = ["## At a glance\n", f"{len(limited) - len(missed)} of {len(limited)} limits are met."]
    if missed:
        parts += ["These are not:\n", COLUMNS, ALIGNED, *(_ratio(row) for row in missed)]
    parts += [f"\nNot measured to the end: {row.section}." for row in failed]
    return parts


def _section(table: Table, section: Section, plots: str) -> list[str]:
    rows = [row for row in table.rows if row.section == section.name]
    ratios = [row for row in rows if row.ratio is not None]
    notes = [row for row in rows if row.ratio is None]
    parts = [f"\n## {section.name}\n", section.about]
    if ratios:
        parts += ["", COLUMNS, ALIGNED, *(_ratio(row) for row in ratios)]
    meanings = [row for row in rows if row.meaning]
    if meanings:
        parts.append("")
        parts += [f"- *{_title(row)}*: {row.meaning}" for row in meanings]
    if notes:
        parts.append("\n| Also | |\n|---|---|")
        parts += [f"| {_cell(row.name)} | {_note(row)} |" for row in notes]
    for plot in table.plots.get(section.name, []):
        parts.append(f"\n![{plot.title}]({plots}/{plot.name}.svg)")
    return parts


def _ratio(row: Row) -> str:
    assert row.ratio is not None
    ratio = figure(row.ratio) + (" of p99" if row.by == "p99" else "")
    limit = row.limit.replace("<=", "≤").replace(">=", "≥")
    count = f"{row.measured.count:,}" if row.measured.p99 is not None else ""
    cells = [
        _cell(row.name), *_side(row.measured, row.unit),
        _cell(row.against), *_side(row.floor, row.unit), ratio, limit, MET[row.verdict], count,
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _side(side: Side, unit: str) -> tuple[str, str]:
    p99 = "" if side.p99 is None else f"{figure(side.p99)} {unit}"
    return f"{figure(side.p50)} {unit}", p99


def _title(row: Row) -> str:
    return _cell(f"{row.name} / {row.against}" if row.against else row.name)


def _note(row: Row) -> str:
    return f"**failed**: {_cell(row.text)}" if row.verdict == "failed" else _cell(row.text)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
