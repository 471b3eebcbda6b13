"""coordination reserve --wait: ask again whenever a reservation has ended.

A daemon pushes: whatever ends a reservation is an event.  A deadline that passes, and a process
that ends, are found by looking; so is everything without a daemon.
"""

import time
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct, structs

from icd.app.call import Answer, Params
from icd.app.invocation import LOOK_AGAIN_SECONDS, Ask, Output


class _Place(Struct):
    """Where a waiting is by now: the moment of its end stays what it was."""

    params: msgspec.Raw
    ends_at: float


def ask(params: Params, show: Callable[[Any], Output], wait_ms: int) -> Ask:
    if not wait_ms:
        return Ask("coordination.reserve", params, show)
    return _waiting(params, show, time.monotonic() + wait_ms / 1000)


def _waiting(params: Params, show: Callable[[Any], Output], ends_at: float) -> Ask:
    is_over = True

    def render(outcome: Any) -> Output:
        nonlocal is_over
        is_over = outcome.lock is not None or time.monotonic() >= ends_at
        return show(outcome) if is_over else Output(1)

    def follow(answer: Answer) -> Ask | None:
        if answer.error is not None or is_over:
            return None
        return _waiting(structs.replace(params, again=True), show, ends_at)

    def resume(place: bytes) -> Ask:
        left = msgspec.json.decode(place, type=_Place)
        return _waiting(msgspec.json.decode(left.params, type=type(params)), show, left.ends_at)

    return Ask(
        "coordination.reserve",
        params,
        render,
        follow=follow,
        patience=LOOK_AGAIN_SECONDS,
        ends_at=ends_at,
        cut_short=2,
        place=msgspec.json.encode(_Place(msgspec.Raw(msgspec.json.encode(params)), ends_at)),
        resume=resume,
    )
