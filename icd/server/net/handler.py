"""Where the requests of one peer are carried out, whichever way they were framed.

A request's time is counted from `begin`, when it has been read completely and its turn has come,
until its answer is handed over.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import anyio
from anyio.abc import TaskGroup

from icd.app.call import STATE, Answer, Call, Params
from icd.app.dispatch import answered
from icd.app.invocation import Ask, Errand, Need, Output
from icd.app.planner import finish, resume
from icd.app.verb import Method
from icd.db.paths import Where
from icd.errors import IcError, Internal, NoDatabase
from icd.features.daemon import verbs as daemon
from icd.features.events import watch as events
from icd.server import limits
from icd.server.logs import log
from icd.server.metrics.status import About
from icd.server.net import callers
from icd.server.net.jsonrpc import Id
from icd.server.reload import Reload
from icd.server.stores.call_queue import Deliver
from icd.server.stores.notify import ChangeWaiter
from icd.server.stores.registry import Stores
from icd.server.subscriptions.stream import (
    CommandStream,
    EventStream,
    Stream,
    Subscription,
    TypedStream,
    follow,
)
from icd.server.workers import threads
from icd.server.workers.errands import Errands, Visit
from icd.values.processes import Writer

A = TypeVar("A")
R = TypeVar("R")

Planned = Ask | Errand | Need | Output


class Handler:
    """`pid` is the peer's, as the kernel tells it; its session sets the stream.

    `caller` is who is to blame: the peer, or the process that a client forwards for.
    """

    stream: Stream

    def __init__(
        self,
        pid: int,
        stores: Stores,
        about: About,
        reload: Reload,
        tasks: TaskGroup,
        *,
        errands: Errands,
    ) -> None:
        self.pid = pid
        self.caller: int | None = pid
        self.tasks = tasks
        self._where = Where("")
        self._writer = Writer(pid)
        self._stores = stores
        self._about = about
        self._counters = about.counters
        self._reload = reload
        self._errands = errands
        self.began = 0.0
        self._name = ""

    def begin(self) -> None:
        self.began = time.monotonic()
        self._name = ""

    def where(self, cwd: str, db: str | None) -> Where:
        """A peer usually means the same database as before: then it is the same object."""
        if self._where.cwd != cwd or self._where.db != db:
            self._where = Where(cwd, db)
        return self._where

    def writer(self, session: str | None) -> Writer:
        if self._writer.session != session:
            self._writer = Writer(self.pid, session)
        return self._writer

    # --- calls ---

    def submit(self, calls: list[Call], deliver: Deliver) -> None:
        """Have the calls answered; `deliver` gets the answers, and blames and counts."""
        store = self._stores.ready(calls)
        if store is None:
            self.tasks.start_soon(self._submit_slowly, calls, deliver)
        else:
            store.submit(calls, deliver, self._stores.follow)

    async def _submit_slowly(self, calls: list[Call], deliver: Deliver) -> None:
        deliver(await self._stores.ask(calls))

    async def ask(self, calls: list[Call]) -> list[Answer]:
        answers = await self._stores.ask(calls)
        self.blame(calls, answers)
        self.count(calls, answers)
        return answers

    def ask_daemon(self, method: Method[Any, Any], params: Params) -> Answer:
        """What the daemon answers itself."""
        return self._counted(method, answered(self._ask_daemon, params))

    def _ask_daemon(self, params: Params) -> Answer:
        return Answer(result=self._about.answer(params))

    async def reload(self, method: Method[Any, Any]) -> Answer:
        """Reload; answered when the new code is known to run."""
        return self._counted(method, await self._reload.ask(early=True))

    # --- command lines ---

    async def command(
        self,
        planned: Planned,
        frame: Callable[[Output], bytes] | None,
        *,
        again: bool = False,
        early: bool = False,
    ) -> Output | Need:
        """Carry out a command line; `frame` makes a part of an output ready to be sent.

        `again`: the daemon before us has begun with it.  `early`: a reload is answered when the new
        code is known to run; else the next daemon carries out the command again, and answers it.
        """
        if not isinstance(planned, Ask):
            return self.told(planned)
        if planned.follow is not None:
            assert frame is not None, "a following command is sent in parts"
            return await self._follow_command(planned, frame, again=again)
        if isinstance(planned.call.params, daemon.Reload):
            answer = self._reload.outcome() if again else await self._reload.ask(early=early)
            return finish(planned, self._counted(planned.call.method, answer))
        if planned.call.method.run is None:
            return finish(planned, self.ask_daemon(planned.call.method, planned.call.params))
        return finish(planned, (await self.ask([planned.call]))[0])

    def told(self, planned: Errand | Need | Output) -> Output | Need:
        """The reply where no call is needed: help, a mistake, or a question to the client."""
        if isinstance(planned, Errand):
            return Need("local")  # the caller's files are none of our business
        bug = planned.bug if isinstance(planned, Output) else None
        if bug is not None and isinstance(bug.__cause__, (ImportError, OSError)):
            return Need("local")  # we could not load it (yet); the caller can, see `_load`
        return self._blamed(planned)

    def _blamed(self, planned: Need | Output) -> Output | Need:
        if isinstance(planned, Output) and planned.refused is not None:
            name = planned.refused.command.replace(" ", ".")
            self.refuse(name, planned.refused.kind(planned.refused.message))
        return planned

    async def serve(self, errand: Errand, visit: Visit) -> Output | Need:
        """Do in the caller's place what its own process would do."""
        found = self._blamed(await self._errands.run(errand, visit, self.ask))
        if isinstance(found, Output) and found.refused is None:
            began = self.began + visit.rested  # to wait for a lock is no work
            self._counters.count(errand.context.replace(" ", "."), began)
        return found

    async def undo(self, errand: Errand) -> None:
        await self._errands.undo(errand)

    async def _follow_command(
        self, asked: Ask, frame: Callable[[Output], bytes], *, again: bool
    ) -> Output:
        if again:
            asked = resume(asked, self.stream.place)
        waiter = self._waiter(asked.call)
        output: Output = await self._follow(CommandStream(asked, waiter, self.stream, frame))
        return output

    # --- typed streams ---

    async def watch(self, call: Call, request_id: Id) -> Answer:
        """Carry out a typed stream; what its final response says is returned."""
        if isinstance(call.params, events.Watch):
            feed = partial(self._stores.feed, call.where)
            question: Subscription = EventStream(call, request_id, self.stream.outbox, feed)
        else:
            question = TypedStream(call, self._waiter(call), request_id)
        answer: Answer = await self._follow(question)
        return answer

    async def _follow(self, subscription: Subscription) -> Any:
        return await follow(subscription, self.stream, self.ask, self._about.subscriber())

    def _waiter(self, call: Call) -> ChangeWaiter:
        stream = call.method.stream
        topic = STATE if stream is None else stream.hears(call.params)
        return self._stores.waiter(call.where, topic)

    # --- counts, and who is to blame ---

    def blame(self, calls: list[Call], answers: list[Answer]) -> None:
        """Note who failed, before the caller has its answer: later it may be gone."""
        for call, answer in zip(calls, answers, strict=True):
            if answer.error is not None:
                self._complain(call, answer.error)

    def count(self, calls: list[Call], answers: list[Answer]) -> None:
        if [answer for answer in answers if answer.later]:  # they are asked for again
            calls = [call for call, answer in zip(calls, answers, strict=True) if not answer.later]
            answers = [answer for answer in answers if not answer.later]
        self._counters.count_all(calls, answers, self.began)

    def refuse(self, name: str, error: IcError) -> None:
        """Count a call that made no sense: its author, a script, may never look at stderr."""
        self._counters.blame(name, self._who(), error)
        self._counters.count(name, self.began)

    def _counted(self, method: Method[Any, Any], answer: Answer) -> Answer:
        if answer.error is not None:
            self._counters.blame(method.name, self._who(), answer.error)
        self._counters.count(method.name, self.began)
        return answer

    def _complain(self, call: Call, error: IcError) -> None:
        missed = call.optional and isinstance(error, NoDatabase)
        if error.exit >= 2 and not (missed or call.background):
            self._counters.blame(call.method.name, self._who(), error)
        if isinstance(error, Internal):
            log.error("%s: %s", call.method.name, error, exc_info=error.__cause__)

    def _who(self) -> str:
        """The name of the caller, asked for while it waits for its answer: later it may be gone."""
        if not self._name:
            self._name = callers.name(self.pid if self.caller is None else self.caller)
        return self._name


async def off_the_loop(function: Callable[[A], R], argument: A, *, size: int) -> R:
    """Run the function; in a thread if `size` is large, where it does not hold up the loop.

    Reads no files, so a shared limit of threads will do.
    """
    if size <= limits.LARGE_BYTES:
        return function(argument)
    async with anyio.to_thread.current_default_thread_limiter():
        return await threads.start(partial(function, argument))
