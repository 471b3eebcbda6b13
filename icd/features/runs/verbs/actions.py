"""run action: what is to be done in each phase of a run."""

from collections.abc import Iterator
from typing import Annotated

from msgspec import UNSET, Meta

from icd.app import render
from icd.app.call import Context, Params
from icd.app.verb import Column, Option, Table, Verb, Writes, no_rows
from icd.errors import InvalidParams
from icd.features.runs import actions
from icd.features.runs.actions import MODE, TYPE, Action, Spec
from icd.features.runs.verbs import RunId
from icd.values import validation
from icd.values.wire import Result

MOST = 1_000_000


def _check_args(text: str) -> None:
    actions.check_args(text)


Phase = Annotated[
    str, Option("--phase", "Phase that the action belongs to.", "P"), validation.check_name
]
CommandName = Annotated[
    str, Option("--command", "Command that is to be run.", "C"), validation.check_name
]
Arguments = Annotated[
    str | None,
    Meta(description="Arguments of the command, as a JSON array."),
    Option("--args", "Arguments, as a JSON array.", "JSON"),
    _check_args,
]
Priority = Annotated[int, Meta(ge=-MOST, le=MOST)]


class Add(Params):
    """Add an action to a phase of a run; exit 1 if it is there, or the run is unknown.

    'run advance' answers with the actions of the phase that the run enters.
    In the strings of the arguments, ${artifact:TYPE} becomes the path of the newest artifact of
    this type, ${run_id} the run and ${project_dir} its project.
    intercore runs no action itself.
    """

    rpc = (
        "Add an action to a phase of a run: what is to be done in it.\n"
        "`run.advance` answers with the actions of the phase that the run enters.\n"
        "In the strings of the arguments, `${artifact:TYPE}` becomes the path of the newest "
        "artifact of this type, `${run_id}` the run and `${project_dir}` its project.\n"
        "intercore runs no action itself."
    )
    run_id: RunId
    phase: Phase
    command: CommandName
    args: Arguments = None
    mode: Annotated[
        str,
        Option("--mode", f"Mode, such as autonomous or both (default {MODE}).", "M"),
        validation.check_name,
    ] = MODE
    action_type: Annotated[
        str, Option("--type", f"Type of the action (default {TYPE}).", "T"), validation.check_name
    ] = TYPE
    priority: Annotated[
        Priority, Option("--priority", "Priority: lower ones come first (default 0).", "N")
    ] = 0


class List(Params):
    """Print the actions of a run, by phase, priority and age; the arguments as they were given."""

    rpc = "List the actions of a run, by phase, priority and age."
    run_id: RunId
    phase: Annotated[str | None, Option("--phase", "Include only actions of this phase.", "P")] = (
        None
    )


class Update(Params):
    """Change an action of a run; exit 1 if there is none with this command in this phase."""

    rpc = "Change an action of a run."
    run_id: RunId
    phase: Phase
    command: CommandName
    args: Arguments = None
    mode: Annotated[
        str | None, Option("--mode", "Mode of the action.", "M"), validation.check_name
    ] = None
    priority: Annotated[
        Priority | None, Option("--priority", "Priority: lower ones come first.", "N")
    ] = None


class Delete(Params):
    """Delete an action of a run; exit 1 if there is none with this command in this phase."""

    rpc = "Delete an action of a run."
    run_id: RunId
    phase: Phase
    command: CommandName


class Added(Result):
    id: int


class Deleted(Result):
    run_id: str
    phase: str
    command: str


def add(ctx: Context, p: Add) -> Added:
    spec = Spec(p.command, mode=p.mode, type=p.action_type, priority=p.priority)
    args = None if p.args is None else p.args.strip()
    return Added(actions.add(ctx.conn, p.run_id, p.phase, spec, args, now_ms=ctx.now_ms))


def list_(ctx: Context, p: List) -> list[Action]:
    return actions.of_run(ctx.conn, p.run_id, p.phase)


def update(ctx: Context, p: Update) -> Action:
    return actions.update(
        ctx.conn,
        p.run_id,
        p.phase,
        p.command,
        args=None if p.args is None else p.args.strip(),
        mode=p.mode,
        priority=p.priority,
        now_ms=ctx.now_ms,
    )


def delete(ctx: Context, p: Delete) -> Deleted:
    actions.delete(ctx.conn, p.run_id, p.phase, p.command, now_ms=ctx.now_ms)
    return Deleted(p.run_id, p.phase, p.command)


def _check_update(p: Update) -> None:
    if p.args is None and p.mode is None and p.priority is None:
        raise InvalidParams("nothing to update", hint="pass --args, --mode or --priority")


# --- what is shown --------------------------------------------------------------------------------


def what(action: Action) -> str:
    """The command with its arguments, on one line."""
    args = "" if action.args is UNSET else f" {bytes(action.args).decode()}"
    return render.one_line(f"{action.command}{args}")


def show_list(found: list[Action], _p: List) -> Iterator[str]:
    if not found:
        yield "No actions registered."
    for each in found:
        told = f"[{each.mode}, priority={each.priority}]"
        yield f"  {each.phase} → {what(each)}  {told}"


def _way(p: Add | Update | Delete) -> str:
    return f"{p.phase} → {p.command}"


VERBS = [
    Verb(
        "run action add",
        Add,
        Added,
        add,
        method="action.add",
        writes=Writes(no_rows),
        show=lambda r, p: [f"Added action {r.id}: {_way(p)}"],
        summary="Add an action to a phase.",
        examples=[
            'icctl run action add "$RUN" --phase=executing --command=/work',
            """icctl run action add "$RUN" --phase=a --command=/c --args='["${run_id}"]'""",
        ],
    ),
    Verb(
        "run action list",
        List,
        list[Action],
        list_,
        method="action.list",
        show=show_list,
        human=Table(
            Column("PHASE", "phase"),
            Column("COMMAND", what),
            Column("MODE", "mode"),
            Column("TYPE", "action_type", spare=True),
            Column("PRIORITY", "priority", "number", spare=True),
            empty="No actions yet. Add one: icctl run action add RUN --phase=P --command=C",
        ),
        summary="List the actions of a run.",
        examples=[
            'icctl run action list "$RUN"',
            'icctl run action list "$RUN" --phase=executing --json',
        ],
    ),
    Verb(
        "run action update",
        Update,
        Action,
        update,
        method="action.update",
        check=_check_update,
        writes=Writes(no_rows),
        show=lambda _, p: [f"Updated: {_way(p)}"],
        summary="Change an action of a run.",
        examples=['icctl run action update "$RUN" --phase=executing --command=/work --mode=both'],
    ),
    Verb(
        "run action delete",
        Delete,
        Deleted,
        delete,
        method="action.delete",
        writes=Writes(no_rows),
        show=lambda _, p: [f"Deleted: {_way(p)}"],
        summary="Delete an action of a run.",
        examples=['icctl run action delete "$RUN" --phase=executing --command=/work'],
    ),
]
