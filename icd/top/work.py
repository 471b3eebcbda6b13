"""What is worked on: events, runs and dispatches."""

from collections.abc import Callable
from typing import Any

from msgspec import Raw, structs

from icctl.api import Error
from icd import trust
from icd.app.invocation import World
from icd.app.verb import Column, Table
from icd.errors import IcError
from icd.features.dispatches import kill, logs
from icd.features.dispatches.kill import Kill
from icd.features.dispatches.store import Dispatch
from icd.features.events.store import Event
from icd.features.runs import phases
from icd.top.projects import Project
from icd.top.rows import MOST, Action, Ask, Row, Steps, Tab, field_of, required

# Runs whose gates are asked for, and dispatches whose output is read: those that a screen shows.
LOOKED_AT = 24

# --- events ---------------------------------------------------------------------------------------


def _what(row: Row) -> str:
    """What a narrow screen has room for comes first."""
    found: Event = row.of
    moved = f"{found.from_state or '·'} → {found.to_state or '·'}"
    payload = bytes(found.payload) if isinstance(found.payload, Raw) else b""
    parts = [
        moved if found.from_state or found.to_state else "",
        found.subject_id if found.subject_id != found.run_id else "",
        found.reason or payload.decode("utf-8", "replace"),
        found.run_id,
    ]
    return " ".join(filter(None, parts))


def _who(row: Row) -> str:
    return row.of.session or (f"pid {row.of.pid}" if row.of.pid else "")


EVENTS = Table(
    Column("WHEN", lambda r: r.of.at_ms / 1000, "age"),
    Column("SOURCE", field_of("source")),
    Column("TYPE", field_of("type")),
    Column("WHAT", _what),
    empty="No events yet. Record one: icctl events record --source=ci --type=built",
)
EVENTS_WIDE = (Column("WHO", _who, spare=True),)


def event(project: Project, found: Any) -> Row:
    return Row(project, (project.database, found.seq), found)


def _active_first(
    project: Project, method: str, active: dict[str, Any], is_over: Callable[[Any], bool]
) -> Steps[list[Row]]:
    """The newest; what goes on is asked for beside them where it may be older than all of these."""
    (found,) = yield [(method, {"limit": MOST})]
    each = {of.id: of for of in required(found)}
    if len(each) >= MOST and any(map(is_over, each.values())):
        (found,) = yield [(method, {"limit": MOST, **active})]
        each = {of.id: of for of in required(found)} | each
    rows = [Row(project, (project.database, key), of) for key, of in each.items()]
    rows.sort(key=lambda row: is_over(row.of))
    return rows[:MOST]


# --- runs -----------------------------------------------------------------------------------------


def _runs(project: Project) -> Steps[list[Row]]:
    rows = yield from _active_first(
        project, "run.list", {"status": "active"}, lambda run: run.status != "active"
    )
    active = [row for row in rows[:LOOKED_AT] if row.of.status == "active"]
    gates = yield [("gate.check", {"run_id": row.of.id}) for row in active]
    for row, gate in zip(active, gates, strict=True):
        row.more = None if isinstance(gate, Error) else gate
    return rows


def _phase(row: Row) -> str:
    """`5/9 executing`"""
    chain = row.of.phases or phases.DEFAULT
    if row.of.phase not in chain:
        return str(row.of.phase)
    return f"{chain.index(row.of.phase) + 1}/{len(chain)} {row.of.phase}"


def _gate(row: Row) -> str | None:
    return None if row.more is None or row.more.result == "none" else row.more.result


def _lacks(row: Row) -> str | None:
    """What keeps a run from its next phase."""
    evidence = row.more.evidence if row.more is not None else None
    failed = [c for c in evidence.conditions if c.result == "fail"] if evidence else []
    return "; ".join(c.detail or c.check for c in failed) or None


def _advance(_world: World, ask: Ask, row: Row) -> str:
    found = ask("run.advance", {"run_id": row.of.id, "if_phase": row.of.phase})
    if found.advanced:
        return f"run {row.of.id} is in {found.to_phase}"
    return f"run {row.of.id} stays in {found.from_phase}: {found.reason or found.event_type}"


RUNS = Table(
    Column("RUN", field_of("id"), "id"),
    Column("STATE", field_of("status"), "state"),
    Column("PHASE", _phase),
    Column("GATE", _gate, "state"),
    Column("UPDATED", field_of("updated_at"), "age"),
    Column("GOAL", field_of("goal")),
    empty="No runs yet. Start one: icctl run create --goal='what is to be done'",
)
RUNS_WIDE = (Column("LACKS", _lacks, spare=True), Column("SCOPE", field_of("scope_id"), spare=True))
ADVANCE = Action(
    "a",
    "advance",
    lambda r: f"Advance run {r.of.id} from {r.of.phase} to its next phase?",
    _advance,
    lambda r: "" if r.of.status == "active" else f"run {r.of.id} has ended",
)

# --- dispatches -----------------------------------------------------------------------------------


def _dispatches(project: Project) -> Steps[list[Row]]:
    return (
        yield from _active_first(project, "dispatch.list", {"active": True}, lambda d: d.is_over)
    )


def _outputs(world: World, rows: list[Row]) -> list[Row]:
    """The last line of each that runs; of a database that is not trusted, no file is read."""
    for row in rows[:LOOKED_AT]:
        found: Dispatch = row.of
        if found.output_file and not found.is_over and is_trusted(world, row):
            try:
                row.more = logs.last_line(found.output_file)
            except IcError:  # it may be gone by now, or another user's
                row.more = None
    return []


def is_trusted(world: World, row: Row) -> bool:
    return row.project is not None and trust.allows(world.env.get("HOME"), row.project.database)


def _last(row: Row) -> str | None:
    """What it printed last, or how it ended."""
    found: Dispatch = row.of
    if found.error_message or found.verdict_summary:
        return found.error_message or found.verdict_summary
    if found.status == "failed" and found.exit_code is not None:
        return f"exit {found.exit_code}"
    return row.more or found.verdict_status


def _kill(world: World, ask: Ask, row: Row) -> str:
    """As the command does it, whose rules say which processes may be ended."""
    assert row.project is not None
    here = structs.replace(world, where=row.project.where, json=False)

    def carry_out(method: str, params: Any, /, **_progress: Any) -> Any:
        return ask(method, structs.asdict(params))

    output = kill.ask_kill(here, Kill(ids=[row.of.id])).run(carry_out)
    if output.exit:
        return output.stderr.decode("utf-8", "replace").strip()
    return f"dispatch {row.of.id} is killed"


DISPATCHES = Table(
    Column("DISPATCH", field_of("id"), "id"),
    Column("STATE", field_of("status"), "state"),
    Column("AGENT", lambda r: r.of.name or r.of.agent_type),
    Column("TIME", lambda r: (r.of.started_at or r.of.created_at, r.of.completed_at), "elapsed"),
    Column("LAST", _last),
    Column("RUN", field_of("run_id"), "id", spare=True),
    empty="No dispatches yet. Start one: icctl dispatch spawn --prompt-file=FILE",
)
KILL = Action(
    "x",
    "kill",
    lambda r: f"Kill dispatch {r.of.id} ({r.of.name or r.of.agent_type}) and all its processes?",
    _kill,
    lambda r: "" if not r.of.is_over else f"dispatch {r.of.id} has ended",
)

TABS = (
    Tab("Events", "Events", EVENTS, wide=EVENTS_WIDE),
    Tab("Runs", "Runs", RUNS, _runs, actions=(ADVANCE,), wide=RUNS_WIDE),
    Tab("Dispatches", "Disp", DISPATCHES, _dispatches, _outputs, actions=(KILL,)),
)
