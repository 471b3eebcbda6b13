"""dispatch wait

With a daemon, the end is told: the log has news.  Without one, the caller's own process looks at
the processes and files of the dispatch every second, and records what no other process can.
"""

import time
from typing import Annotated

import msgspec

from icd.app import render
from icd.app.call import Answer, Look
from icd.app.invocation import LOOK_AGAIN_SECONDS, Ask, Output, World
from icd.app.types import SPAN
from icd.app.verb import Command, Option
from icd.features.dispatches import poll as polls
from icd.features.dispatches.calls import Get, Poll, Watch
from icd.features.dispatches.store import Dispatch
from icd.features.dispatches.text import lines

FINE = ("completed", "cancelled")
_METHODS = {Watch: "dispatch.watch", Get: "dispatch.get", Poll: "dispatch.poll"}


class Wait(Get):
    """Block until a dispatch has ended, then show it as status does.

    Exit 0 if it was completed or cancelled, 1 if it failed, ran out of time, or is unknown.
    With --timeout, exit 1 also when the time is up; without, it waits for as long as it takes.
    """

    poll: Annotated[
        int | None, SPAN, Option("--poll", "Of no effect: an end is told at once.", "D")
    ] = None


class _Place(msgspec.Struct):
    """Where a waiting is by now: the moment of its end stays what it was."""

    params: Watch
    ends_at: float | None


def ask_wait(world: World, f: Wait) -> Ask:
    ends_at = None if world.timeout_ms is None else time.monotonic() + world.timeout_ms / 1000
    if world.host == "direct":
        return _ask(world, Get(f.id), ends_at, LOOK_AGAIN_SECONDS)
    return _ask(world, Watch(f.id), ends_at, 0.0)


def _ask(
    world: World, params: Watch | Get | Poll, ends_at: float | None, patience: float | None
) -> Ask:
    is_done = False

    def shown(result: Look | Dispatch) -> Output:
        """Decide once for each look: time goes on between two questions."""
        nonlocal is_done
        found: Dispatch = result.news if isinstance(result, Look) else result
        if found.is_over and isinstance(params, Poll) and params.seen and params.seen.end:
            polls.forget(found.id, world.database)
        is_done = found.is_over or (ends_at is not None and time.monotonic() >= ends_at)
        return _output(world, found) if is_done else Output(1)

    def follow(answer: Answer) -> Ask | None:
        if answer.error is not None or is_done:
            return None
        if isinstance(params, Watch):
            return _ask(world, answer.result.following, ends_at, None)
        return _look(world, params, answer.result, ends_at)

    def resume(place: bytes) -> Ask:
        left = msgspec.json.decode(place, type=_Place)
        return _ask(world, left.params, left.ends_at, 0.0)

    return Ask(
        _METHODS[type(params)],
        params,
        shown,
        follow=follow,
        patience=patience,
        ends_at=ends_at,
        cut_short=2,
        place=msgspec.json.encode(_Place(params, ends_at)) if isinstance(params, Watch) else b"",
        resume=resume,
    )


def _look(world: World, params: Get | Poll, found: Dispatch, ends_at: float | None) -> Ask:
    """Write only what is to be recorded: another process may keep the database for long."""
    seen = polls.look(found, world.database)
    if not seen.is_news:
        return _ask(world, Get(params.id), ends_at, LOOK_AGAIN_SECONDS)
    # What is dead stays so: there is nothing to wait for.
    is_told = isinstance(params, Poll) and params.seen == seen
    return _ask(world, Poll(params.id, seen=seen), ends_at, LOOK_AGAIN_SECONDS if is_told else 0.0)


def _output(world: World, found: Dispatch) -> Output:
    output = render.to_json(found) if world.json else render.text(*lines(found))
    output.exit = 0 if found.status in FINE else 1
    if not found.is_over:
        sentence = f"the time is up; dispatch {found.id} is still {found.status}"
        output.stderr = f"{world.program}: dispatch wait: {sentence}\n".encode()
    return output


VERBS = [
    Command(
        "dispatch wait",
        Wait,
        ask_wait,
        summary="Block until a dispatch has ended.",
        examples=[
            "icctl dispatch wait k3v9x0qa",
            "icctl dispatch wait k3v9x0qa --timeout=10m --json",
        ],
    ),
]
