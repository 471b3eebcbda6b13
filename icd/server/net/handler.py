"""Where the requests of one peer are carried out, whichever way they were framed.

A request's time is counted from `begin`, when it has been read completely and its turn has come,
until its answer is handed over.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeGuard, TypeVar

import anyio

from icd.app.call import STATE, Answer, Call, Params
from icd.app.dispatch import failure
from icd.app.invocation import Errand, Need, Output, Plan, World
from icd.app.planner import finish, plan
from icd.app.verb import Method
from icd.db.paths import Where
from icd.errors import IcError, Internal, InvalidRequest, NoDatabase
from icd.features.daemon import methods as daemon
from icd.features.events import watch as watches
from icd.server import limits
from icd.server.logs import log
from icd.server.metrics.status import About
from icd.server.net import callers
from icd.server.net.jsonrpc import Id
from icd.server.reload import Reload
from icd.server.stores.ears import Ear
from icd.server.stores.registry import Router
from icd.server.subscriptions.event_stream import Follower
from icd.server.subscriptions.streams import Outlet, Stream
from icd.server.subscriptions.watches import Watch
from icd.server.workers import threads
from icd.values.processes import Writer

A = TypeVar("A")
R = TypeVar("R")


class Desk:
    """`pid` is the peer's, as the kernel tells it; its session sets what it needs to be told.

    `caller` is who is to blame: the peer, or the process that a client forwards for.
    """

    outlet: Outlet

    def __init__(self, pid: int, router: Router, about: About, reload: Reload) -> None:
        self.pid = pid
        self.caller: int | None = pid
        self.failed: Callable[[], None] = lambda: None  # told when an answer cannot be delivered
        self._where = Where("")
        self._writer = Writer(pid)
        self._router = router
        self._about = about
        self._reload = reload
        self._began = 0.0
        self._name = ""

    def begin(self) -> None:
        self._began = time.monotonic()
        self._name = ""

    def _who(self) -> str:
        """Asked while the caller waits for its answer: later it may be gone."""
        if not self._name:
            self._name = callers.name(self.pid if self.caller is None else self.caller)
        return self._name

    def where(self, cwd: str, db: str | None) -> Where:
        """A peer usually means the same database as before: then it is the same object."""
        if self._where.cwd != cwd or self._where.db != db:
            self._where = Where(cwd, db)
        return self._where

    def writer(self, session: str | None) -> Writer:
        if self._writer.session != session:
            self._writer = Writer(self.pid, session)
        return self._writer

    def run(self, calls: list[Call], deliver: Callable[[list[Answer]], None]) -> None:
        """Have the calls answered; `deliver` is called once, with all answers."""
        self._router.submit(calls, partial(self._note, calls, deliver))

    async def ask(self, calls: list[Call]) -> list[Answer]:
        answers = await self._router.ask(calls)
        self._note(calls, lambda _: None, answers)
        return answers

    def ask_daemon(self, method: Method[Any, Any], params: Params) -> Answer:
        try:
            answer = Answer(result=self._about.answer(params))
        except Exception as exc:  # noqa: BLE001 -- the error map
            answer = Answer(error=failure(exc))
        return self._counted(method, answer)

    def _counted(self, method: Method[Any, Any], answer: Answer) -> Answer:
        if answer.error is not None:
            self._about.blame(method.name, self._who(), answer.error)
        self._about.count(method.name, self._began)
        return answer

    def refuse(self, name: str, error: IcError) -> None:
        """A call that made no sense: its author, a script, may never look at stderr."""
        self._about.blame(name, self._who(), error)
        self._about.count(name, self._began)

    def carry_out(
        self, planned: Plan | Errand | Need | Output, deliver: Callable[[Output | Need], None]
    ) -> None:
        """Do what a command line asks for."""
        if isinstance(planned, Errand):
            deliver(Need("local"))  # the caller's files are none of our business
        elif not isinstance(planned, Plan):
            if isinstance(planned, Output) and (refused := planned.refused):
                self.refuse(refused.command.replace(" ", "."), refused.kind(refused.message))
            deliver(_logged(planned))
        elif planned.call.method.run is None:
            answer = self.ask_daemon(planned.call.method, planned.call.params)
            deliver(_logged(finish(planned, answer)))
        else:
            self.run([planned.call], lambda answers: deliver(_logged(finish(planned, answers[0]))))

    def reload(
        self, planned: Plan, deliver: Callable[[Output | Need], None], *, again: bool
    ) -> None:
        """Answered when it is refused, or by the next daemon, which carries it out `again`."""

        def told(answer: Answer) -> None:
            deliver(finish(planned, self._counted(planned.call.method, answer)))

        if again:
            told(self._reload.outcome())
        else:
            self._reload.ask(told, early=False)

    async def reload_early(self, method: Method[Any, Any]) -> Answer:
        """Answered when the new code is known to run."""
        done: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def told(answer: Answer) -> None:
            if not done.cancelled():
                done.set_result(answer)

        self._reload.ask(told, early=True)
        return self._counted(method, await done)

    async def stream(self, planned: Plan, frame: Callable[[Output], bytes]) -> Output:
        """Carry out a command that goes on; its final reply is returned."""
        stream = Stream(self.outlet, self.ask, self._ear, frame)
        with self._subscribed():
            output = await stream.run(planned)
        _logged(output)
        return output

    async def watch(self, call: Call, request_id: Id) -> Answer:
        """Carry out a typed stream; what its final response says is returned."""
        with self._subscribed():
            if isinstance(call.params, watches.Watch):
                feed = partial(self._router.feed, call.where)
                return await Follower(self.outlet, self.ask, feed, request_id).run(call)
            return await Watch(self.outlet, self.ask, self._ear, request_id).run(call)

    def _ear(self, call: Call) -> Ear:
        stream = call.method.stream
        return self._router.ear(call.where, STATE if stream is None else stream.hears(call.params))

    @contextmanager
    def _subscribed(self) -> Iterator[None]:
        self._about.subscribers += 1
        try:
            yield
        finally:
            self._about.subscribers -= 1

    async def command(
        self, invocation: World, *, size: int, frame: Callable[[Output], bytes] | None
    ) -> Output | Need:
        """Run a command line that came in a request of this size; `frame` allows for a stream."""
        planned = await off_the_loop(plan, invocation, size=size)
        if goes_on(planned):
            if frame is None:
                raise InvalidRequest(
                    "a command that goes on needs a line and an id of its own",
                    hint="send it outside a batch, or ask for its typed method again and again",
                )
            return await self.stream(planned, frame)
        if waits_for_reload(planned):
            return finish(planned, await self.reload_early(planned.call.method))
        if isinstance(planned, Plan) and planned.call.method.run is not None:
            (answer,) = await self.ask([planned.call])
            return _logged(finish(planned, answer))
        outcome: list[Output | Need] = []
        self.carry_out(planned, outcome.append)
        return outcome[0]

    def _note(
        self,
        calls: list[Call],
        deliver: Callable[[list[Answer]], None],
        answers: list[Answer],
    ) -> None:
        later = False
        for call, answer in zip(calls, answers, strict=True):
            later |= answer.later
            if answer.error is not None:
                self._complain(call, answer.error)
        try:
            deliver(answers)
        except Exception:  # noqa: BLE001 -- we are called by a lane, which must go on
            self.failed()  # first: there may be no memory for a line in the log
            log.exception("an answer could not be delivered")
        if later:  # they are asked for again
            calls = [call for call, answer in zip(calls, answers, strict=True) if not answer.later]
            answers = [answer for answer in answers if not answer.later]
        self._about.count_all(calls, answers, self._began)

    def _complain(self, call: Call, error: IcError) -> None:
        missed = call.optional and isinstance(error, NoDatabase)
        if error.exit >= 2 and not (missed or call.background):
            self._about.blame(call.method.name, self._who(), error)
        if isinstance(error, Internal):
            log.error("%s: %s", call.method.name, error, exc_info=error.__cause__)


def goes_on(planned: Plan | Errand | Need | Output) -> TypeGuard[Plan]:
    """Whether a command has more than one answer."""
    return isinstance(planned, Plan) and planned.ask.follow is not None


def waits_for_reload(planned: Plan | Errand | Need | Output) -> TypeGuard[Plan]:
    return isinstance(planned, Plan) and isinstance(planned.call.params, daemon.Reload)


def _logged(output: Output | Need) -> Output | Need:
    if isinstance(output, Output) and output.bug is not None:
        log.error("a command failed: %s", output.bug, exc_info=output.bug.__cause__)
    return output


async def off_the_loop(function: Callable[[A], R], argument: A, *, size: int) -> R:
    """Judging a megabyte takes its time: do it where it does not hold up everybody else.

    Reads no files, so a shared limit of threads will do.
    """
    if size <= limits.LARGE_BYTES:
        return function(argument)
    async with anyio.to_thread.current_default_thread_limiter():
        return await threads.start(partial(function, argument))
