"""run.snapshot: everything about a run in one call."""

from msgspec import UNSET, Raw, UnsetType

from icd.app import projects
from icd.app.call import Context, Params
from icd.app.verb import Method
from icd.features.dispatches.store import Dispatch
from icd.features.runs import (
    agent_methods as agents,
)
from icd.features.runs import (
    artifact_methods as artifacts,
)
from icd.features.runs import (
    budget_methods as budgets,
)
from icd.features.runs import (
    documents as run_documents,
)
from icd.features.runs import snapshot_store as snapshots
from icd.features.runs import store as runs
from icd.features.runs.history import PhaseEvent
from icd.features.runs.snapshot_store import Gate
from icd.features.runs.store import Run
from icd.values.wire import Result


class Take(Params):
    """`run_id`, or the newest active run of the project that `project`, else `cwd`, belongs to."""

    run_id: str | None = None
    project: str | None = None


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

    run: run_documents.Document
    events: list[PhaseEvent]
    agents: list[agents.Agent]
    artifacts: list[artifacts.Artifact]
    dispatches: list[Dispatch]
    tokens: budgets.Used
    budget: budgets.Standing
    gate: GateVerdict | None
    cut: list[str]


def take(ctx: Context, p: Take) -> Snapshot | None:
    """None: no run of that project is active."""
    if p.run_id is None:
        run = runs.current(ctx.conn, projects.meant(ctx, p.cwd, p.project))
    else:
        run = runs.require(ctx.conn, p.run_id)
    if run is None:
        return None
    found = snapshots.read(ctx.conn, run)
    return Snapshot(
        run=run_documents.in_full(ctx.conn, run),
        events=found.history,
        agents=[agents.shown(agent) for agent in found.agents],
        artifacts=[artifacts.shown(artifact) for artifact in found.artifacts],
        dispatches=found.dispatches,
        tokens=budgets.used(found.run.id, found.tokens),
        budget=budgets.standing(found.run.id, found.budget),
        gate=None if found.gate is None else _verdict(found.run, found.gate),
        cut=found.cut,
    )


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
