"""`run snapshot` on a terminal: the phases of a run, how long each took, and what came of it."""

import html
from collections import Counter
from collections.abc import Iterator

import msgspec
from msgspec import Raw, Struct, field

from icd.app.human.kinds import CYAN, DIM, GREEN, bar, in_words
from icd.app.human.screen import Screen
from icd.app.human.text import clean, cut, pad, width
from icd.app.verb import Card, Column, Table
from icd.features.gates.store import Evidence
from icd.features.runs import history, phases
from icd.features.runs.verbs.snapshot import Gate, Snapshot

BAR = 20  # cells
LEAST_FOR_BARS = 40  # columns
SHOWN = 10  # rows of each kind, the newest


FACTS = Card(
    Column("Run", lambda s: s.run.id, "id"),
    Column("State", lambda s: s.run.status, "state"),
    Column("Goal", lambda s: s.run.goal),
    Column("Project", lambda s: s.run.project_dir, "path"),
    Column("Scope", lambda s: s.run.scope_id),
    Column("Created", lambda s: s.run.created_at, "age"),
    Column("Updated", lambda s: s.run.updated_at, "age"),
    Column("Tokens", lambda s: s.tokens.total_tokens or None, "number"),
    Column("Budget", lambda s: s.budget.budget, "number"),
    Column("Usage", lambda s: s.budget.usage_pct, "share"),
)
CONDITIONS = Table(
    Column("RESULT", "result", "state"),
    Column("CHECK", "check"),
    Column("DETAIL", "detail", spare=True),
)
AGENTS = Table(
    Column("AGENT", "id", "id"),
    Column("STATE", "status", "state"),
    Column("TYPE", "agent_type"),
    Column("NAME", "name"),
    Column("UPDATED", "updated_at", "age"),
)
ARTIFACTS = Table(
    Column("ARTIFACT", "id", "id"),
    Column("PHASE", "phase"),
    Column("STATE", "status", "state"),
    Column("ADDED", "created_at", "age"),
    Column("PATH", "path", "path"),
)
DISPATCHES = Table(
    Column("DISPATCH", "id", "id"),
    Column("STATE", "status", "state"),
    Column("AGENT", "agent_type"),
    Column("NAME", "name", spare=True),
    Column("STARTED", "created_at", "age"),
    Column("LAST", lambda d: d.error_message or d.verdict_status, spare=True),
)


class Phase(Struct):
    """A phase of the chain, and the time that the run was in it, however often."""

    name: str
    state: str  # past, now, skipped or ahead
    seconds: float = 0.0
    visits: int = 0
    artifacts: int = 0
    note: str = ""
    spans: list[tuple[float, float]] = field(default_factory=list)  # from, to


def phases_of(found: Snapshot, now: float) -> list[Phase]:
    """All phases of the chain in their order, then those that are in the history alone."""
    run = found.run
    chain = list(run.phases or phases.DEFAULT)
    spans, notes = _history(found, now)
    made = Counter(artifact.phase for artifact in found.artifacts)
    names = [*chain, *(name for name in spans if name not in chain)]
    place = chain.index(run.phase) if run.phase in chain else len(chain)
    return [
        Phase(
            name,
            _state(found, name, number - place, is_visited=name in spans),
            sum(until - since for since, until in spans.get(name, ())),
            len(spans.get(name, ())),
            made[name],
            notes.get(name, ""),
            spans.get(name, []),
        )
        for number, name in enumerate(names)
    ]


def _history(
    found: Snapshot, now: float
) -> tuple[dict[str, list[tuple[float, float]]], dict[str, str]]:
    """When the run was in which phase, and what stopped it there last."""
    run, spans, notes = found.run, dict[str, list[tuple[float, float]]](), dict[str, str]()
    at, since = found.events[0].from_phase if found.events else run.phase, run.created_at
    for event in found.events:
        if event.event_type in ("block", "pause"):
            notes[event.from_phase] = history.why(event) or event.event_type
        if event.to_phase == at or event.event_type == "skip":
            continue
        spans.setdefault(at, []).append((since, max(event.created_at, since)))
        at, since = event.to_phase, event.created_at
        notes.pop(at, None)
    end = now if run.status == "active" else run.completed_at or run.updated_at
    spans.setdefault(at, []).append((since, max(end, since)))
    return spans, notes


def _state(found: Snapshot, name: str, ahead: int, *, is_visited: bool) -> str:
    """`ahead`: how many phases after the one that the run is in."""
    if ahead == 0:
        return "now" if found.run.status == "active" else "past"
    if is_visited and ahead < 0:
        return "past"
    return "skipped" if ahead < 0 or name in found.run.skipped else "ahead"


_SIGNS = {
    "past": ("✓", GREEN),
    "now": ("●", CYAN),
    "skipped": ("-", DIM),
    "ahead": ("○", ""),
}


def show(found: Snapshot, screen: Screen) -> Iterator[str]:
    yield from screen.card(FACTS, found)
    yield ""
    yield screen.heading("Phases")
    yield from _phases(phases_of(found, screen.clock.now), screen)
    if found.gate is not None:
        yield ""
        yield from _gate(found.gate, screen)
    for title, rows, table in (
        ("Agents", found.agents, AGENTS),
        ("Artifacts", found.artifacts, ARTIFACTS),
        ("Dispatches", found.dispatches, DISPATCHES),
    ):
        if rows:
            told = f"{title}, the newest {SHOWN} of {len(rows)}" if len(rows) > SHOWN else title
            yield ""
            yield screen.heading(told)
            yield from screen.table(table, rows[-SHOWN:])


def _phases(found: list[Phase], screen: Screen) -> Iterator[str]:
    longest = max((phase.seconds for phase in found), default=0.0) or 1.0
    names = [clean(phase.name) for phase in found]
    room = min(max(map(width, names)), max(screen.width // 3, 8))
    cells = BAR if screen.width >= 80 else 8 if screen.width >= LEAST_FOR_BARS else 0
    for phase, name in zip(found, names, strict=True):
        sign, colour = _SIGNS[phase.state]
        head = f"{screen.paint(sign, colour)} {pad(cut(name, room), room)}"
        took = in_words(phase.seconds) if phase.visits else ""
        drawn = bar(phase.seconds / longest, cells) if phase.visits else " " * cells
        notes = [phase.state] if phase.state == "skipped" else []
        notes += [f"{phase.visits} times"] if phase.visits > 1 else []
        notes += _made(phase)
        notes += [clean(phase.note)] if phase.note and phase.state == "now" else []
        rest = cut(", ".join(notes), screen.width - room - cells - 16)
        line = f"{head}  {took:>8}"
        if cells:
            line += f"  {screen.paint(drawn, colour)}  {screen.paint(rest, DIM)}"
        yield line.rstrip()


def _made(phase: Phase) -> list[str]:
    if not phase.artifacts:
        return []
    return ["1 artifact" if phase.artifacts == 1 else f"{phase.artifacts} artifacts"]


def _gate(gate: Gate, screen: Screen) -> Iterator[str]:
    yield screen.heading(f"Gate {clean(gate.from_phase)} → {clean(gate.to_phase)}")
    if gate.error:
        yield from screen.doubt(gate.error)
        return
    yield f"{screen.state(gate.result)} ({gate.tier})"
    if isinstance(gate.evidence, Raw):
        evidence = msgspec.json.decode(gate.evidence, type=Evidence)
        yield from screen.table(CONDITIONS, evidence.conditions)


# --- as a picture ---------------------------------------------------------------------------------

_ROW, _LEFT, _WIDE, _RIGHT, _TOP = 28, 190, 420, 170, 64
_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#1f2328}.dim{fill:#656d76}.title{font-weight:600}"
    ".past{fill:#2da44e}.now{fill:#0969da}.back{fill:none}.line{stroke:#d0d7de}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.dim{fill:#8b949e}.line{stroke:#30363d}}"
)


def svg(found: Snapshot, now: float) -> str:
    """The phases along the time, for a report; light or dark as its reader likes."""
    each = phases_of(found, now)
    begin = found.run.created_at
    whole = max((until for phase in each for _, until in phase.spans), default=begin) - begin
    width, height = _LEFT + _WIDE + _RIGHT, _TOP + _ROW * len(each) + 16
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<style>{_STYLE}</style>",
        _words(16, 24, cut(clean(found.run.goal) or found.run.id, 90), "title"),
        _words(16, 44, f"run {found.run.id}, {found.run.status}, {in_words(whole)}", "dim"),
    ]
    for number, phase in enumerate(each):
        parts += _drawn(phase, _TOP + _ROW * number, begin, whole or 1.0)
    return "\n".join([*parts, "</svg>", ""])


def _drawn(phase: Phase, y: int, begin: float, whole: float) -> Iterator[str]:
    yield f'<line class="line" x1="16" x2="{_LEFT + _WIDE + _RIGHT - 16}" y1="{y}" y2="{y}"/>'
    yield _words(16, y + 19, cut(clean(phase.name), 24), "" if phase.visits else "dim")
    for since, until in phase.spans:
        x, size = (since - begin) / whole * _WIDE, max((until - since) / whole * _WIDE, 2)
        kind = "now" if phase.state == "now" else "past"
        yield (
            f'<rect class="{kind}" x="{_LEFT + x:.1f}" y="{y + 6}" width="{size:.1f}" '
            f'height="{_ROW - 12}" rx="3"/>'
        )
    told = [in_words(phase.seconds)] if phase.visits else []
    told += ["skipped"] if phase.state == "skipped" else []
    told += _made(phase)
    yield _words(_LEFT + _WIDE + 12, y + 19, ", ".join(told), "dim")


def _words(x: int, y: int, text: str, kind: str) -> str:
    """What is no character of XML is left out, and all else is text."""
    safe = html.escape(clean(text).translate({0xFFFE: None, 0xFFFF: None}))
    return f'<text x="{x}" y="{y}" class="{kind}">{safe}</text>'
