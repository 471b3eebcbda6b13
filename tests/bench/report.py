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
from tests.bench.table import Row, Section, Table, figure

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "performance.md"
PLOTS = ROOT / "docs" / "performance"

HEAD = """\
# Performance

What calls cost, each against a floor or a peer that was measured in the same run, in turn.
`make bench` writes this page; do not edit it.
Ratios can be compared between machines, and milliseconds cannot.
A row with a limit is one that the project promised itself; `miss` is beyond it.
Rows take the least of many repetitions where they compare programs, since everything above it is about the machine, and say so; p50 and p99 are those of all calls.
"""


def machine() -> dict[str, str]:
    return {
        "Processor": f"{_processor()}, {os.cpu_count()} cores",
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
    parts = [HEAD, "## Machine\n", "| | |\n|---|---|"]
    parts += [f"| {name} | {value} |" for name, value in about.items()]
    for section in table.sections:
        parts += _section(table, section, plots)
    return "\n".join(parts) + "\n"


def _section(table: Table, section: Section, plots: str) -> list[str]:
    rows = [row for row in table.rows if row.section == section.name]
    ratios = [row for row in rows if row.ratio is not None]
    notes = [row for row in rows if row.ratio is None]
    parts = [f"\n## {section.name}\n", section.about]
    if ratios:
        parts.append("\n| What | Measured | Against | Ratio | Limit | Verdict |")
        parts.append("|---|---:|---:|---:|---:|---|")
        parts += [_ratio(row) for row in ratios]
    meanings = [row for row in rows if row.meaning]
    if meanings:
        parts.append("")
        parts += [f"- *{_cell(row.name)}*: {row.meaning}" for row in meanings]
    if notes:
        parts.append("\n| Also | |\n|---|---|")
        parts += [f"| {_cell(row.name)} | {_note(row)} |" for row in notes]
    for plot in table.plots.get(section.name, []):
        parts.append(f"\n![{plot.title}]({plots}/{plot.name}.svg)")
    return parts


def _ratio(row: Row) -> str:
    assert row.ratio is not None
    return (
        f"| {_cell(row.name)} | {figure(row.measured)} {row.unit} | {figure(row.against)} {row.unit}"
        f" | {figure(row.ratio)} | {row.limit.replace('<=', '≤').replace('>=', '≥')}"
        f" | {row.verdict} |"
    )


def _note(row: Row) -> str:
    return f"**failed**: {_cell(row.text)}" if row.verdict == "failed" else _cell(row.text)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
