"""Where the requests of one peer are carried out, whichever way they were framed."""

from collections.abc import Callable
from typing import TypeVar

import anyio

from icd.cli.invocation import Invocation, Need, Output, Plan
from icd.cli.main import finish, plan
from icd.errors import Internal
from icd.rpc.dispatch import failure
from icd.rpc.method import Answer, Call, Method, Params
from icd.server import limits
from icd.server.about import About
from icd.server.logs import log
from icd.server.router import Router

A = TypeVar("A")
R = TypeVar("R")


class Desk:
    """`pid` is the peer's, as the kernel tells it."""

    def __init__(self, pid: int, router: Router, about: About) -> None:
        self.pid = pid
        self._router = router
        self._about = about

    async def command(self, invocation: Invocation, *, size: int) -> Output | Need:
        """Run a command line; `size` is that of the request it came in."""
        planned = await off_the_loop(plan, invocation, size=size)
        if not isinstance(planned, Plan):
            return planned
        if planned.call.method.run is None:
            answer = self.ask_daemon(planned.call.method, planned.call.params)
        else:
            (answer,) = await self.run([planned.call])
        return finish(planned, answer)

    async def run(self, calls: list[Call]) -> list[Answer]:
        answers = await self._router.submit(calls)
        for call, answer in zip(calls, answers, strict=True):
            self._about.count(call.method.name, answer.error)
            if isinstance(answer.error, Internal):
                cause = answer.error.__cause__
                log.error("%s: %s", call.method.name, answer.error, exc_info=cause)
        return answers

    def ask_daemon(self, method: Method, params: Params) -> Answer:
        try:
            answer = Answer(result=self._about.answer(params))
        except Exception as exc:  # noqa: BLE001 -- the error map
            answer = Answer(error=failure(exc))
        self._about.count(method.name, answer.error)
        return answer


async def off_the_loop(function: Callable[[A], R], argument: A, *, size: int) -> R:
    """Judging a megabyte takes its time: do it where it does not hold up everybody else.

    Reads no files, so the shared pool of threads will do.
    """
    if size <= limits.LARGE_BYTES:
        return function(argument)
    return await anyio.to_thread.run_sync(function, argument)
