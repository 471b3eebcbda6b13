"""Direct mode: run calls in this process, as `icctl` does where there is no daemon.

One call of this process at a time: SQLite's locks belong to the process, so a second connection to
the same file would give them up as it closes (ADR 4).  Other processes are kept out by the lock
file, which is waited for without a timer: a library has no signals of its own.
"""

import gc
import os
import platform  # noqa: F401 -- see `_direct`; so is datetime loaded by now
import textwrap  # noqa: F401
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType

import msgspec

from icctl.api.requests import Reply, Target
from icd.app.call import Answer, Call
from icd.db import lock, permissions
from icd.db.paths import Where
from icd.errors import IcError, InvalidParams, Locked, OtherOwner
from icd.values.processes import Writer


class _Turn:
    """Of the one call that runs, or of a fork.

    A child that was forked in the middle of a call would keep the lock of the project, and has
    none of the threads that could give it back: so a fork waits until the call is done.  The
    thread of the call itself may fork, but not call again, as a handler of signals might.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._has_call = False

    @contextmanager
    def of_call(self, deadline: float) -> Iterator[None]:
        turn = self._lock  # a child that goes on with this call has another one by its end
        if not turn.acquire(timeout=max(deadline - time.monotonic(), 0)):
            raise Locked("another thread of this process uses the database")
        try:
            if self._has_call:
                raise Locked("this thread is in the middle of another call")
            self._has_call = True
            try:
                yield
            finally:
                self._has_call = False
        finally:
            turn.release()

    def begin_fork(self) -> None:
        self._lock.acquire()

    def end_fork(self) -> None:
        self._lock.release()

    def renew(self) -> None:
        self._lock = threading.RLock()


_turn = _Turn()
os.register_at_fork(
    before=_turn.begin_fork, after_in_parent=_turn.end_fork, after_in_child=_turn.renew
)


@cache
def _direct() -> ModuleType:
    """`icctl.direct`, whose imports save a hook's time at the price of others.

    It puts modules aside that were not loaded yet, so ours loads them first, and has no garbage
    collected until its program asks for it.
    """
    collects = gc.isenabled()
    try:
        from icctl import direct
    finally:
        if collects:
            gc.enable()
    return direct


def run(calls: list[Reply[object]], target: Target, deadline: float) -> None:
    """Answer all calls, one after the other."""
    for call in calls:
        answer = ask(call, target, deadline)
        if answer.error is not None:
            call.fail(answer.error)
            continue
        try:  # through JSON, as from a daemon: what is left out there is left out here
            call.settle(call.spec.read_result(msgspec.json.encode(answer.result)))
        except msgspec.DecodeError:  # a row says what none of ours would
            call.misread()


def ask(call: Reply[object], target: Target, deadline: float) -> Answer:
    """One call, one transaction, and the hooks that it owes."""
    try:
        made = _call(call, target, deadline)
        with _turn.of_call(deadline):
            answer: Answer = _direct().answer(made, os.environ.get("HOME"), wait=lock.poll)
    except IcError as exc:
        return Answer(error=exc)
    return answer


def _call(call: Reply[object], target: Target, deadline: float) -> Call:
    """The same call that the daemon makes of a request."""
    method = call.spec.method
    try:
        params = call.spec.read_params(call.params(deadline - time.monotonic()))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise InvalidParams(f"{method.name}: {exc}") from exc
    if method.check is not None:
        method.check(params)
    where = Where(target.cwd, target.db)
    if method.run is not None:
        _refuse_others(where)
    return Call(method, params, where, Writer(os.getpid(), target.session), deadline)


def _refuse_others(where: Where) -> None:
    """Root's `icctl` becomes the owner of a project for good, which a library must not do."""
    if os.geteuid() == 0:
        directory = permissions.directory_of(where)
        uid = permissions.controller(directory)
        if uid != 0:
            raise OtherOwner(f"{directory} belongs to user {uid}")
