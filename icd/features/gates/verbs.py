"""gate: whether a run may go on, why not, and going on all the same."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from msgspec import Meta, field

from icd.app import render
from icd.app.call import Context, Params
from icd.app.invocation import Ask, Output, World
from icd.app.types import Whole
from icd.app.verb import (
    Card,
    Column,
    Command,
    Method,
    Option,
    Table,
    Verb,
    Writes,
    narrow,
    no_rows,
)
from icd.errors import Usage
from icd.features.events.store import NOTHING
from icd.features.gates import signals, store
from icd.features.gates.signals import Signals
from icd.features.gates.store import Condition, Evidence, Rule
from icd.features.runs import phases, transitions
from icd.features.runs import store as runs
from icd.features.runs.verbs import Reason, RunId
from icd.features.runs.verbs.transitions import CalibrationFile
from icd.values.wire import INT64, Result

# Other ways to count priorities are not turned away.
Priority = Annotated[int, Whole(-(2**31), 2**31 - 1)]


class Check(Params):
    """Check whether RUN may advance to its next phase, and print the evidence; changes nothing.

    The next phase is the one that 'run advance' would enter; the gates of skipped phases on the way
    are checked too.
    Prints the transition, the result (pass, fail or none) and the tier, then one line per check.
    Exit 1 if a check fails, even if the gate is soft and would not block.
    """

    rpc = (
        "Check whether a run may advance to its next phase; changes nothing.\n"
        "The next phase is the one that `run.advance` would enter; the gates of skipped phases "
        "on the way are checked too.\n"
        "The result is fail if a check fails, even if the gate is soft and would not block."
    )
    run_id: RunId
    priority: Annotated[
        Priority,
        Option(
            "--priority",
            "Priority of the work: 0 and 1 hard, 2 and 3 soft, 4 and above unchecked (default 3).",
            "N",
        ),
    ] = store.DEFAULT_PRIORITY
    calibration: CalibrationFile = field(default_factory=lambda: NOTHING)


class Override(Params):
    """Advance RUN to the very next phase of its chain, regardless of its gates.

    Skipped phases count as next phases here.
    Records an override event with the reason.
    'icctl gate signals' counts it as a mistake of the gate, and says whether it was justified.
    """

    rpc = (
        "Advance a run to the very next phase of its chain, regardless of its gates.\n"
        "Skipped phases count as next phases here.\n"
        "Records an override event with the reason."
    )
    run_id: RunId
    reason: Annotated[
        Reason, Option("--reason", "Reason for the override, recorded in the event.", "TEXT")
    ]
    category: Annotated[
        Literal["justified", "expedient"] | None,
        Meta(
            description="Category: `justified`, the gate was wrong; `expedient`, it was in the way."
        ),
    ] = None


class OverrideForm(Override):
    __doc__ = Override.__doc__

    justified: Annotated[bool, Option("--justified", "Record that the gate was wrong.")] = False
    expedient: Annotated[
        bool, Option("--expedient", "Record that the gate was right, but in the way.")
    ] = False


class SignalsSince(Params):
    """Print which gates were right, as JSON: an array of signals, and a cursor.

    A check that blocked a run is a true positive (tp); a false one (fp) if it was overridden, or if
    the run went on although it failed.
    A check that passed is a true negative (tn); a false one (fn) if the run was rolled back from
    beyond it.
    --since-id=CURSOR reads on; a rollback that is read later changes no signal that was read.
    """

    rpc = (
        "List which gates were right.\n"
        "A check that blocked a run is a true positive (tp); a false one (fp) if it was overridden,"
        " or if the run went on although it failed.\n"
        "A check that passed is a true negative (tn); a false one (fn) if the run was rolled back "
        "from beyond it.\n"
        "`since_id` reads on; a rollback that is read later changes no signal that was read."
    )
    since_id: Annotated[
        Annotated[int, Meta(ge=0, le=INT64 - 1)],
        Option("--since-id", "Read only events after this one (default 0).", "ID"),
    ] = 0


class Rules(Params):
    """List the rules of the gates of a run."""

    run_id: Annotated[str, Meta(description="Id of the run.")]
    phase: Annotated[
        str | None, Meta(description="List only the rules for leaving this phase.")
    ] = None


class RulesForm(Params):
    """List the gate rules: the transition, a tab, and the check, one per line.

    Without --run, lists the default rules, which need no database.
    With --json, the rules have the shape that 'run create --gates' accepts.
    """

    phase: Annotated[
        str | None, Option("--phase", "List only the rules for leaving this phase.", "FROM")
    ] = None
    run: Annotated[str | None, Option("--run", "List the rules of this run.", "RUN")] = None


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
    to_phase = transitions.next_phase(ctx.conn, run)
    raised = store.raised(bytes(p.calibration), ctx.warnings, now_ms=ctx.now_ms)
    verdict = store.evaluate(ctx.conn, run, to_phase, priority=p.priority, raised=raised)
    return Checked(
        evidence=Evidence(verdict.evidence) if verdict.evidence else None,
        from_phase=run.phase,
        result=verdict.result,
        run_id=run.id,
        tier=verdict.tier,
        to_phase=to_phase,
    )


def override(ctx: Context, p: Override) -> Overridden:
    moved = transitions.override(
        ctx.conn,
        p.run_id,
        p.reason,
        category=p.category,
        actor=ctx.writer,
        now_ms=ctx.now_ms,
    )
    return Overridden(moved.from_phase, p.reason, moved.to_phase)


def told(ctx: Context, p: SignalsSince) -> Signals:
    return signals.since(ctx.conn, p.since_id)


def rules(ctx: Context, p: Rules) -> list[Rule]:
    run = runs.require(ctx.conn, p.run_id)
    return store.met(store.rules_of(run), phases.chain(run), p.phase)


def _check_override(p: Override) -> None:
    if not p.reason.strip():
        raise Usage("an override needs a reason", hint="pass the reason with --reason")


# --- what is shown --------------------------------------------------------------------------------


def _fails(r: Checked) -> int:
    return 1 if r.result == "fail" else 0


def show_check(r: Checked, _p: Check) -> Iterator[str]:
    yield f"{r.from_phase} → {r.to_phase}: {r.result} (tier: {r.tier})"
    if r.evidence is not None:
        yield from map(show_condition, r.evidence.conditions)


def json_check(r: Checked, _p: Check) -> Output:
    return Output(_fails(r), render.in_order(r).stdout)


def show_condition(found: Condition) -> str:
    """`  [FAIL] check (count: N) — detail`, and the transition where a run passes over several."""
    line = f"  [{found.result.upper()}] {found.check}"
    if found.from_phase is not None:
        line += f" ({found.from_phase} → {found.to_phase})"
    if found.count is not None:
        line += f" (count: {found.count})"
    if found.tier is not None:
        line += f" [{found.tier}]"
    return line if found.detail is None else f"{line} — {found.detail}"


def ask_override(_world: World, f: OverrideForm) -> Ask:
    if f.justified and f.expedient:
        raise Usage("--justified and --expedient are mutually exclusive")
    category = "justified" if f.justified else "expedient" if f.expedient else None
    return Ask("gate.override", narrow(f, Override, category=category))


def ask_rules(world: World, f: RulesForm) -> Ask | Output:
    if f.run is not None:
        return Ask("gate.rules", Rules(f.run, f.phase))
    found = store.met(store.DEFAULT, phases.DEFAULT, f.phase)
    return render.shown(world, found, lambda: show_rules(found, f), _checks)


def show_rules(found: list[Rule], _f: RulesForm) -> Iterator[str]:
    for rule in found:
        for check in rule.checks:
            about = f" (phase: {check.phase})" if check.phase else ""
            about += f" [{check.tier}]" if check.tier else ""
            yield render.columns(f"{rule.from_phase} → {rule.to_phase}", f"{check.check}{about}")


def _conditions(r: Checked) -> list[Condition]:
    return r.evidence.conditions if r.evidence else []


def _checks(found: list[Rule], _f: RulesForm, screen: Any) -> list[str]:
    each = [(rule, check) for rule in found for check in rule.checks]
    shown: list[str] = screen.table(_RULES, each)
    return shown


_RULES = Table(
    Column("FROM", lambda pair: pair[0].from_phase),
    Column("TO", lambda pair: pair[0].to_phase),
    Column("CHECK", lambda pair: pair[1].check),
    Column("PHASE", lambda pair: pair[1].phase, spare=True),
    Column("TIER", lambda pair: pair[1].tier, spare=True),
    empty="No rules: nothing is checked here.",
)
CHECKED = Card(
    Column("Gate", lambda r: f"{r.from_phase} → {r.to_phase}"),
    Column("Result", "result", "state"),
    Column("Tier", "tier"),
    parts=[
        (
            "Checks",
            _conditions,
            Table(
                Column("RESULT", "result", "state"),
                Column("CHECK", "check"),
                Column("PHASE", "phase", spare=True),
                Column("COUNT", "count", "number", spare=True),
                Column("TIER", "tier", spare=True),
                Column("DETAIL", "detail", spare=True),
            ),
        )
    ],
)

SIGNALS = Table(
    Column("EVENT", "event_id", "number"),
    Column("WHEN", "created_at", "age"),
    Column("RUN", "run_id", "id"),
    Column("CHECK", "check_type"),
    Column("FROM", "from_phase"),
    Column("TO", "to_phase"),
    Column("SIGNAL", "signal_type"),
    Column("OVERRIDE", "category", spare=True),
    of="signals",
    empty="No gate was asked since then. Advance a run: icctl run advance RUN",
)

VERBS = [
    Verb(
        "gate check",
        Check,
        Checked,
        check,
        show=show_check,
        human=CHECKED,
        exit=_fails,
        json=json_check,
        summary="Check a gate: pass (0) or fail (1).",
        examples=[
            'icctl gate check "$RUN"',
            'icctl gate check "$RUN" --priority=0 || echo "not yet"',
        ],
    ),
    Method(
        "gate.override",
        Override,
        Overridden,
        override,
        check=_check_override,
        writes=Writes(no_rows, appends=True),
    ),
    Command(
        "gate override",
        OverrideForm,
        ask_override,
        show=lambda r, _: [f"{r.from_phase} → {r.to_phase} (override: {r.reason})"],
        summary="Advance a run past its gate.",
        examples=[
            'icctl gate override "$RUN" --reason="reviewed by hand"',
            'icctl gate override "$RUN" --reason="the check is broken" --justified',
        ],
    ),
    Verb(
        "gate signals",
        SignalsSince,
        Signals,
        told,
        show=lambda r, _: render.to_json(r),
        human=SIGNALS,
        summary="List which gates were right.",
        examples=["icctl gate signals", "icctl gate signals --since-id=41 --json"],
    ),
    Method("gate.rules", Rules, list[Rule], rules),
    Command(
        "gate rules",
        RulesForm,
        ask_rules,
        show=show_rules,
        human=_checks,
        summary="List the gate rules.",
        examples=[
            "icctl gate rules",
            "icctl gate rules --phase=review",
            'icctl gate rules --run="$RUN" --json',
        ],
    ),
]
