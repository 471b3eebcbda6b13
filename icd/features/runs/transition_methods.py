"""run.*: what happens to a run; see icd/features/runs/transitions.py."""

from collections.abc import Callable
from typing import Annotated, Any

from msgspec import Meta, field

from icd.app.call import Context, Params
from icd.app.verb import Method, Writes, no_rows
from icd.errors import InvalidParams
from icd.features.gates import store as gates
from icd.features.runs import rollback as rollbacks
from icd.features.runs import transitions
from icd.features.runs.transitions import Advance, Settings
from icd.values import payloads
from icd.values.wire import INT64, Result

Complexity = Annotated[int, Meta(ge=1, le=5)]
Priority = Annotated[int, Meta(ge=-INT64, le=INT64 - 1)]
Reason = Annotated[str, Meta(max_length=payloads.STRING_BYTES)]


class AdvanceRun(Params):
    run_id: str
    priority: Priority = gates.DEFAULT_PRIORITY
    disable_gates: bool = False
    skip_reason: Reason = ""
    if_phase: str | None = None


class Skip(Params):
    """`actor`: who decided it, in the caller's words."""

    run_id: str
    phase: str
    reason: Reason
    actor: str | None = None


class Cancel(Params):
    run_id: str


class Abandon(Params):
    run_id: str
    reason: Reason = ""


class Set(Params):
    run_id: str
    complexity: Complexity | None = None
    auto_advance: bool | None = None
    force_full: bool | None = None


class Rollback(Params):
    run_id: str
    to_phase: str
    reason: Reason = ""
    dry_run: bool = False


class Skipped(Result):
    phase: str
    status: str


class Changed(Result):
    """What became of a run, in a word."""

    id: str
    status: str


class RolledBack(Result):
    """What is left out by a dry run has not been done; `dispatches` are those cancelled."""

    from_phase: str
    to_phase: str
    rolled_back_phases: list[str]
    dry_run: bool = False
    reason: str | None = None
    marked_artifacts: int | None = None
    failed_agents: int | None = None
    cancelled_dispatches: int | None = None
    dispatches: list[str] = field(default_factory=list)
    cleared_skips: list[str] = field(default_factory=list)


def advance(ctx: Context, p: AdvanceRun) -> Advance:
    found = transitions.advance(
        ctx.conn,
        p.run_id,
        priority=p.priority,
        disable_gates=p.disable_gates,
        skip_reason=p.skip_reason,
        if_phase=p.if_phase,
        actor=ctx.writer,
        now_ms=ctx.now_ms,
    )
    ctx.changed = found.event_type != "stale"
    return found


def skip(ctx: Context, p: Skip) -> Skipped:
    reason = f"actor={p.actor}: {p.reason}" if p.actor else p.reason
    transitions.skip(
        ctx.conn, p.run_id, p.phase, reason=reason, actor=ctx.writer, now_ms=ctx.now_ms
    )
    return Skipped(p.phase, "skipped")


def cancel(ctx: Context, p: Cancel) -> Changed:
    transitions.cancel(ctx.conn, p.run_id, actor=ctx.writer, now_ms=ctx.now_ms)
    return Changed(p.run_id, "cancelled")


def abandon(ctx: Context, p: Abandon) -> Changed:
    transitions.abandon(ctx.conn, p.run_id, reason=p.reason, actor=ctx.writer, now_ms=ctx.now_ms)
    return Changed(p.run_id, "abandoned")


def set_(ctx: Context, p: Set) -> Changed:
    wanted = Settings(p.complexity, p.auto_advance, p.force_full)
    transitions.configure(ctx.conn, p.run_id, wanted, actor=ctx.writer, now_ms=ctx.now_ms)
    return Changed(p.run_id, "updated")


def rollback(ctx: Context, p: Rollback) -> RolledBack:
    if p.dry_run:
        ctx.changed = False
        planned = rollbacks.plan(ctx.conn, p.run_id, p.to_phase, now_ms=ctx.now_ms)
        return RolledBack(planned.from_phase, planned.to_phase, planned.phases, dry_run=True)
    done = rollbacks.carry_out(
        ctx.conn, p.run_id, p.to_phase, reason=p.reason, actor=ctx.writer, now_ms=ctx.now_ms
    )
    return RolledBack(
        done.from_phase,
        done.to_phase,
        done.phases,
        reason=p.reason,
        marked_artifacts=done.artifacts,
        failed_agents=done.agents,
        cancelled_dispatches=len(done.dispatches),
        dispatches=done.dispatches,
        cleared_skips=done.skips,
    )


def check_skip(p: Skip) -> None:
    if not p.reason.strip():
        raise InvalidParams("the reason is empty", hint="say why, with --reason")


def check_set(p: Set) -> None:
    if p.complexity is None and p.auto_advance is None and p.force_full is None:
        raise InvalidParams(
            "no settings to update", hint="give --complexity, --auto-advance or --force-full"
        )


def _method(
    name: str,
    params: type[Params],
    result: Any,
    run: Callable[[Context, Any], Any],
    check: Callable[[Any], None] | None = None,
) -> Method[Any, Any]:
    """Each changes a run, and records that it did."""
    return Method(name, params, result, run, check=check, writes=Writes(no_rows, appends=True))


METHODS = [
    _method("run.advance", AdvanceRun, Advance, advance),
    _method("run.skip", Skip, Skipped, skip, check_skip),
    _method("run.cancel", Cancel, Changed, cancel),
    _method("run.abandon", Abandon, Changed, abandon),
    _method("run.set", Set, Changed, set_, check_set),
    _method("run.rollback", Rollback, RolledBack, rollback),
]
