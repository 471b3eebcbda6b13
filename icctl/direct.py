"""The other host: run a command in this process, on the same file, under the same lock.

Entered when no daemon is there.  Everything but the transport is the daemon's own code.
"""

import os
import time
import traceback
from collections.abc import Callable

from icd import config
from icd.cli.invocation import Invocation, Need, Output
from icd.cli.main import finish, plan
from icd.db import paths
from icd.db.database import Database
from icd.errors import IcError, Internal, NoDaemon
from icd.rpc.dispatch import failure, run_batch
from icd.rpc.method import Answer, Call, Clock

ReadAll = Callable[[int, int], bytes]
ReadFile = Callable[[bytes, int], bytes | int]
Write = Callable[[int, bytes], bool]

LOG = ".local/state/intercore/icctl.log"


def run_here(
    argv: list[str],
    program: str,
    request_id: str,
    inputs: list[tuple[bytes, bytes, bytes | int]],
    read_all: ReadAll,
    read_file: ReadFile,
    write: Write,
    limit: float,
) -> int:
    """Run a command line and print what it says; the exit status is returned."""
    invocation = Invocation(
        argv=argv,
        cwd=os.getcwd(),
        deadline=time.monotonic() + limit,
        program=program,
        env={name: value for name, value in os.environ.items() if value},
        pid=os.getppid(),
        request_id=request_id,
    )
    for kind, path, content in inputs:
        _attach(invocation, kind == b"s", os.fsdecode(path), content)
    output = execute(invocation, read_all, read_file, limit)
    written = write(1, output.stdout)
    write(2, output.stderr)
    if not written:
        write(2, f"{program}: cannot write to stdout; check where it is redirected to\n".encode())
        return 2
    return output.exit


def execute(
    invocation: Invocation, read_all: ReadAll, read_file: ReadFile, limit: float
) -> Output:
    while True:
        planned = plan(invocation)
        if isinstance(planned, Output):
            return planned
        if not isinstance(planned, Need):
            answer = answer_here(planned.call, invocation.env.get("HOME"))
            return finish(planned, answer)
        if planned.what == "stdin":
            _attach(invocation, True, "", read_all(0, planned.limit))
        else:
            content = read_file(os.fsencode(planned.path), planned.limit)
            _attach(invocation, False, planned.path, content)
        invocation.deadline = time.monotonic() + limit


def answer_here(call: Call, home: str | None) -> Answer:
    """One call, one transaction, and out again."""
    if call.method.run is None:
        return Answer(error=NoDaemon("no daemon is running"))
    try:
        find = paths.target if call.method.creates else paths.resolve
        path = paths.canonical(find(call.where))
        settings = config.load(config.user_file(home), config.project_file(path))
        database = Database(path, settings)
        (answer,) = run_batch(database, [call], clock=Clock())
        with database.hold(time.monotonic() + 1):
            database.close()
    except Exception as exc:  # noqa: BLE001 -- a hook author never sees a traceback
        answer = Answer(error=failure(exc))
    assert answer is not None
    if isinstance(answer.error, Internal):
        _record(answer.error, home)
    return answer


def _attach(invocation: Invocation, is_stdin: bool, path: str, content: bytes | int) -> None:
    if is_stdin:
        invocation.stdin = content if isinstance(content, bytes) else b""
    else:
        readable = isinstance(content, bytes)
        invocation.files[path] = content if readable else os.strerror(int(content))


def _record(error: IcError, home: str | None) -> None:
    """Keep the traceback where the error's reference can be looked up."""
    path = os.path.join(home or "/tmp", LOG)
    error.hint = f"this is a bug in intercore; please report it with the entry in {path}"
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(path, "a", encoding="utf-8", opener=_private) as log:
            log.write(f"--- {error.message}\n")
            traceback.print_exception(error.__cause__, file=log)
    except OSError:
        error.hint = "this is a bug in intercore, and its log could not be written"


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
