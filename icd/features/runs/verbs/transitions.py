"""run: what happens to a run; the rules are in icd/features/runs/transitions.py."""

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Raw, field

from icd.app import invocation, render
from icd.app.call import Context, Params
from icd.app.invocation import Ask, Output, World
from icd.app.types import TRUTH
from icd.app.verb import Argument, Command, Method, Option, Verb, Writes, narrow, no_rows
from icd.errors import InvalidParams, InvalidPayload, UnreadableInput, Usage
from icd.features.gates import store as gates
from icd.features.gates.store import DEFAULT_PRIORITY
from icd.features.runs import create, transitions
from icd.features.runs.create import Rollback
from icd.features.runs.transitions import Advance
from icd.features.runs.verbs import Reason, RunId, artifacts
from icd.features.runs.verbs import create as create_verbs
from icd.features.runs.verbs.actions import what
from icd.features.runs.verbs.create import NOTHING, Complexity, Limit
from icd.values import payloads
from icd.values.wire import INT64, Result

# What is in the way of an advance, and how to go on.
_ADVICE = {
    "block": "a hard gate blocks the run; see 'icctl gate check {0} --priority=0', or advance with "
    "'icctl gate override {0} --reason=…'",
    "pause": "auto_advance is off; advance with --skip-reason, "
    "or 'icctl run set {0} --auto-advance=true'",
}
# Each verb changes a run, and records that it did.
_WRITES = Writes(no_rows, appends=True)

Why = Annotated[Reason, Option("--reason", "Reason.", "TEXT")]


# --- parameters -----------------------------------------------------------------------------------


def _calibration(world: World, given: str | None) -> Raw:
    if given is None:
        return NOTHING
    text = world.read_file(given)
    try:
        gates.calibration(text)
    except UnreadableInput as exc:
        raise UnreadableInput(f"{given}: {exc.message}", hint=exc.hint) from exc
    return Raw(text)


CalibrationFile = Annotated[
    Raw,
    Meta(description="Calibration: `created_at`, and `tiers` of default rules, as JSON."),
    Option(
        "--calibration-file",
        "Raise default rules to hard as FILE says; older than 24 h, it is ignored.",
        "FILE",
        resolve=_calibration,
    ),
]


class AdvanceRun(Params):
    """Advance a run to the next phase that is not skipped, and print the transition.

    Exit 1 if a hard gate blocks the run, or if it pauses because auto-advance is off; both are
    recorded.
    With --if-phase, a run in another phase stays there, exit 1, and the message names who moved it:
    of several concurrent calls, exactly one advances the run.
    If the new phase has actions, see 'icctl run action', they follow; --json has them as `actions`.
    """

    rpc = (
        "Advance a run to the next phase that is not skipped.\n"
        "A hard gate blocks the run, and it pauses if auto-advance is off; both are recorded "
        "and part of the result.\n"
        "With `if_phase`, a run in another phase stays there, and the result names who moved "
        "it: of several concurrent calls, exactly one advances the run.\n"
        "`actions` are those of the new phase, with their variables filled in."
    )
    run_id: RunId
    priority: Annotated[
        int,
        Meta(ge=-INT64, le=INT64 - 1),
        Option(
            "--priority",
            "Priority of the work: 0 and 1 hard, 2 and 3 soft, 4 and above unchecked "
            f"(default {DEFAULT_PRIORITY}).",
            "N",
        ),
    ] = DEFAULT_PRIORITY
    disable_gates: Annotated[bool, Option("--disable-gates", "Skip all gates.")] = False
    skip_reason: Annotated[
        Reason, Option("--skip-reason", "Reason to advance although auto-advance is off.", "TEXT")
    ] = ""
    if_phase: Annotated[str | None, Option("--if-phase", "Advance only from this phase.", "P")] = (
        None
    )
    calibration: CalibrationFile = field(default_factory=lambda: NOTHING)


class Skip(Params):
    """Skip a later phase of a run, except its last one.

    The gates on the way are still checked.
    A rollback to an earlier phase undoes the skip.
    """

    run_id: RunId
    phase: Annotated[str, Argument("PHASE", "Phase to skip.")]
    reason: Why
    actor: Annotated[
        str | None, Option("--actor", "Name of the person or agent that decided it.", "A")
    ] = None


class Cancel(Params):
    """Cancel a run; exit 1 if it has already ended."""

    rpc = "Cancel a run that has not ended."
    run_id: RunId


class Abandon(Params):
    """Abandon a run, so that a new run may use its scope."""

    run_id: RunId
    reason: Why = ""


def _merged(world: World, given: str | None) -> Raw:
    text = create_verbs.given(world, given)
    return NOTHING if text is None else Raw(text.encode())


class Set(Params):
    """Change the settings of an active run.

    Without auto-advance, 'run advance' needs a --skip-reason.
    --metadata-merge replaces the members that it names; objects in both are merged in the same way.
    """

    rpc = (
        "Change the settings of an active run.\n"
        "Without auto-advance, `run.advance` needs a `skip_reason`.\n"
        "`metadata_merge` replaces the members that it names; objects in both are merged in the "
        "same way."
    )
    run_id: RunId
    complexity: Annotated[
        Complexity | None,
        Option("--complexity", "Value stored with the run; it has no effect.", "1..5"),
    ] = None
    auto_advance: Annotated[
        bool | None,
        TRUTH,
        Meta(description="Let `run.advance` work without `skip_reason`."),
        Option("--auto-advance", "Let 'run advance' work without --skip-reason.", "BOOL"),
    ] = None
    force_full: Annotated[
        bool | None,
        TRUTH,
        Option("--force-full", "Value stored with the run; it has no effect.", "BOOL"),
    ] = None
    max_agents: Annotated[
        Limit | None,
        Option("--max-agents", "Maximum number of active agents; 0: any number.", "N"),
    ] = None
    max_dispatches: Annotated[
        Limit | None,
        Option("--max-dispatches", "Maximum number of dispatches alive; 0: any number.", "N"),
    ] = None
    metadata_merge: Annotated[
        Raw,
        Meta(description="JSON object that is merged into the metadata, member by member."),
        Option(
            "--metadata-merge",
            "JSON object that is merged into the metadata; @FILE reads a file.",
            "JSON",
            resolve=_merged,
        ),
    ] = field(default_factory=lambda: NOTHING)  # a default could not be described


class RollbackTo(Params):
    """Return to an earlier phase, and print as JSON what was rolled back.

    Later artifacts are marked as rolled back, later skips are cleared, active agents are set to
    failed, and dispatches are cancelled.
    A completed run becomes active again; exit 2 for a run that ended otherwise.
    """

    rpc = (
        "Return to an earlier phase.\n"
        "Later artifacts are marked as rolled back, later skips are cleared, active agents are "
        "set to failed, and dispatches are cancelled.\n"
        "A completed run becomes active again; a run that ended otherwise is refused."
    )
    run_id: RunId
    to_phase: Annotated[str, Option("--to-phase", "Phase to return to.", "P")]
    reason: Why = ""
    dry_run: Annotated[
        bool,
        Meta(description="Return what would be rolled back, and change nothing."),
        Option("--dry-run", "Print what would be rolled back, and change nothing."),
    ] = False


class RollbackForm(RollbackTo):
    __doc__ = RollbackTo.__doc__

    to_phase: Annotated[str | None, Option("--to-phase", "Phase to return to.", "P")] = None  # type: ignore[assignment]
    layer: Annotated[
        Literal["code"] | None,
        Option("--layer", "List the files of phases instead of rolling back."),
    ] = None
    phase: Annotated[
        str | None, Option("--phase", "With --layer=code: list only the files of this phase.", "P")
    ] = None
    form: Annotated[
        Literal["json", "text"],
        Option("--format", "With --layer=code: output format (default json)."),
    ] = "json"


# --- results --------------------------------------------------------------------------------------


class Skipped(Result):
    phase: str
    status: str


class Changed(Result):
    """What became of a run, in a word."""

    id: str
    status: str


# --- what is done ---------------------------------------------------------------------------------


def advance(ctx: Context, p: AdvanceRun) -> Advance:
    found = transitions.advance(
        ctx.conn,
        p.run_id,
        priority=p.priority,
        disable_gates=p.disable_gates,
        skip_reason=p.skip_reason,
        if_phase=p.if_phase,
        raised=gates.raised(bytes(p.calibration), ctx.warnings, now_ms=ctx.now_ms),
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
    transitions.configure(
        ctx.conn,
        p.run_id,
        complexity=p.complexity,
        auto_advance=p.auto_advance,
        force_full=p.force_full,
        max_agents=p.max_agents,
        max_dispatches=p.max_dispatches,
        merge=create_verbs.text(p.metadata_merge),
        actor=ctx.writer,
        now_ms=ctx.now_ms,
    )
    return Changed(p.run_id, "updated")


def rollback(ctx: Context, p: RollbackTo) -> Rollback:
    if p.dry_run:
        ctx.changed = False
        return create.plan_rollback(ctx.conn, p.run_id, p.to_phase, now_ms=ctx.now_ms)
    return create.rollback(
        ctx.conn, p.run_id, p.to_phase, reason=p.reason, actor=ctx.writer, now_ms=ctx.now_ms
    )


def _check_skip(p: Skip) -> None:
    if not p.reason.strip():
        raise InvalidParams("the reason is empty", hint="pass --reason")


def _check_set(p: Set) -> None:
    settings = (p.complexity, p.auto_advance, p.force_full, p.max_agents, p.max_dispatches)
    merge = create_verbs.text(p.metadata_merge)
    if merge is None and all(each is None for each in settings):
        raise InvalidParams(
            "no settings to update", hint="pass --complexity, --auto-advance or --force-full"
        )
    if merge is not None:
        p.metadata_merge = Raw(payloads.check(merge.encode()).encode())
        if not bytes(p.metadata_merge).startswith(b"{"):
            raise InvalidPayload("the metadata to merge is not a JSON object")


# --- what is shown --------------------------------------------------------------------------------


def ask_advance(world: World, p: AdvanceRun) -> Ask:
    def show(found: Advance) -> Output:
        exit_code = 0 if found.advanced else 1
        if world.json:
            output = render.to_json(found, exit_code)
        else:
            output = render.text(_outcome(found), *_todo(found), exit_code=exit_code)
        if advice := _ADVICE.get(found.event_type):
            output.stderr = _note(world, "run advance", advice.format(p.run_id))
        if found.spawns:
            _continue(world, output, ["dispatch", "auto-spawn", p.run_id], "its agents")
        return output

    return Ask("run.advance", p, show)


def _outcome(found: Advance) -> str:
    if found.advanced:
        return f"{found.from_phase} → {found.to_phase}"
    if found.event_type == "stale":
        return f"{found.from_phase} (stale: {found.reason})"
    return f"{found.from_phase} (blocked: {found.event_type})"


def _todo(found: Advance) -> Iterator[str]:
    for action in found.actions or ():
        yield f"  → {what(action)}  [{render.one_line(action.mode)}]"


def _said(p: Skip) -> None:
    if not p.reason:
        raise Usage("--reason is empty")


def ask_rollback(world: World, f: RollbackForm) -> Ask:
    if f.layer is not None:
        return artifacts.ask_origins(f.run_id, f.phase, f.form)
    if f.to_phase is None:
        raise Usage("pass --to-phase, or --layer=code")
    if f.phase is not None:
        raise Usage("--phase requires --layer=code")

    def show(done: Rollback) -> Output:
        output = _indented(done)
        if done.dispatches:
            kill = ["dispatch", "kill", "--if-running", "--quiet", *done.dispatches]
            _continue(world, output, kill, "processes of its dispatches")
        return output

    return Ask("run.rollback", narrow(f, RollbackTo), show)


def _indented(value: object) -> Output:
    """As the original: over several lines, keys sorted."""
    data = render.to_json(value).stdout
    return Output(0, msgspec.json.format(data.rstrip(b"\n"), indent=2) + b"\n")


def _continue(world: World, output: Output, words: list[str], what: str) -> None:
    """The caller starts and ends processes, once it has been told the rest."""
    if world.continues:
        chosen = [] if world.db is None else ["--db", world.db]
        output.then = [*chosen, *words]
    else:
        output.stderr += _note(world, "run", f"{what}: run 'icctl {' '.join(words)}'")


def _note(world: World, context: str, text: str) -> bytes:
    program = world.program
    return f"{program}: {context}: {invocation.advice(program, text)}\n".encode()


VERBS = [
    Method("run.advance", AdvanceRun, Advance, advance, writes=_WRITES),
    Command(
        "run advance",
        AdvanceRun,
        ask_advance,
        summary="Advance a run to its next phase.",
        examples=[
            'icctl run advance "$RUN"',
            'icctl run advance "$RUN" --if-phase=planned --priority=1',
            'icctl run advance "$RUN" --skip-reason="approved"',
        ],
    ),
    Verb(
        "run skip",
        Skip,
        Skipped,
        skip,
        check=_check_skip,
        usage=_said,
        writes=_WRITES,
        show=lambda r, _: [f"skipped: {r.phase}"],
        summary="Skip a later phase.",
        examples=['icctl run skip "$RUN" polish --reason="nothing to polish" --actor=lead'],
    ),
    Verb(
        "run cancel",
        Cancel,
        Changed,
        cancel,
        writes=_WRITES,
        show=lambda r, _: [r.status],
        summary="Cancel a run.",
        examples=['icctl run cancel "$RUN"'],
    ),
    Verb(
        "run abandon",
        Abandon,
        Changed,
        abandon,
        writes=_WRITES,
        show=lambda r, _: [r.status],
        summary="Abandon a run and free its scope.",
        examples=['icctl run abandon "$RUN" --reason="its session crashed"'],
    ),
    Verb(
        "run set",
        Set,
        Changed,
        set_,
        check=_check_set,
        writes=_WRITES,
        show=lambda r, _: [r.status],
        summary="Change the settings of a run.",
        examples=[
            'icctl run set "$RUN" --auto-advance=false',
            """icctl run set "$RUN" --metadata-merge='{"review":{"round":2}}'""",
        ],
    ),
    Method("run.rollback", RollbackTo, Rollback, rollback, writes=_WRITES),
    Command(
        "run rollback",
        RollbackForm,
        ask_rollback,
        summary="Return to an earlier phase.",
        examples=[
            'icctl run rollback "$RUN" --to-phase=planned --dry-run',
            'icctl run rollback "$RUN" --to-phase=planned --reason="wrong plan"',
            'icctl run rollback "$RUN" --layer=code --phase=executing',
        ],
    ),
]
