"""The other host: run a command in this process, on the same file, under the same lock.

Entered when no daemon is there.  Everything but the transport is the daemon's own code.
"""

from __future__ import annotations

from icctl import imports  # isort: skip -- before what loads `typing`

import contextlib
import os
import time
from typing import TYPE_CHECKING

from icctl import client
from icd import __version__, config
from icd.app import registry
from icd.app.call import Answer, Call
from icd.app.dispatch import Clock, answered, run_batch
from icd.app.invocation import (
    LOOK_AGAIN_SECONDS,
    MOST_COLUMNS,
    Ask,
    Errand,
    Need,
    Output,
    Terminal,
    World,
    line,
    why_not,
)
from icd.app.planner import advance, plan, run_errand
from icd.db import lock, paths, permissions
from icd.db.database import Database
from icd.db.paths import Where
from icd.errors import DiskFull, IcError, InputOutput, Internal, NoDaemon, Overloaded
from icd.files import append_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from icd.admin.doctor.context import Sight

LOG = ".local/state/intercore/icctl.log"
# SQLite writes the log and its index in steps that are smaller than this.
STEP_BYTES = 256 * 1024
FAILURES = (2, 3)
# Databases in which events were recorded, with what holds there: their hooks are still to run.
Owed = dict[str, config.Settings]
MOVES = 3  # how often the database may move away while it is being opened


def run_here(request: client.Request, limit: float) -> int:
    """Run a command line and print what it says; the exit status is returned."""
    imports.collect_garbage()
    if os.isatty(2):
        from icctl import progress  # only a person pays for it

        status = progress.of_daemon(request, limit)
        if status is not None:
            return status
    owed: Owed = {}
    output = execute(request, limit, owed)
    if output.bug is not None:
        _record(output.bug, os.environ.get("HOME"))
    request.deliver(output.stdout, output.stderr)
    if output.more is not None:
        output.exit = _deliver_more(request, output.more, limit)
    if output.exit in FAILURES and not output.borrowed:
        from icctl.messages import context, count_failure

        # A mistake is counted by what was understood: the rest are the caller's own words.
        known = output.refused and output.refused.command
        count_failure(known or context(request.argv, registry.SINGLES))
    if owed:
        run_hooks_owed(owed, os.environ.get("HOME"))
    return output.exit


def _deliver_more(request: client.Request, pieces: Iterable[bytes], limit: float) -> int:
    """What comes bit by bit; a mistake in the midst of it is told like any other."""
    try:
        for piece in pieces:
            if not request.deliver(piece, b""):
                break
    except IcError as exc:
        request.deliver(b"", line(_invocation(request, limit), "", exc))
        return exc.exit
    return 0


def execute(request: client.Request, limit: float, owed: Owed) -> Output:
    acts_as: int | None = None
    while True:
        invocation = _invocation(request, limit)
        invocation.acts_as = acts_as
        planned = plan(invocation)
        if isinstance(planned, Output):
            return planned
        if isinstance(planned, Need):
            from icctl import replies  # only input pays for it

            need = planned.what.encode(), planned.limit, os.fsencode(planned.path)
            request.inputs.append(replies.read(*need, patience=limit))
            continue
        if os.geteuid() == 0:
            from icctl.root import act_as_owner  # only root pays for it

            try:
                acts_as = act_as_owner(planned)
            except IcError as exc:
                return Output(exc.exit, b"", line(planned, planned.context, exc))
            if acts_as is not None:
                continue  # as another user, in another home
        output = _carry_out(request, planned, invocation.env.get("HOME"), owed)
        if acts_as is not None and (output.exit in FAILURES or output.stderr):
            told = f"{request.program}: this ran as user {acts_as}, who owns the project\n"
            output.stderr += told.encode()
        if not output.then:
            return output
        if not request.deliver(output.stdout, output.stderr):
            return Output(0)
        request = type(request)(output.then, request.program, request.world, request.door)


def changes_nothing(request: client.Request) -> bool:
    """Whether the command only asks, so that its outcome cannot be unknown."""
    planned = plan(_invocation(request, 0.0))
    if isinstance(planned, Output):
        return True  # there is nothing to be carried out
    if not isinstance(planned, Ask) or planned.call.method.name == "icd.reload":
        return False
    return not (planned.call.method.writes or planned.call.method.runs.whole)


def _carry_out(
    request: client.Request, planned: Ask | Errand, home: str | None, owed: Owed
) -> Output:
    """Most commands are done after one answer; others print, and look again after a while."""
    answer = _answering(request, home, owed)
    if isinstance(planned, Errand):
        return run_errand(planned, answer)
    output, following = advance(planned, answer(planned.call))
    while following is not None:
        if not request.deliver(output.stdout, output.stderr):
            return Output(0)
        if _stdout_is_closed(_patience(following)):
            return Output(0)
        output, following = advance(following, answer(following.call))
    return output


def _answering(request: client.Request, home: str | None, owed: Owed) -> Callable[[Call], Answer]:
    """How the calls of a command are answered: for a person, with how far it is."""

    def answer(call: Call) -> Answer:
        return answer_here(call, home, owed)

    if not os.isatty(2):
        return answer
    from icctl import progress  # only a person pays for it

    return progress.shown(answer, request.argv)


def _patience(ask: Ask) -> float:
    """Until the next look: there is no daemon to tell us of changes."""
    found = LOOK_AGAIN_SECONDS if ask.patience is None else min(ask.patience, LOOK_AGAIN_SECONDS)
    return found if ask.ends_at is None else max(0.0, min(found, ask.ends_at - time.monotonic()))


def _stdout_is_closed(within: float) -> bool:
    """Wait for that, for a limited time: then what we would print has no reader."""
    import select  # only commands that go on pay for it

    poll = select.poll()
    poll.register(1, 0)
    return bool(poll.poll(within * 1000))


def answer(call: Call, home: str | None, *, wait: lock.Wait) -> Answer:
    """One call for a program that goes on, and the hooks of what it recorded."""
    owed: Owed = {}
    found = answer_here(call, home, owed, wait)
    run_hooks_owed(owed, home, wait)
    return found


def answer_here(call: Call, home: str | None, owed: Owed, wait: lock.Wait = lock.block) -> Answer:
    """One call, one transaction, and out again."""
    if call.method.run is None:
        return Answer(error=NoDaemon("no daemon is running"))
    answer = answered(lambda call: _run(call, home, owed, wait), call)
    if isinstance(answer.error, Internal):
        _record(answer.error, home)
    if isinstance(answer.error, DiskFull | InputOutput):
        answer.error = _size_limit(call.where) or answer.error
    return answer


def _size_limit(where: Where) -> IcError | None:
    """The limit on the size of files, if the database has reached it.

    SQLite says "disk full" or "disk I/O error" for that as well, and so does the kernel's EFBIG.
    """
    import resource  # only a failure pays for it

    limit, _hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    database = os.path.join(permissions.directory_of(where), paths.FILE)
    sizes = [0]
    for name in (database, f"{database}-wal", f"{database}-shm"):
        with contextlib.suppress(OSError):
            sizes.append(os.lstat(name).st_size)
    if limit == resource.RLIM_INFINITY or limit >= max(sizes) + STEP_BYTES:
        return None
    told = f"this process may not write files larger than {limit} bytes"
    hint = "raise the limit with 'ulimit -f' and retry; nothing was changed"
    return DiskFull(told, hint=hint)


def _run(call: Call, home: str | None, owed: Owed, wait: lock.Wait) -> Answer:
    for _ in range(MOVES):
        answer = _run_once(call, home, owed, wait)
        if not answer.moved:
            return answer
    return Answer(error=Overloaded("the database is replaced again and again"))


def _run_once(call: Call, home: str | None, owed: Owed, wait: lock.Wait) -> Answer:
    find = paths.target if call.method.runs.creates else paths.resolve
    path = paths.canonical(find(call.where))
    given = config.from_environment(os.environ)
    settings = config.load(config.user_file(home), config.project_file(path), given)
    database = Database(path, settings, wait=wait)
    if call.method.warm_up is not None:
        call.method.warm_up(call.params)
    try:
        (answer,) = run_batch(database, [call], clock=Clock(), close=True)
    finally:
        database.leave()  # a caller that follows the log comes here every second
    if (
        call.method.writes
        and call.method.writes.appends
        and answer is not None
        and answer.error is None
    ):
        owed[path] = settings
    return answer or Answer(moved=True)  # its directory vanished under an init: once more


def run_hooks_owed(owed: Owed, home: str | None, wait: lock.Wait = lock.block) -> None:
    """Run hooks where there are any, so that other calls do not pay for it."""
    for path, settings in owed.items():
        if home and os.path.isdir(os.path.join(os.path.dirname(path), "hooks")):
            from icctl.direct_hooks import run_hooks

            run_hooks(path, settings, home, lambda call: answer_here(call, home, {}, wait))


def _invocation(request: client.Request, limit: float) -> World:
    found = World(
        argv=request.argv,
        cwd=os.getcwd(),
        began=request.began,
        deadline=time.monotonic() + limit,
        program=request.program,
        door=request.door.decode().replace("-", " "),
        client_version=__version__,
        terminal=_terminal() if os.isatty(1) else None,
        host="direct",
        env=dict(os.environ),
        pid=os.getppid(),
        peer=os.getpid(),
        request_id=request.id,
        sight=_sight,
    )
    for kind, path, content in request.inputs:
        if kind == b"l":
            found.launched = os.fsdecode(path)
        elif kind == b"s":
            found.stdin = content if isinstance(content, bytes) else b""
        elif isinstance(content, bytes):
            found.files[os.fsdecode(path)] = content
        else:
            found.files[os.fsdecode(path)] = why_not(content)
    return found


def _terminal() -> Terminal:
    from icctl import terminal  # only a person pays for it

    width, offset, colour = terminal.facts()
    return Terminal(min(width or 80, MOST_COLUMNS), offset, colour)


def _sight() -> Sight:
    from icctl.probe import sight  # only the doctor pays for it

    return sight()


def _record(error: IcError, home: str | None) -> None:
    """Keep the traceback where the error's reference can be looked up."""
    import traceback  # only a bug pays for it

    if not home:
        error.hint = "this is a bug in intercore; set HOME to log its details"
        return
    told = "".join([f"--- {error.message}\n", *traceback.format_exception(error.__cause__)])
    path = os.path.join(home, LOG)
    error.hint = f"this is a bug in intercore; please report it with the entry in {path}"
    if not append_log(path, told.encode("utf-8", "backslashreplace")):
        error.hint = "this is a bug in intercore, and its log could not be written"
