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


class Wait(Get):
    """Block until a dispatch has ended, then show it as status does.

    Exit 0 if it was completed or cancelled, 1 if it failed, ran out of time, or is unknown.
    With --timeout, exit 1 also when the time is up; without, it waits for as long as it takes.
    """

    poll: Annotated[
        int | None, SPAN, Option("--poll", "Of no effect: an end is told at once.", "D")
    ] = None


def ask_wait(world: World, f: Wait) -> Ask:
    ends_at = None if world.timeout_ms is None else time.monotonic() + world.timeout_ms / 1000
    if world.host == "direct":
        return _looking(world, Get(f.id), ends_at)
    return _told(world, Watch(f.id), ends_at)


class _Place(msgspec.Struct):
    """Where a waiting is by now: the moment of its end stays what it was."""

    params: Watch
    ends_at: float | None


class _Judge:
    """What is printed, decided once for each look: time goes on between two questions."""

    def __init__(self, world: World, ends_at: float | None) -> None:
        self.is_done = False
        self._world = world
        self._ends_at = ends_at

    def __call__(self, found: Dispatch) -> Output:
        is_late = self._ends_at is not None and time.monotonic() >= self._ends_at
        self.is_done = found.is_over or is_late
        if not self.is_done:
            return Output(1)
        output = render.to_json(found) if self._world.json else render.text(*lines(found))
        output.exit = 0 if found.status in FINE else 1
        if not found.is_over:
            program = self._world.program
            sentence = f"the time is up; dispatch {found.id} is still {found.status}"
            output.stderr = f"{program}: dispatch wait: {sentence}\n".encode()
        return output


def _told(world: World, params: Watch, ends_at: float | None, patience: float | None = 0.0) -> Ask:
    judge = _Judge(world, ends_at)

    def follow(answer: Answer) -> Ask | None:
        if answer.error is not None or judge.is_done:
            return None
        look: Look = answer.result
        assert isinstance(look.following, Watch)
        return _told(world, look.following, ends_at, None)

    def resume(place: bytes) -> Ask:
        left = msgspec.json.decode(place, type=_Place)
        return _told(world, left.params, left.ends_at)

    return Ask(
        "dispatch.watch",
        params,
        lambda look: judge(look.news),
        follow=follow,
        patience=patience,
        ends_at=ends_at,
        cut_short=2,
        place=msgspec.json.encode(_Place(params, ends_at)),
        resume=resume,
    )


def _looking(
    world: World, params: Get | Poll, ends_at: float | None, patience: float = LOOK_AGAIN_SECONDS
) -> Ask:
    """Write only what is to be recorded: another process may keep the database for long."""
    judge = _Judge(world, ends_at)
    told = params.seen if isinstance(params, Poll) else None

    def shown(found: Dispatch) -> Output:
        if found.is_over and told is not None and told.end is not None:
            polls.forget(found.id, world.database)
        return judge(found)

    def follow(answer: Answer) -> Ask | None:
        if answer.error is not None or judge.is_done:
            return None
        seen = polls.look(answer.result, world.database)
        if seen.is_news:  # what is dead stays so: there is nothing to wait for
            patience = 0.0 if told != seen else LOOK_AGAIN_SECONDS
            return _looking(world, Poll(params.id, seen=seen), ends_at, patience)
        return _looking(world, Get(params.id), ends_at)

    return Ask(
        "dispatch.get" if told is None else "dispatch.poll",
        params,
        shown,
        follow=follow,
        patience=patience,
        ends_at=ends_at,
        cut_short=2,
    )


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
