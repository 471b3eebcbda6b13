"""run create: begin a run."""

from typing import Annotated

import msgspec
from msgspec import Meta, Raw, field, structs

from icd.app.call import Context, Params
from icd.app.invocation import Ask, World
from icd.app.types import SPAN
from icd.app.verb import Command, Method, Option, Writes, narrow, no_rows
from icd.errors import (
    InvalidParams,
    InvalidPayload,
    PayloadTooLarge,
    SecretRefused,
    Usage,
)
from icd.features.gates import store as gates
from icd.features.runs import actions as todo
from icd.features.runs import create as claims
from icd.features.runs import phases
from icd.features.runs.store import COMPLEXITY, WARN_PCT
from icd.features.runs.verbs import Project, check_project, project_of
from icd.values import payloads, validation
from icd.values.wire import INT64, Milliseconds, Result

NOTHING = Raw(b"null")
# Zero: any number.
Limit = Annotated[int, Meta(ge=0, le=1_000_000)]
Complexity = Annotated[int, Meta(ge=1, le=5)]


class Create(Params):
    """Create a run in the first phase of its chain, and print its id.

    A project has at most one active run per scope.
    If there is one already, exit 1; the message names that run, its age and whether the process
    that created it is alive.
    --takeover-after abandons that run in the same transaction if it has been idle for that long.
    """

    rpc = (
        "Create a run in the first phase of its chain.\n"
        "A project has at most one active run per scope.\n"
        "If there is one already, the error `run_taken` names that run, its age and whether the"
        " process that created it is alive.\n"
        "`takeover_after_ms` abandons that run in the same transaction if it has been idle for "
        "that long."
    )
    goal: Annotated[
        str | None, Option("--goal", "Goal of the run (default: its scope).", "TEXT")
    ] = None
    project: Project = None
    complexity: Annotated[
        Complexity, Option("--complexity", "Complexity, stored with the run (default 3).", "1..5")
    ] = COMPLEXITY
    scope_id: Annotated[
        str | None,
        Option(
            "--scope-id",
            "Scope of the run; a project has at most one active run per scope.",
            "S",
            aliases=("--bead",),
        ),
    ] = None
    phases: Annotated[list[str] | None, Meta(description="Chain of phases, in order.")] = None
    # A default that is no factory could not be described.
    gates: Annotated[
        Raw,
        Meta(
            description="Gate rules, as JSON: a list as `gate.rules` has it, or an object of "
            "`FROM→TO` to a list of `check`, `phase` and `tier`."
        ),
    ] = field(default_factory=lambda: NOTHING)
    token_budget: Annotated[
        Annotated[int, Meta(ge=1, le=INT64 - 1)] | None,
        Option("--token-budget", "Token budget.", "N"),
    ] = None
    budget_warn_pct: Annotated[
        int,
        Meta(ge=1, le=99),
        Option("--budget-warn-pct", "Percentage of the budget at which to warn (default 80).", "P"),
    ] = WARN_PCT
    budget_enforce: Annotated[
        bool, Option("--budget-enforce", "Let no gate open once the token budget is used up.")
    ] = False
    max_agents: Annotated[
        Limit | None,
        Option("--max-agents", "Maximum number of active agents, and of dispatches alive.", "N"),
    ] = None
    max_dispatches: Annotated[
        Limit | None,
        Option("--max-dispatches", "Maximum number of dispatches alive at once.", "N"),
    ] = None
    metadata: Annotated[
        str | None,
        Meta(description="Text stored with the run."),
        Option("--metadata", "Text stored with the run; @FILE reads a file.", "TEXT"),
    ] = None
    actions: Annotated[Raw, Meta(description="Actions by phase, as a JSON object.")] = field(
        default_factory=lambda: NOTHING
    )
    auto_spawn: Annotated[
        bool | None, Option("--auto-spawn", "Start the run's agents when it enters executing.")
    ] = None
    takeover_after_ms: Annotated[
        Milliseconds | None,
        SPAN,
        Option(
            "--takeover-after",
            "Abandon the active run of the scope if it has been idle this long.",
        ),
    ] = None


class CreateForm(Create, kw_only=True):
    __doc__ = Create.__doc__

    phases: Annotated[
        str | None,
        Option("--phases", "Chain of phases, as a JSON array; @FILE reads a file.", "JSON"),
    ] = None  # type: ignore[assignment]
    gates: Annotated[
        str | None, Option("--gates", "Gate rules, as JSON; @FILE reads a file.", "JSON")
    ] = None  # type: ignore[assignment]
    gates_file: Annotated[
        str | None, Option("--gates-file", "Read the gate rules from this file.", "FILE")
    ] = None
    actions: Annotated[
        str | None,
        Option("--actions", "Actions by phase, as a JSON object; @FILE reads a file.", "JSON"),
    ] = None  # type: ignore[assignment]
    session: Annotated[
        str | None, Option("--session", "Session id (default: the caller's session).", "SID")
    ] = None
    no_auto_spawn: Annotated[
        bool,
        Option(
            "--no-auto-spawn", "Never start agents automatically, overriding the configuration."
        ),
    ] = False


class Created(Result):
    """`took_over`: the run that had the scope, and is abandoned."""

    id: str
    phase: str
    took_over: str | None = None


def create(ctx: Context, p: Create) -> Created:
    actor = structs.replace(ctx.writer, session=p.session or ctx.writer.session)
    run = claims.new(
        project_dir=project_of(ctx, p.cwd, p.project),
        goal=p.goal or p.scope_id or "",
        complexity=p.complexity,
        scope_id=p.scope_id or None,
        chain=None if p.phases is None else tuple(p.phases),
        gates=text(p.gates),
        token_budget=p.token_budget,
        budget_warn_pct=p.budget_warn_pct,
        budget_enforce=p.budget_enforce,
        max_agents=p.max_agents or None,
        max_dispatches=p.max_dispatches or None,
        metadata=p.metadata,
        actions=text(p.actions),
        auto_spawn=ctx.settings.auto_spawn if p.auto_spawn is None else p.auto_spawn,
        actor=actor,
        now_ms=ctx.now_ms,
    )
    old = claims.create(
        ctx.conn, run, takeover_after_ms=p.takeover_after_ms, actor=actor, now_ms=ctx.now_ms
    )
    todo.add_all(ctx.conn, run.id, run.actions, now_ms=ctx.now_ms)
    if old is not None:
        ctx.warnings.append(f"abandoned {claims.described(old, now_ms=ctx.now_ms)}")
    return Created(run.id, run.phase, None if old is None else old.id)


def _check(p: Create) -> None:
    """Judge it outside the lock."""
    goal = p.scope_id if p.goal is None else p.goal
    if not (goal or "").strip():
        raise InvalidParams("the goal is empty", hint="pass --goal, or --bead")
    if len((p.goal or "").encode()) > payloads.STRING_BYTES:
        raise PayloadTooLarge(f"the goal is longer than {payloads.STRING_BYTES} bytes")
    check_project(p.cwd, p.project)
    validation.check_scope(p.scope_id or "")
    chain = phases.DEFAULT if p.phases is None else phases.check(p.phases)
    if (given := text(p.gates)) is not None:
        stored = gates.parse(given)
        gates.check_against(stored, chain)
        p.gates = Raw(stored.encode())
    if p.metadata is not None:
        _check_metadata(p.metadata)
    if (actions := text(p.actions)) is not None:
        p.actions = Raw(payloads.check(actions.encode()).encode())
        if not bytes(p.actions).startswith(b"{"):
            raise InvalidPayload("the actions are not a JSON object")
        todo.parse(actions)


def _check_metadata(text: str) -> None:
    """Any text will do; what is JSON is judged as such, so that no secret hides in it."""
    try:
        payloads.check(text.encode())
    except (PayloadTooLarge, SecretRefused):
        raise
    except InvalidPayload:
        payloads.check(msgspec.json.encode(text))


def text(raw: Raw) -> str | None:
    return None if bytes(raw) == bytes(NOTHING) else bytes(raw).decode()


def ask_create(world: World, f: CreateForm) -> Ask:
    if f.goal == "":
        raise Usage("--goal is empty")
    if f.goal is None and not f.scope_id:
        raise Usage("missing --goal", hint="a run with --bead or --scope-id needs none")
    chain, gates, actions = (given(world, each) for each in (f.phases, f.gates, f.actions))
    if f.gates_file is not None:
        if gates is not None:
            raise Usage("--gates and --gates-file are mutually exclusive")
        gates = given(world, f"@{f.gates_file}")
    if f.auto_spawn and f.no_auto_spawn:
        raise Usage("--auto-spawn and --no-auto-spawn are mutually exclusive")
    params = narrow(
        f,
        Create,
        phases=None if chain is None else list(phases.parse(chain)),
        gates=NOTHING if gates is None else Raw(gates.encode()),
        actions=NOTHING if actions is None else Raw(actions.encode()),
        metadata=given(world, f.metadata),
        auto_spawn=bool(f.auto_spawn) if f.auto_spawn or f.no_auto_spawn else None,
    )
    return Ask("run.create", params)


def given(world: World, word: str | None) -> str | None:
    """What an option says, or the file that it names."""
    if word is None or not word.startswith("@"):
        return word
    try:
        return world.read_file(word[1:]).decode()
    except UnicodeDecodeError as exc:
        raise Usage(f"{word[1:]} is not valid UTF-8") from exc


VERBS = [
    Method(
        "run.create",
        Create,
        Created,
        create,
        check=_check,
        writes=Writes(no_rows, appends=True),
    ),
    Command(
        "run create",
        CreateForm,
        ask_create,
        show=lambda r, _: [r.id],
        order=("session", "auto_spawn", "no_auto_spawn", "takeover_after_ms"),
        summary="Create a run and print its id.",
        examples=[
            'icctl run create --goal="fix the parser"',
            'icctl run create --goal="$TITLE" --bead="$BEAD" --takeover-after=60m',
            """icctl run create --goal=x --phases='["plan","work","done"]' --gates=@g.json""",
            'icctl run create --bead="$BEAD" --max-agents=3 --gates-file=gates.json',
            "icctl run create --goal=x --token-budget=90000 --budget-enforce",
        ],
    ),
]
