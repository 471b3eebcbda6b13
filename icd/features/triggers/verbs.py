"""triggers: which programs of this project run after a commit, and how far they have come.

The commands run in the caller's own process: a caller that may not write to the home directory,
such as an agent in a sandbox, can trust nothing, and the daemon does not do it instead.

Only `hook.begin` and `hook.end` are in the table; a host that runs triggers asks the rest for
itself.
"""

from functools import partial
from typing import Annotated

from msgspec import Meta, Struct, structs

from icd.app import render
from icd.app.call import Context, Params
from icd.app.invocation import Caller, Local, Output, World
from icd.app.types import Choice
from icd.app.verb import Argument, Column, Command, Method, Runs, Table, Writes, no_rows
from icd.db import paths
from icd.errors import InvalidName, NoHook, PermissionRefused
from icd.features.triggers import files, store
from icd.features.triggers.files import Trust
from icd.features.triggers.store import NAMES, Delivery, Done
from icd.values.validation import shown
from icd.values.wire import Result

# --- methods --------------------------------------------------------------------------------------


def check_names(hooks: list[str]) -> None:
    for hook in hooks:
        if hook not in NAMES:
            hint = f"use one of {', '.join(NAMES)}"
            raise InvalidName(f"{shown(hook)} is not the name of a trigger", hint=hint)


Hooks = Annotated[list[str], Meta(description="Names of triggers."), check_names]


class Begin(Params):
    """Deliver the events recorded from now on to triggers."""

    hooks: Hooks


class Begun(Result):
    """`seq`: the last event that is not delivered."""

    seq: int


class End(Params):
    """Delete the positions of triggers, and with them all pending deliveries."""

    hooks: Hooks


class Ended(Result):
    hooks: list[str]


class Pending(Params):
    """Whether there is something to deliver, or to begin."""

    hooks: Hooks


class Step(Params):
    """Note what was delivered, if anything was, and start the next delivery."""

    hooks: Hooks
    done: Annotated[Done | None, Meta(description="Events that were delivered.")] = None


def begin(ctx: Context, p: Begin) -> Begun:
    return Begun(store.begin(ctx.conn, p.hooks))


def end(ctx: Context, p: End) -> Ended:
    store.end(ctx.conn, p.hooks)
    return Ended(p.hooks)


def pending(ctx: Context, p: Pending) -> bool:
    return store.is_pending(ctx.conn, p.hooks)


def step(ctx: Context, p: Step) -> Delivery | None:
    if p.done is not None:
        store.finish(ctx.conn, p.done, actor=ctx.writer, now_ms=ctx.now_ms)
    return store.start_next(ctx.conn, p.hooks)


PENDING = Method("hooks.pending", Pending, bool, pending)
STEP = Method("hooks.step", Step, Delivery | None, step, writes=Writes(no_rows, appends=True))


# --- commands -------------------------------------------------------------------------------------

Name = Annotated[
    str | None,
    Choice(NAMES),
    Argument("NAME", "Name of the trigger (default: all triggers of the project)."),
]


class List(Struct):
    """List the triggers of this project: name, state, and why one is refused.

    \b
    States:
      trusted    runs after each event that concerns it
      untrusted  does not run; see triggers trust
      changed    was trusted, has another content now, and does not run
      refused    cannot be trusted as it is
    """


class Grant(Struct):
    """Trust the trigger NAME, or all triggers of this project, with their current content.

    Read them first: they run with your permissions.
    They receive the events recorded from now on; a changed trigger does not run until it is trusted
    again.
    Prints each trigger with the SHA-256 of its content.
    """

    name: Name = None


class Revoke(Struct):
    """Stop trusting the trigger NAME, or all triggers of this project, even deleted ones.

    Prints the name of each trigger that was trusted; exit 1 if none was.
    """

    name: Name = None


def list_(world: World, _f: List, _ask: Caller) -> Output:
    trust = _trust(world)
    found = [structs.asdict(each) | {"state": trust.state(each)} for each in trust.looks.look()]
    lines = (render.columns(x["name"], x["state"], x["problem"]).rstrip() for x in found)
    return render.shown(world, found, lambda: lines, LISTED)


def grant(world: World, f: Grant, ask: Caller) -> Output:
    trust = _trust(world)
    there = {each.name: trust.state(each) for each in trust.looks.look()}
    chosen = [f.name] if f.name else [name for name in NAMES if name in there]
    if not chosen:
        hint = f"create an executable file there: {', '.join(NAMES[:-1])} or {NAMES[-1]}"
        raise NoHook(f"there is no trigger in {trust.looks.directory}", hint=hint)
    fresh = [name for name in chosen if there.get(name) not in ("trusted", "refused", None)]
    if fresh:  # before they are trusted, so that no event gets lost in between
        ask("hook.begin", Begin(hooks=fresh))
    found = [trust.grant(name) for name in chosen]
    if world.json:
        return render.to_json([{"name": each.name, "sha256": each.sha256} for each in found])
    return render.text(*(render.columns(each.name, each.sha256) for each in found))


def revoke(world: World, f: Revoke, ask: Caller) -> Output:
    trust = _trust(world)
    gone = [name for name in ([f.name] if f.name else NAMES) if trust.revoke(name)]
    if gone:  # the log need not be kept for them
        ask("hook.end", End(hooks=gone))
    status = 0 if gone else 1
    return render.to_json(gone, status) if world.json else render.text(*gone, exit_code=status)


def _trust(world: World) -> Trust:
    database = paths.canonical(paths.resolve(world.where))
    project = files.project(database)
    if project is None:
        raise NoHook(
            f"{database} has no triggers",
            hint="only a database in a .clavain directory has triggers",
        )
    home = world.env.get("HOME")
    if not home or not home.startswith("/"):
        raise PermissionRefused("trust is recorded in the home directory", hint="set HOME")
    return Trust(home, project)


LISTED = Table(
    Column("TRIGGER", "name"),
    Column("STATE", "state", "state"),
    Column("PROBLEM", "problem", spare=True),
    empty="No triggers. Put a program named on-event into .clavain/hooks, then: "
    "icctl triggers trust",
)

VERBS = [
    # Local: a caller in a sandbox must not make others skip what they are owed.
    Method("hook.begin", Begin, Begun, begin, writes=Writes(no_rows), runs=Runs(local=True)),
    Method("hook.end", End, Ended, end, writes=Writes(no_rows), runs=Runs(local=True)),
    Command(
        "triggers list",
        List,
        lambda world, form: Local(partial(list_, world, form)),
        human=LISTED,
        summary="List the triggers and their trust.",
        examples=["icctl triggers list", "icctl triggers list --json"],
    ),
    Command(
        "triggers trust",
        Grant,
        lambda world, form: Local(partial(grant, world, form)),
        summary="Trust triggers, so that they run.",
        examples=["icctl triggers trust", "icctl triggers trust on-phase-advance"],
    ),
    Command(
        "triggers untrust",
        Revoke,
        lambda world, form: Local(partial(revoke, world, form)),
        summary="Stop trusting triggers.",
        examples=["icctl triggers untrust", "icctl triggers untrust on-event"],
    ),
]
