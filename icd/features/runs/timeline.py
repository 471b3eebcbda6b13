"""`run snapshot` on a terminal: the phases of a run, how long each took, and what came of it."""

from collections import Counter, defaultdict
from collections.abc import Iterator

import msgspec
from msgspec import Raw, Struct

from icd.app.human.kinds import CYAN, DIM, GREEN, bar, in_words
from icd.app.human.screen import Screen
from icd.app.human.text import clean, cut, pad, width
from icd.app.verb import Card, Column, Table
from icd.features.gates.store import Evidence
from icd.features.runs import history, phases
from icd.features.runs.verbs.snapshot import Gate, Snapshot

BAR = 20  # cells
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


def phases_of(found: Snapshot, now: float) -> list[Phase]:
    """All phases of the chain in their order, then those that are in the history alone."""
    run = found.run
    chain = list(run.phases or phases.DEFAULT)
    spent: dict[str, float] = defaultdict(float)
    visits: Counter[str] = Counter()
    notes: dict[str, str] = {}
    at, since = found.events[0].from_phase if found.events else run.phase, run.created_at
    visits[at] += 1
    for event in found.events:
        if event.event_type in ("block", "pause"):
            notes[event.from_phase] = history.why(event) or event.event_type
        if event.to_phase == at or event.event_type == "skip":
            continue
        spent[at] += event.created_at - since
        at, since = event.to_phase, event.created_at
        visits[at] += 1
        notes.pop(at, None)
    is_over = run.status != "active"
    spent[at] += (run.completed_at or run.updated_at if is_over else now) - since
    made = Counter(artifact.phase for artifact in found.artifacts)
    names = [*chain, *(name for name in visits if name not in chain)]
    place = chain.index(run.phase) if run.phase in chain else len(chain)
    return [
        Phase(
            name,
            _state(number, place, name in run.skipped, bool(visits[name]), is_over),
            max(spent[name], 0.0),
            visits[name],
            made[name],
            notes.get(name, ""),
        )
        for number, name in enumerate(names)
    ]


def _state(number: int, place: int, skipped: bool, visited: bool, is_over: bool) -> str:  # noqa: FBT001 -- four facts of one phase
    if number == place:
        return "past" if is_over else "now"
    if visited:
        return "past" if number < place else "ahead"
    return "skipped" if skipped or number < place else "ahead"


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
    cells = BAR if screen.width >= 80 else 8
    for phase, name in zip(found, names, strict=True):
        sign, colour = _SIGNS[phase.state]
        head = f"{screen.paint(sign, colour)} {pad(cut(name, room), room)}"
        took = in_words(phase.seconds) if phase.visits else ""
        drawn = bar(phase.seconds / longest, cells) if phase.visits else " " * cells
        notes = [phase.state] if phase.state == "skipped" else []
        notes += [f"{phase.visits} times"] if phase.visits > 1 else []
        if phase.artifacts:
            notes.append("1 artifact" if phase.artifacts == 1 else f"{phase.artifacts} artifacts")
        notes += [clean(phase.note)] if phase.note and phase.state == "now" else []
        rest = cut(", ".join(notes), screen.width - room - cells - 16)
        line = f"{head}  {took:>8}  {screen.paint(drawn, colour)}  {screen.paint(rest, DIM)}"
        yield line.rstrip()


def _gate(gate: Gate, screen: Screen) -> Iterator[str]:
    yield screen.heading(f"Gate {clean(gate.from_phase)} → {clean(gate.to_phase)}")
    if gate.error:
        yield from screen.doubt(gate.error)
        return
    yield f"{screen.state(gate.result)} ({gate.tier})"
    if isinstance(gate.evidence, Raw):
        evidence = msgspec.json.decode(gate.evidence, type=Evidence)
        yield from screen.table(CONDITIONS, evidence.conditions)
