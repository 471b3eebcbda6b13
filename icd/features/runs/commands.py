"""`icctl run …`: beginning a run, and looking at runs."""

import click
from msgspec import Raw

from icd.app import render
from icd.app.invocation import Ask, Output, World
from icd.app.types import SPAN, Whole
from icd.errors import Usage
from icd.features.events.store import NOTHING
from icd.features.runs import (
    budget_commands as budgets,
)
from icd.features.runs import methods, phases
from icd.features.runs import (
    snapshot_commands as snapshots,
)
from icd.features.runs import (
    transition_commands as transitions,
)
from icd.features.runs.documents import Document
from icd.features.runs.history import PhaseEvent
from icd.values.wire import INT64

RUN = click.argument("run_id", metavar="RUN")
_CREATING = [
    click.option("--goal", required=True, metavar="TEXT", help="What is to be done."),
    click.option("--project", metavar="DIR", help="Where; else the current directory."),
    click.option(
        "--complexity", type=Whole(1, 5), default=3, metavar="1..5", help="Kept (default 3)."
    ),
    click.option(
        "--scope-id",
        "--bead",
        metavar="S",
        help="What it is about: a project has one active run for each.",
    ),
    click.option("--phases", metavar="JSON", help="Its own phases, as an array; @FILE reads one."),
    click.option("--gates", metavar="JSON", help="Its own gate rules; @FILE reads a file."),
    click.option(
        "--token-budget", type=Whole(1, INT64 - 1), metavar="N", help="How many tokens it may use."
    ),
    click.option(
        "--budget-warn-pct",
        type=Whole(1, 99),
        default=80,
        metavar="P",
        help="Warn at this percentage of them (default 80).",
    ),
    click.option("--metadata", metavar="TEXT", help="Kept with it; @FILE reads a file."),
    click.option("--actions", metavar="JSON", help="An object, kept with it; @FILE reads a file."),
    click.option("--session", metavar="SID", help="Whose it is; else $CLAUDE_SESSION_ID."),
    click.option("--auto-spawn", is_flag=True, help="Start its agents when it enters executing."),
    click.option("--no-auto-spawn", is_flag=True, help="Do not, whatever the settings say."),
    click.option(
        "--takeover-after",
        type=SPAN,
        help="Abandon the run that has S if it showed no sign of life for so long.",
    ),
]


@click.command("create", add_help_option=False, short_help="Begin a run and print its id.")
def create(
    world: World,
    *,
    goal: str,
    project: str | None,
    takeover_after: int | None,
    **given: object,
) -> Ask:
    """Begin a run in the first phase of its chain, and print its id.

    A project has at most one active run for each scope.
    If another run has it, the exit code is 1 and the message names that run, its age and whether
    whoever created it is still there.
    --takeover-after abandons it, in the same transaction, if nothing was done for it for that long.

    \b
    Examples:
      icctl run create --goal="fix the parser"
      icctl run create --goal="$TITLE" --bead="$BEAD" --takeover-after=60m
      icctl run create --goal=x --phases='["plan","work","done"]' --gates=@g.json
    """
    if not goal:
        raise Usage("--goal is empty")
    chain = _text(world, given.pop("phases"))
    rules, actions = _text(world, given.pop("gates")), _text(world, given.pop("actions"))
    spawns, refrains = given.pop("auto_spawn"), given.pop("no_auto_spawn")
    if spawns and refrains:
        raise Usage("--auto-spawn and --no-auto-spawn exclude each other")
    params = methods.Create(
        goal=goal,
        cwd=world.cwd,
        project=project,
        phases=None if chain is None else list(phases.parse(chain)),
        gates=NOTHING if rules is None else Raw(rules.encode()),
        actions=NOTHING if actions is None else Raw(actions.encode()),
        metadata=_text(world, given.pop("metadata")),
        auto_spawn=bool(spawns) if spawns or refrains else None,
        takeover_after_ms=takeover_after,
        **given,  # type: ignore[arg-type]
    )

    def show(made: methods.Created) -> Output:
        return render.text(made.id)

    return Ask("run.create", params, render.to_json if world.json else show)


for _option in reversed(_CREATING):
    _option(create)


@click.command("status", add_help_option=False, short_help="Show a run.")
@RUN
def status(world: World, *, run_id: str) -> Ask:
    """Show a run: its phase, goal and settings; with --json all that is known about it.

    \b
    Examples:
      icctl run status "$RUN"
      icctl run status "$RUN" --json
    """
    return Ask("run.status", methods.Status(run_id), render.to_json if world.json else _labelled)


@click.command("phase", add_help_option=False, short_help="Print the phase of a run.")
@RUN
def phase(world: World, *, run_id: str) -> Ask:
    """Print the phase of a run.

    \b
    Example:
      case $(icctl run phase "$RUN") in executing) echo busy ;; esac
    """

    def show(run: Document) -> Output:
        if world.json:
            return render.to_json({"id": run.id, "phase": run.phase})
        return render.text(run.phase)

    return Ask("run.status", methods.Status(run_id), show)


@click.command("list", add_help_option=False, short_help="List runs, the newest first.")
@click.option("--active", is_flag=True, help="Only active ones.")
@click.option("--status", type=click.Choice(methods.STATUSES), help="Only with this status.")
@click.option("--scope", metavar="S", help="Only those about S.")
@click.option("--project", metavar="DIR", help="Only those of the project of DIR.")
@click.option("--all-projects", is_flag=True, help="Those of all projects.")
@click.option(
    "--limit",
    type=Whole(1, methods.MOST),
    metavar="N",
    help=f"At most N (default {methods.LIMIT}).",
)
def list_(
    world: World,
    *,
    active: bool,
    status: str | None,
    scope: str | None,
    project: str | None,
    all_projects: bool,
    limit: int | None,
) -> Ask:
    """Print id, status, phase and goal of runs, separated by tabs, the newest first.

    Runs of this project: of the directory that owns the database, of the git checkout that the
    call comes from, and of all directories below them.
    --all-projects shows every run that the database holds.

    \b
    Examples:
      icctl run list --active
      icctl run list --all-projects
      icctl run list --project=. --status=completed --limit=10
    """
    if active and status not in (None, "active"):
        raise Usage("--active and --status exclude each other")
    if all_projects and project is not None:
        raise Usage("--all-projects and --project exclude each other")

    def show(found: list[Document]) -> Output:
        return render.text(*map(_columns, found))

    params = methods.List(
        status="active" if active else status,
        scope_id=scope,
        cwd=world.cwd,
        project=project,
        limit=limit,
        here=project is None and not all_projects,
    )
    return Ask("run.list", params, render.to_json if world.json else show)


@click.command("current", add_help_option=False, short_help="Print the run under way here.")
@click.option("--project", metavar="DIR", help="Where; else the current directory.")
@click.option("--session", metavar="SID", help="Only a run that this session created.")
def current(world: World, *, project: str | None, session: str | None) -> Ask:
    """Print the id of the newest active run of a project; exit 1, silently, if there is none.

    A project is the git checkout that DIR lies in, however DIR is written.

    \b
    Examples:
      run=$(icctl run current) || exit 0
      icctl run current --session="$CLAUDE_SESSION_ID"
    """

    def show(found: methods.Found) -> Output:
        if world.json:
            return render.to_json(found, 0 if found.found else 1)
        return render.text(found.id) if found.id is not None else Output(1)

    params = methods.Current(cwd=world.cwd, project=project, of_session=session)
    return Ask("run.current", params, show)


@click.command("events", add_help_option=False, short_help="Print what happened to a run.")
@RUN
def events(world: World, *, run_id: str) -> Ask:
    """Print what happened to a run: from and to, what, result of the gate, reason; tabs between.

    'icctl events tail RUN' has all its events, those of its dispatches, too.

    \b
    Example:
      icctl run events "$RUN"
    """

    def show(found: list[PhaseEvent]) -> Output:
        return render.text(*(_event(event) for event in found))

    return Ask("run.events", methods.Events(run_id), render.to_json if world.json else show)


def _text(world: World, given: object) -> str | None:
    """What an option says, or the file that it names."""
    if not isinstance(given, str) or not given.startswith("@"):
        return given if isinstance(given, str) else None
    try:
        return world.read_file(given[1:]).decode()
    except UnicodeDecodeError as exc:
        raise Usage(f"{given[1:]} is not valid UTF-8") from exc


def _labelled(run: Document) -> Output:
    lines = {
        "ID": run.id,
        "Status": run.status,
        "Phase": run.phase,
        "Goal": render.one_line(run.goal),
        "Project": render.one_line(run.project_dir),
        "Complexity": str(run.complexity),
    }
    if run.force_full:
        lines["ForceFull"] = "true"
    if not run.auto_advance:
        lines["AutoAdv"] = "false"
    if run.scope_id is not None:
        lines["Scope"] = run.scope_id
    if run.token_budget is not None:
        lines["Budget"] = f"{run.token_budget} tokens (warn at {run.budget_warn_pct}%)"
    return render.text(*(f"{label + ':':<11} {text}" for label, text in lines.items()))


def _columns(run: Document) -> str:
    return render.columns(run.id, run.status, run.phase, render.one_line(run.goal))


def _event(event: PhaseEvent) -> str:
    way = f"{event.from_phase} → {event.to_phase}"
    reason = render.one_line(event.reason or "")
    return render.columns(way, event.event_type, event.gate_result or "", reason)


COMMANDS = [
    create,
    status,
    phase,
    list_,
    current,
    events,
    *transitions.COMMANDS,
    *budgets.COMMANDS,
    *snapshots.COMMANDS,
]
