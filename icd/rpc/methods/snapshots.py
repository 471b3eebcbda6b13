"""run.snapshot: everything about a run in one call."""

import msgspec
from msgspec import UNSET, Raw, UnsetType

from icd.core import snapshots
from icd.core.names import iso
from icd.core.runs import Run
from icd.core.snapshots import Dispatch, Gate, Transition
from icd.rpc import projects
from icd.rpc.method import Context, Method, Params
from icd.rpc.methods import agents, artifacts, budgets
from icd.rpc.results import Result


class Take(Params):
    """`run_id`, or the newest active run of the project that `project`, else `cwd`, belongs to."""

    run_id: str | None = None
    project: str | None = None


class RunFields(Result):
    """A run, as the original shows it, and what is ours."""

    id: str
    status: str
    phase: str
    goal: str
    project_dir: str
    complexity: int
    force_full: bool
    auto_advance: bool
    auto_spawn: bool
    created_at: int
    created_at_iso: str
    updated_at: int
    updated_at_iso: str
    completed_at: int | None = None
    completed_at_iso: str | None = None
    scope_id: str | None = None
    phases: list[str] | None = None
    token_budget: int | None = None
    budget_warn_pct: int | None = None
    metadata: str | None = None
    session: str | None = None


class PhaseEvent(Result):
    id: int
    run_id: str
    event_type: str
    from_phase: str
    to_phase: str
    created_at: int
    created_at_iso: str
    gate_result: str = ""
    gate_tier: str = ""
    reason: str = ""


class DispatchFields(Result):
    id: str
    run_id: str
    agent_type: str
    status: str
    project_dir: str
    turns: int
    commands: int
    messages: int
    in_tokens: int
    out_tokens: int
    created_at: int
    created_at_iso: str
    cache_hits: int | None = None
    started_at: int | None = None
    completed_at: int | None = None
    name: str | None = None
    model: str | None = None
    prompt_file: str | None = None
    output_file: str | None = None
    pid: int | None = None
    exit_code: int | None = None
    verdict_status: str | None = None
    verdict_summary: str | None = None
    error_message: str | None = None
    scope_id: str | None = None
    parent_id: str | None = None


class GateVerdict(Result):
    """`error`: why it cannot be told; the result is then `unknown`."""

    from_phase: str
    to_phase: str
    result: str
    tier: str
    evidence: Raw | UnsetType = UNSET
    error: str = ""


class Snapshot(Result):
    """`cut` names the lists of which only the newest rows are here."""

    run: RunFields
    events: list[PhaseEvent]
    agents: list[agents.Agent]
    artifacts: list[artifacts.Artifact]
    dispatches: list[DispatchFields]
    tokens: budgets.Used
    budget: budgets.Standing
    gate: GateVerdict | None
    cut: list[str]


def take(ctx: Context, p: Take) -> Snapshot | None:
    """None: no run of that project is active."""
    run_id = p.run_id
    if run_id is None:
        project_dir = projects.meant(ctx, p.cwd, p.project)
        run_id = snapshots.current(ctx.conn, project_dir)
    if run_id is None:
        return None
    found = snapshots.read(ctx.conn, run_id)
    return Snapshot(
        run=_run(found.run),
        events=[_event(found.run.id, event) for event in found.history],
        agents=[agents.shown(agent) for agent in found.agents],
        artifacts=[artifacts.shown(artifact) for artifact in found.artifacts],
        dispatches=[_dispatch(dispatch) for dispatch in found.dispatches],
        tokens=budgets.used(found.run.id, found.tokens),
        budget=budgets.standing(found.run.id, found.budget),
        gate=None if found.gate is None else _verdict(found.run, found.gate),
        cut=found.cut,
    )


def _run(run: Run) -> RunFields:
    has_budget = run.token_budget is not None
    completed = run.completed_at
    return RunFields(
        id=run.id,
        status=run.status,
        phase=run.phase,
        goal=run.goal,
        project_dir=run.project_dir,
        complexity=run.complexity,
        force_full=run.force_full,
        auto_advance=run.auto_advance,
        auto_spawn=run.auto_spawn,
        created_at=run.created_at,
        created_at_iso=iso(run.created_at),
        updated_at=run.updated_at,
        updated_at_iso=iso(run.updated_at),
        completed_at=completed,
        completed_at_iso=None if completed is None else iso(completed),
        scope_id=run.scope_id,
        phases=_phases(run),
        token_budget=run.token_budget,
        budget_warn_pct=run.budget_warn_pct if has_budget else None,
        metadata=run.metadata,
        session=run.session,
    )


def _phases(run: Run) -> list[str] | None:
    """What cannot be read must not keep anybody from seeing the rest."""
    try:
        return None if run.phases is None else msgspec.json.decode(run.phases, type=list[str])
    except msgspec.DecodeError:
        return None


def _event(run_id: str, event: Transition) -> PhaseEvent:
    return PhaseEvent(
        id=event.id,
        run_id=run_id,
        event_type=event.event_type,
        from_phase=event.from_phase,
        to_phase=event.to_phase,
        created_at=event.created_at,
        created_at_iso=iso(event.created_at),
        gate_result=event.gate_result,
        gate_tier=event.gate_tier,
        reason=event.reason,
    )


def _dispatch(found: Dispatch) -> DispatchFields:
    fields = msgspec.structs.asdict(found)
    used = {"in_tokens": fields.pop("input_tokens"), "out_tokens": fields.pop("output_tokens")}
    return DispatchFields(**fields, **used, created_at_iso=iso(found.created_at))


def _verdict(run: Run, gate: Gate) -> GateVerdict:
    return GateVerdict(
        from_phase=run.phase,
        to_phase=gate.to_phase,
        result=gate.result,
        tier=gate.tier,
        evidence=UNSET if gate.evidence is None else Raw(gate.evidence.encode()),
        error=gate.error,
    )


METHODS = [Method("run.snapshot", Take, Snapshot | None, take)]
