"""run: how runs are; what happens to them is in transitions.py.  `VERBS` has all verbs of a run."""

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from icd.app import render
from icd.app.call import Context, Params
from icd.app.invocation import Ask, World
from icd.app.types import Choice
from icd.app.verb import Card, Column, Command, Method, Option, Table, Verb, narrow
from icd.errors import InvalidParams, Usage
from icd.features.runs import budget as budgets
from icd.features.runs import history, store
from icd.features.runs.budget import Budget, Tokens
from icd.features.runs.history import PhaseEvent
from icd.features.runs.store import Document
from icd.features.runs.transitions import MAY
from icd.features.runs.verbs import (
    Project,
    RunId,
    check_project,
    create,
    project_of,
    projects_around,
    snapshot,
    transitions,
)
from icd.features.runs.verbs.snapshot import labelled
from icd.values import validation
from icd.values.wire import Result

# Runs in one answer, at most and if nothing is said.
MOST = 10_000
LIMIT = 1000
STATUSES = tuple(MAY)


# --- parameters -----------------------------------------------------------------------------------


class Status(Params):
    """Show the phase, goal and settings of a run; --json shows all fields."""

    rpc = "Return a run."
    run_id: RunId


class PhaseForm(Status):
    """Print the phase of a run."""


class List(Params):
    """Print id, status, phase and goal of runs, separated by tabs, newest first.

    Lists the runs of this project: of the database's directory, of the caller's git checkout, and
    of all directories below them.
    --all-projects lists every run in the database.
    """

    rpc = (
        "List runs, newest first.\n"
        "With `here`, list those of the database's directory, of the caller's git checkout, and"
        " of all directories below them."
    )
    status: Annotated[
        str | None, Option("--status", "Include only this status."), Choice(STATUSES)
    ] = None
    scope_id: Annotated[
        str | None, Option("--scope", "Include only this scope.", "S", aliases=("--bead",))
    ] = None
    project: Annotated[
        str | None, Option("--project", "Include only the project of DIR.", "DIR")
    ] = None
    limit: Annotated[
        Annotated[int, Meta(ge=1, le=MOST)] | None,
        Option("--limit", f"Maximum number of results (default {LIMIT}).", "N"),
    ] = None
    here: Annotated[
        bool, Meta(description="Include only the projects of the database and of the caller.")
    ] = False


class ListForm(List):
    __doc__ = List.__doc__

    active: Annotated[bool, Option("--active", "Include only active runs.")] = False
    all_projects: Annotated[bool, Option("--all-projects", "Include all projects.")] = False


class Current(Params):
    """Print the id of the newest active run of a project; exit 1, silently, if there is none.

    A project is the git checkout that contains DIR.
    """

    rpc = (
        "Return the newest active run of a project, if there is one.\n"
        "A project is the git checkout that contains the directory."
    )
    project: Project = None
    of_session: Annotated[
        str | None, Option("--session", "Consider only runs that this session created.", "SID")
    ] = None


class Events(Params):
    """Print the history of a run: from and to, type, gate result and reason, separated by tabs.

    'icctl events tail RUN' prints all its events, including those of its dispatches.
    """

    rpc = (
        "List the history of a run: transitions, gate results and reasons.\n"
        "`events.tail` has all its events, including those of its dispatches."
    )
    run_id: RunId


class TokensOf(Params):
    """Print the token usage of a run's dispatches; zeros for an unknown run."""

    rpc = "Return the token usage of a run's dispatches; zeros for an unknown run."
    run_id: RunId


class BudgetOf(Params):
    """Print the token budget of a run and its usage; exit 1 if it is used up."""

    rpc = "Return the token budget of a run and its usage."
    run_id: RunId


class Found(Result):
    found: bool
    id: str | None = None
    goal: str | None = None
    phase: str | None = None


# --- what is done ---------------------------------------------------------------------------------


def status(ctx: Context, p: Status) -> Document:
    return store.in_full(ctx.conn, store.require(ctx.conn, p.run_id))


def list_(ctx: Context, p: List) -> list[Document]:
    within = projects_around(ctx, p.cwd) if p.here else None
    limit = p.limit or LIMIT
    found = store.newest(
        ctx.conn,
        status=p.status,
        scope_id=p.scope_id,
        project_dir=None if p.project is None else project_of(ctx, p.cwd, p.project),
        within=within,
        limit=limit + 1,
    )
    if p.limit is None and len(found) > limit:
        ctx.warnings.append(f"only the newest {limit} are shown; see --limit")
    hides = not found and within is not None
    if hides and store.newest(ctx.conn, status=p.status, scope_id=p.scope_id, limit=1):
        ctx.warnings.append("there are runs of other projects; see --all-projects")
    return [store.document(run) for run in found[:limit]]


def current(ctx: Context, p: Current) -> Found:
    where = project_of(ctx, p.cwd, p.project)
    run = store.current(ctx.conn, where, session=p.of_session)
    if run is None:
        return Found(found=False)
    return Found(found=True, id=run.id, goal=run.goal, phase=run.phase)


def events(ctx: Context, p: Events) -> list[PhaseEvent]:
    found = history.of_run(ctx.conn, p.run_id)
    if len(found) == history.MOST:
        ctx.warnings.append(f"there may be more than these {history.MOST}; see 'events tail'")
    return found


def tokens(ctx: Context, p: TokensOf) -> Tokens:
    return budgets.tokens(ctx.conn, p.run_id)


def budget(ctx: Context, p: BudgetOf) -> Budget:
    run = store.find(ctx.conn, p.run_id)
    return Budget(p.run_id, None) if run is None else budgets.of_run(ctx.conn, run)


def _check_list(p: List) -> None:
    check_project(p.cwd, p.project)
    if p.here and p.project is not None:
        raise InvalidParams("here and project are mutually exclusive", hint="omit one of them")
    if p.status is not None and p.status not in STATUSES:
        known = ", ".join(STATUSES)
        raise InvalidParams(f"unknown status {validation.shown(p.status)}", hint=known)


# --- what is shown --------------------------------------------------------------------------------


def show_status(run: Document, _p: Status) -> list[str]:
    limits = store.limits(run)
    return labelled(
        {
            **snapshot.about(run),
            "Complexity": str(run.complexity),
            "ForceFull": "true" if run.force_full else None,
            "AutoAdv": None if run.auto_advance else "false",
            "Scope": run.scope_id,
            "Budget": limits and f"{limits[0]} tokens (warn at {limits[1]}%)",
            "At most": _at_most(run),
        }
    )


def ask_phase(_world: World, f: PhaseForm) -> Ask:
    return Ask("run.status", narrow(f, Status))


def ask_list(world: World, f: ListForm) -> Ask:
    if f.active and f.status not in (None, "active"):
        raise Usage("--active and --status are mutually exclusive")
    if f.all_projects and f.project is not None:
        raise Usage("--all-projects and --project are mutually exclusive")
    here = f.project is None and not f.all_projects
    status = "active" if f.active else f.status
    return Ask("run.list", narrow(f, List, status=status, here=here, cwd=world.cwd))


def show_list(found: list[Document], _f: ListForm) -> Iterator[str]:
    return (render.columns(r.id, r.status, r.phase, render.one_line(r.goal)) for r in found)


def ask_current(_world: World, p: Current) -> Ask:
    return Ask("run.current", p)


def show_events(found: list[PhaseEvent], _p: Events) -> Iterator[str]:
    for event in found:
        way = f"{event.from_phase} → {event.to_phase}"
        reason = render.one_line(event.reason or "")
        yield render.columns(way, event.event_type, event.gate_result or "", reason)


def show_tokens(used: Tokens, _p: TokensOf) -> Iterator[str]:
    yield f"Run: {used.run_id}"
    yield f"  Input tokens:  {used.input_tokens}"
    yield f"  Output tokens: {used.output_tokens}"
    yield f"  Cache hits:    {used.cache_hits}"
    if used.cache_ratio is not None:
        yield f"  Cache ratio:   {used.cache_ratio:.1f}%"
    yield f"  Total tokens:  {used.total_tokens}"


def show_budget(found: Budget, _p: BudgetOf) -> list[str]:
    if found.budget is None:
        return [f"Run {found.run_id}: no budget set"]
    return [
        f"Run: {found.run_id}",
        f"  Budget:    {found.budget} tokens",
        f"  Used:      {found.used} tokens ({found.usage_pct:.1f}%)",
        f"  Warn at:   {found.warn_pct}%",
        f"  Status:    {found.status}",
    ]


def _owner(run: Document) -> str | None:
    return None if run.owner_pid is None else f"process {run.owner_pid}, {run.owner_liveness}"


def _at_most(run: Document) -> str | None:
    limits = {"agents": run.max_agents, "dispatches": run.max_dispatches}
    return ", ".join(f"{limit} {what}" for what, limit in limits.items() if limit) or None


CARD = Card(
    Column("Run", "id", "id"),
    Column("State", "status", "state"),
    Column("Phase", "phase"),
    Column("Goal", "goal"),
    Column("Project", "project_dir", "path"),
    Column("Scope", "scope_id"),
    Column("Created", "created_at", "age"),
    Column("Updated", "updated_at", "age"),
    Column("Completed", "completed_at", "age"),
    Column("Phases", lambda run: " → ".join(run.phases) if run.phases else None),
    Column("Skipped", lambda run: ", ".join(run.skipped) or None),
    Column("Complexity", "complexity"),
    Column("Budget", "token_budget", "number"),
    Column("Enforced", lambda run: "the budget" if run.budget_enforce else None),
    Column("At most", _at_most),
    Column("Advances", lambda run: None if run.auto_advance else "only by hand"),
    Column("Owner", _owner),
    Column("Session", "session"),
)
CURRENT = Card(
    Column("Run", "id", "id"),
    Column("Phase", "phase"),
    Column("Goal", "goal"),
    Column("Note", lambda r: None if r.found else "No run of this project is active."),
)
LISTED = Table(
    Column("RUN", "id", "id"),
    Column("STATE", "status", "state"),
    Column("PHASE", "phase"),
    Column("UPDATED", "updated_at", "age"),
    Column("SCOPE", "scope_id", spare=True),
    Column("GOAL", "goal"),
    empty="No runs here. Start one: icctl run create --goal='what is to be done'",
    filtered=True,
)
HISTORY = Table(
    Column("WHEN", "created_at", "age"),
    Column("EVENT", "event_type", "state"),
    Column("FROM", "from_phase"),
    Column("TO", "to_phase"),
    Column("GATE", "gate_result", "state", spare=True),
    Column("REASON", history.why, spare=True),
    empty="Nothing has happened to this run yet. Go on: icctl run advance RUN",
)
SPENT = Card(
    Column("Run", "run_id", "id"),
    Column("Input", "input_tokens", "number"),
    Column("Output", "output_tokens", "number"),
    Column("Cache hits", "cache_hits", "number"),
    Column("Cache ratio", "cache_ratio", "percent"),
    Column("Total", "total_tokens", "number"),
)
BUDGET = Card(
    Column("Run", "run_id", "id"),
    Column("Budget", "budget", "number"),
    Column("Used", "used", "number"),
    Column("Usage", "usage_pct", "share"),
    Column("Warn at", "warn_pct", "percent"),
    Column("State", lambda b: None if b.budget is None else b.status.lower(), "state"),
    Column("Note", "message"),
)

VERBS = [
    *create.VERBS,
    Verb(
        "run status",
        Status,
        Document,
        status,
        show=show_status,
        human=CARD,
        summary="Show a run.",
        examples=['icctl run status "$RUN"', 'icctl run status "$RUN" --json'],
    ),
    Command(
        "run phase",
        PhaseForm,
        ask_phase,
        show=lambda run, _: [run.phase],
        json=lambda run, _: render.to_json({"id": run.id, "phase": run.phase}),
        summary="Print the phase of a run.",
        examples=['case $(icctl run phase "$RUN") in executing) echo busy ;; esac'],
    ),
    Method("run.list", List, list[Document], list_, check=_check_list),
    Command(
        "run list",
        ListForm,
        ask_list,
        show=show_list,
        human=LISTED,
        order=("active", "status", "scope_id", "project", "all_projects", "limit"),
        summary="List runs, the newest first.",
        examples=[
            "icctl run list --active",
            "icctl run list --all-projects",
            'icctl run list --bead="$BEAD" --status=active',
            "icctl run list --project=. --status=completed --limit=10",
        ],
    ),
    Method(
        "run.current",
        Current,
        Found,
        current,
        check=lambda p: check_project(p.cwd, p.project),
    ),
    Command(
        "run current",
        Current,
        ask_current,
        show=lambda r, _: [r.id] if r.found else [],
        human=CURRENT,
        exit=lambda r: 0 if r.found else 1,
        summary="Print the project's active run.",
        examples=[
            "run=$(icctl run current) || exit 0",
            'icctl run current --session="$CLAUDE_SESSION_ID"',
        ],
    ),
    Verb(
        "run events",
        Events,
        list[PhaseEvent],
        events,
        show=show_events,
        human=HISTORY,
        summary="Print the history of a run.",
        examples=['icctl run events "$RUN"'],
    ),
    *transitions.VERBS,
    Verb(
        "run tokens",
        TokensOf,
        Tokens,
        tokens,
        show=show_tokens,
        human=SPENT,
        summary="Show the token usage of a run.",
        examples=['icctl run tokens "$RUN"', 'icctl run tokens "$RUN" --json'],
    ),
    Verb(
        "run budget",
        BudgetOf,
        Budget,
        budget,
        show=show_budget,
        human=BUDGET,
        exit=lambda r: 1 if r.exceeded else 0,
        summary="Show the budget; exit 1 if it is used up.",
        examples=['icctl run budget "$RUN" || exit', 'icctl run budget "$RUN" --json'],
    ),
    *snapshot.VERBS,
]
