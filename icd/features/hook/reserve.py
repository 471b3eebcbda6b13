"""hook reserve, hook release: an agent's edits are reserved for its session.

The agent is never blocked by accident: without a file or a session, without a database, or if
intercore fails, nothing is said, and the edit goes on.
"""

import os
from collections.abc import Callable
from typing import Annotated, Any

from msgspec import Meta, Struct

from icd.app import render
from icd.app.call import Params
from icd.app.invocation import Ask, Output, World
from icd.app.types import Span
from icd.app.verb import Command, Option
from icd.features.coordination.forms import TOGETHER, Outcomes, Release, ReserveMany
from icd.features.hook import answers, event
from icd.features.hook.answers import Asked
from icd.features.hook.event import Event
from icd.printable import spelled
from icd.values.wire import CENTURY_MS

# A session that ends without a word holds its files for so long after its last edit.
TTL_MS = 10 * 60 * 1000
SENT_BYTES = 3 * 1024 * 1024  # of an event: a daemon takes messages of 4 MiB


class ReserveEdit(Struct):
    """Reserve the files that the agent is about to edit, for its session: all of them, or none.

    Reads the event from stdin, and belongs before the tools that edit.
    If another session holds one, prints what blocks the edit and tells the model who; in all other
    cases the edit goes on.
    """

    ttl_ms: Annotated[
        int, Meta(ge=1, le=CENTURY_MS), Span(), Option("--ttl", "Time from the last edit on (10m).")
    ] = TTL_MS


class ReleaseEdits(Struct):
    """Release all that the agent's session has reserved.

    Reads the event from stdin, and belongs at the end of a turn or of the session.
    """


def ask_reserve(world: World, f: ReserveEdit) -> Ask | Output:
    found = event.read(world.read_stdin(SENT_BYTES)) or Event()
    asked = Asked(found.agent, found.event)
    quiet = _quiet(asked)
    owner = _owner(world, found)
    if not found.file or not owner:
        return quiet
    files = [found.file, *found.others][:TOGETHER]

    def show(outcome: Outcomes) -> Output:
        if outcome.conflict is None:
            return quiet
        what = "this file" if len(files) == 1 else "one of these files"
        told = f"Another session is editing {what}: {outcome.told}. "
        return render.to_json(answers.block(asked, f"{told}Work on something else, or wait."))

    cwd = _directory(world, found)
    params = ReserveMany(
        paths=[spelled(os.path.normpath(os.path.join(cwd, file))) for file in files],
        owner=owner,
        ttl_ms=f.ttl_ms,
        project=spelled(cwd),
        follow=True,
    )
    return _asking("coordination.reserve_many", params, show, quiet, _where(world, cwd))


def ask_release(world: World, _f: ReleaseEdits) -> Ask | Output:
    found = event.read(world.read_stdin(SENT_BYTES)) or Event()
    quiet = _quiet(Asked(found.agent, found.event))
    owner = _owner(world, found)
    if not owner:
        return quiet
    params, where = Release(owner=owner), _where(world, _directory(world, found))
    return _asking("coordination.release", params, lambda _: quiet, quiet, where)


def _asking(
    method: str, params: Params, show: Callable[[Any], Output], quiet: Output, cwd: str | None
) -> Ask:
    return Ask(method, params, show, render_error=lambda _: quiet, cwd=cwd, optional=True)


def _where(world: World, cwd: str) -> str | None:
    """In the project of the event, unless the environment names a database."""
    return None if world.env.get("INTERCORE_DB") else cwd


def _owner(world: World, found: Event) -> str:
    """The event's session, which is also the one that the row remembers."""
    world.session = spelled(found.session or world.session)
    return world.session


def _directory(world: World, found: Event) -> str:
    given = (found.cwd, world.env.get("CLAUDE_PROJECT_DIR", ""))
    return next(filter(os.path.isabs, given), world.cwd)


def _quiet(asked: Asked) -> Output:
    """Nothing to say; Cursor wants JSON from every hook."""
    return Output(0, b"{}\n" if asked.agent == "cursor" else b"")


VERBS = [
    Command(
        "hook reserve",
        ReserveEdit,
        ask_reserve,
        summary="Reserve what the agent is about to edit.",
        examples=["icctl hook reserve", "icctl hook reserve --ttl=30m"],
    ),
    Command(
        "hook release",
        ReleaseEdits,
        ask_release,
        summary="Release what the agent's session has reserved.",
        examples=["icctl hook release"],
    ),
]
