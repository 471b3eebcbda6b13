"""hook.*: how far the hooks of a project have come.

Only `hook.begin` and `hook.end` are in the table; the rest is asked by whoever runs hooks, for
itself.
"""

from icd.app.call import Context, Params
from icd.app.verb import Method, Runs, Writes, no_rows
from icd.errors import InvalidName
from icd.features.hooks import store as hooks
from icd.features.hooks.store import NAMES, Delivery, Done
from icd.values.validation import shown
from icd.values.wire import Result


class Begin(Params):
    hooks: list[str]


class Begun(Result):
    """`seq`: the last event that they do not get."""

    seq: int


class End(Params):
    hooks: list[str]


class Ended(Result):
    hooks: list[str]


class Pending(Params):
    hooks: list[str]


class Step(Params):
    """What was delivered, if anything was, and who can be delivered to."""

    hooks: list[str]
    done: Done | None = None


def check(params: Begin | End) -> None:
    for hook in params.hooks:
        if hook not in NAMES:
            hint = f"use one of {', '.join(NAMES)}"
            raise InvalidName(f"{shown(hook)} is not the name of a hook", hint=hint)


def begin(ctx: Context, p: Begin) -> Begun:
    return Begun(hooks.begin(ctx.conn, p.hooks))


def end(ctx: Context, p: End) -> Ended:
    hooks.end(ctx.conn, p.hooks)
    return Ended(p.hooks)


def pending(ctx: Context, p: Pending) -> bool:
    return hooks.is_pending(ctx.conn, p.hooks)


def step(ctx: Context, p: Step) -> Delivery | None:
    if p.done is not None:
        hooks.finish(ctx.conn, p.done, actor=ctx.writer, now_ms=ctx.now_ms)
    return hooks.start_next(ctx.conn, p.hooks)


METHODS = [
    # Local: a caller in a sandbox must not make others skip what they are owed.
    Method(
        "hook.begin",
        Begin,
        Begun,
        begin,
        check=check,
        writes=Writes(no_rows),
        runs=Runs(local=True),
    ),
    Method("hook.end", End, Ended, end, check=check, writes=Writes(no_rows), runs=Runs(local=True)),
]
PENDING = Method("hooks.pending", Pending, bool, pending)
STEP = Method("hooks.step", Step, Delivery | None, step, writes=Writes(no_rows, appends=True))
