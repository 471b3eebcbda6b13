"""gate.*: whether a run may go on, why not, and going on all the same."""

from typing import Annotated

from msgspec import Meta

from icd.app.call import Context, Params
from icd.app.verb import Method, Writes, no_rows
from icd.errors import Usage
from icd.features.gates import rules as gate_rules
from icd.features.gates import store as gates
from icd.features.gates.rules import Rule
from icd.features.gates.store import Evidence
from icd.features.runs import phases, transitions
from icd.features.runs import store as runs
from icd.values import payloads
from icd.values.wire import Result

Reason = Annotated[str, Meta(max_length=payloads.STRING_BYTES)]


class Check(Params):
    run_id: str
    priority: int = gates.DEFAULT_PRIORITY


class Override(Params):
    run_id: str
    reason: Reason


class Rules(Params):
    run_id: str
    phase: str | None = None


class Checked(Result, kw_only=True):
    """Fields in the order of the original's JSON, which sorts these but not the evidence."""

    evidence: Evidence | None = None
    from_phase: str
    result: str
    run_id: str
    tier: str
    to_phase: str


class Overridden(Result):
    from_phase: str
    reason: str
    to_phase: str


def check(ctx: Context, p: Check) -> Checked:
    run = runs.require(ctx.conn, p.run_id)
    to_phase = gates.next_phase(ctx.conn, run)
    verdict = gates.evaluate(ctx.conn, run, to_phase, priority=p.priority)
    return Checked(
        evidence=Evidence(verdict.evidence) if verdict.evidence else None,
        from_phase=run.phase,
        result=verdict.result,
        run_id=run.id,
        tier=verdict.tier,
        to_phase=to_phase,
    )


def override(ctx: Context, p: Override) -> Overridden:
    moved = transitions.override(ctx.conn, p.run_id, p.reason, actor=ctx.writer, now_ms=ctx.now_ms)
    return Overridden(moved.from_phase, p.reason, moved.to_phase)


def rules(ctx: Context, p: Rules) -> list[Rule]:
    run = runs.require(ctx.conn, p.run_id)
    return gate_rules.met(gate_rules.of(run), phases.chain(run), p.phase)


def check_override(p: Override) -> None:
    if not p.reason.strip():
        raise Usage("an override needs a reason", hint="say why the gate does not count this time")


METHODS = [
    Method("gate.check", Check, Checked, check),
    Method(
        "gate.override",
        Override,
        Overridden,
        override,
        check=check_override,
        writes=Writes(no_rows, appends=True),
    ),
    Method("gate.rules", Rules, list[Rule], rules),
]
