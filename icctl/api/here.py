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
from functools import cache
from types import ModuleType

import msgspec

from icctl.api.requests import Reply, Target
from icd.app.call import Answer, Call
from icd.db import lock, permissions
from icd.db.paths import Where
from icd.errors import IcError, InvalidParams, Locked, OtherOwner
from icd.values.processes import Writer

_turn = threading.Lock()


def _forget_turn() -> None:
    """A forked child has none of the threads that could give the lock back."""
    global _turn  # noqa: PLW0603
    _turn = threading.Lock()


os.register_at_fork(after_in_child=_forget_turn)


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
        else:
            # Through JSON, as from a daemon: what is left out there is left out here.
            call.settle(call.spec.read_result(msgspec.json.encode(answer.result)))


def ask(call: Reply[object], target: Target, deadline: float) -> Answer:
    """One call, one transaction, and the hooks that it owes."""
    try:
        made = _call(call, target, deadline)
        if not _turn.acquire(timeout=max(deadline - time.monotonic(), 0)):
            raise Locked("another thread of this process uses the database")
    except IcError as exc:
        return Answer(error=exc)
    try:
        answer: Answer = _direct().answer(made, os.environ.get("HOME"), wait=lock.poll)
    finally:
        _turn.release()
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
