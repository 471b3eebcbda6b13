"""guard: judge commits by the reservations of others."""

import os
from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Raw, Struct

from icd.admin.guard import hook_file
from icd.app import render
from icd.app.call import Params
from icd.app.invocation import Caller, Local, Output, World
from icd.app.verb import Command, Option
from icd.errors import IcError, NoDatabase
from icd.features.coordination.forms import MANY, CheckMany, Touched
from icd.features.events.record import Record
from icd.printable import spelled

# Commits anyway, and is recorded.
OVERRIDE = "INTERCORE_GUARD"
SHOWN = 10
_REPAIR = (
    "Wait until they are released, take them out of the commit (git restore --staged FILE),\n"
    f"or commit anyway, which is recorded: {OVERRIDE}=off git commit ...\n"
)
# What these bring was judged when it was committed first.
_OTHERS = ("MERGE_HEAD", "REBASE_HEAD")


class Install(Struct):
    """Install the guard as the project's pre-commit hook.

    A hook that is there is kept, and runs after it; core.hooksPath and worktrees are respected.
    """


class Uninstall(Struct):
    """Remove the guard, and restore the hook that was there before it."""


class Check(Struct):
    """Check the staged files; exit 1 if another session has reserved one of them.

    Without a database, or where intercore cannot tell, exit 0: a commit is never lost to a fault.
    INTERCORE_GUARD=off commits anyway; that is recorded as an event.
    """

    owner: Annotated[
        str | None, Option("--owner", "Owner who commits (default: the session).", "O")
    ] = None


# --- install --------------------------------------------------------------------------------------


def ask_install(world: World, _f: Install) -> Local:
    def run(_ask: Caller) -> Output:
        place = hook_file.find(world.env, world.cwd)
        chained = hook_file.install(place)
        lines = [f"installed {os.path.join(place.hooks, hook_file.NAME)}"]
        if chained:
            lines.append(f"the hook that was there runs after it, as {hook_file.CHAINED}")
        return render.text(*lines)

    return Local(run, is_about_project=False)


def ask_uninstall(world: World, _f: Uninstall) -> Local:
    def run(_ask: Caller) -> Output:
        place = hook_file.find(world.env, world.cwd)
        restored = hook_file.uninstall(place)
        if restored is None:
            return render.text("not installed")
        return render.text("removed; the hook from before is back" if restored else "removed")

    return Local(run, is_about_project=False)


# --- check ----------------------------------------------------------------------------------------


def ask_check(world: World, f: Check) -> Local:
    def run(ask: Caller) -> Output:
        try:
            return _judge(ask, world, f.owner or world.session or None)
        except NoDatabase:
            return Output(0)
        except IcError as exc:
            told = f"{world.program}: guard check: the commit was not judged: {exc.message}\n"
            return Output(0, stderr=told.encode("utf-8", "backslashreplace"))

    return Local(run)


def _judge(ask: Caller, world: World, owner: str | None) -> Output:
    top = hook_file.line_of(world.env, world.cwd, "rev-parse", "--show-toplevel")
    held = _held(ask, top, _touched(world, top), owner)
    if not held:
        return Output(0)
    if world.env.get(OVERRIDE, "").lower() in ("off", "0", "false", "no"):
        ask("events.record", _overridden(held, owner))
        return Output(
            0, stderr=f"{world.program}: guard check: overridden, and recorded\n".encode()
        )
    return Output(1, stderr=_told(world.program, top, held).encode("utf-8", "backslashreplace"))


def _touched(world: World, top: str) -> list[str]:
    """The files that a commit changes by hand, as absolute paths.

    What a merge brings from its other side was judged there; what was resolved differs from both.
    """

    def is_there(name: str) -> bool:
        path = hook_file.line_of(world.env, top, "rev-parse", "--git-path", name)
        return os.path.lexists(os.path.join(top, path))

    names = _names(world, top)
    for other in filter(is_there, _OTHERS):
        differ = set(_names(world, top, other))
        names = [name for name in names if name in differ]
    return [os.path.join(top, os.fsdecode(name)) for name in names]


def _names(world: World, top: str, *against: str) -> list[bytes]:
    words = (
        *("diff", "--cached", "--name-only", "--no-renames", "--no-ext-diff", "-z"),
        *("--ignore-submodules=none", "-O/dev/null"),
    )
    return hook_file.git(world.env, top, *words, *against).split(b"\0")[:-1]


def _held(ask: Caller, top: str, paths: Sequence[str], owner: str | None) -> list[Touched]:
    """One call, unless the commit is larger than any that people make."""
    found: list[Touched] = []
    for start in range(0, len(paths), MANY):
        params = CheckMany(list(paths[start : start + MANY]), owner, project=top)
        found += ask("coordination.check_many", params)
    return found


def _overridden(held: list[Touched], owner: str | None) -> Params:
    said = {
        "owner": owner or "",
        "files": len(held),
        "paths": [spelled(touched.path) for touched in held[:SHOWN]],
        "blockers": sorted({touched.blocker.id for touched in held})[:SHOWN],
    }
    return Record("guard", "overridden", Raw(msgspec.json.encode(said)))


def _told(program: str, top: str, held: list[Touched]) -> str:
    some = "1 file" if len(held) == 1 else f"{len(held)} files"
    lines = [f"{program}: guard check: {some} of this commit held by other sessions:"]
    lines += [f"  {_line(touched, top)}" for touched in held[:SHOWN]]
    if len(held) > SHOWN:
        lines.append(f"  and {len(held) - SHOWN} more")
    return "\n".join(lines) + "\n" + _REPAIR


def _line(touched: Touched, top: str) -> str:
    path = os.path.relpath(touched.path, top)
    is_said = touched.blocker.pattern == path
    return touched.blocker.told if is_said else f"{path}: {touched.blocker.told}"


VERBS = [
    Command(
        "guard install",
        Install,
        ask_install,
        summary="Install the guard as a pre-commit hook.",
        examples=["icctl guard install"],
    ),
    Command(
        "guard uninstall",
        Uninstall,
        ask_uninstall,
        summary="Remove the guard, and restore what was there.",
        examples=["icctl guard uninstall"],
    ),
    Command(
        "guard check",
        Check,
        ask_check,
        summary="Check the staged files; exit 1 if another session holds one.",
        examples=["icctl guard check"],
    ),
]
