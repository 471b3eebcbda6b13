"""Run in a process of its own, by its path: a host that keeps the time it is told.

    inside.py CLOCK core                  one connection that stays open, one call a transaction
    inside.py CLOCK direct                as a client without a daemon: open, lock, call, close
    inside.py CLOCK serve --socket PATH   a daemon

The first two answer lines of JSON-RPC on stdin with lines on stdout.  CLOCK is a file that holds
the time on the wall in milliseconds; it stands still until somebody writes another one.  What
`icd` is imported is up to PYTHONPATH, so that code broken on purpose can be tried.
"""

import contextlib
import mmap
import os
import struct
import sys
import time
from collections.abc import Callable

WALL = struct.Struct("=q")
HOME = os.environ.get("HOME")


def keep_time(path: str) -> None:
    """The machine's clock on the wall, for this process; what measures durations goes on."""
    with open(path, "rb") as file:
        shown = mmap.mmap(file.fileno(), WALL.size, prot=mmap.PROT_READ)

    def now_ns() -> int:
        return int(WALL.unpack_from(shown)[0]) * 1_000_000

    time.time_ns = now_ns
    time.time = lambda: now_ns() / 1e9


def answer(lines: object, run: "Callable[..., object]") -> None:
    from icd.app.call import Call
    from icd.app.dispatch import failure
    from icd.db.paths import Where
    from icd.errors import IcError
    from icd.server.net import jsonrpc
    from icd.values.processes import Writer

    for line in lines:
        request = jsonrpc.decode(line)
        assert isinstance(request, jsonrpc.Request), line
        try:
            method, params = jsonrpc.parameters(request)
            if method.check is not None:
                method.check(params)
            deadline = time.monotonic() + params.deadline_ms / 1000
            writer = Writer(os.getpid(), params.session)
            where = Where(params.cwd or "", params.db)
            found = run(Call(method, params, where, writer, deadline))
            error, result = found.error, found.result
        except Exception as exc:  # noqa: BLE001 -- told like any other
            error = exc if isinstance(exc, IcError) else failure(exc)
        reply = jsonrpc.failure(1, error) if error is not None else jsonrpc.success(1, result)
        sys.stdout.buffer.write(reply + b"\n")
        sys.stdout.buffer.flush()


def core() -> "Callable[..., object]":
    from icd import config
    from icd.app.dispatch import Clock, run_batch
    from icd.app.write_cache import Recent
    from icd.db import paths
    from icd.db.database import Database

    opened: list[tuple[Database, Recent]] = []

    def run(call: object) -> object:
        find = paths.target if call.method.runs.creates else paths.resolve
        path = paths.canonical(find(call.where))
        if not opened or opened[0][0].path != path:
            for database, _ in opened:
                with contextlib.suppress(Exception), database.hold(time.monotonic() + 5):
                    database.close()
                database.lock.close()
            opened[:] = [(Database(path, config.DEFAULTS), Recent())]
        database, recent = opened[0]
        (found,) = run_batch(database, [call], clock=Clock(), recent=recent)
        return found

    return run


def direct() -> "Callable[..., object]":
    from icctl.direct import answer_here

    return lambda call: answer_here(call, HOME, {})


def main() -> None:
    clock, what = sys.argv[1:3]
    keep_time(clock)
    if what == "serve":
        from icd.__main__ import main as serve

        sys.argv = ["icd", *sys.argv[2:]]
        sys.exit(serve())
    answer(sys.stdin.buffer, {"core": core, "direct": direct}[what]())


if __name__ == "__main__":
    main()
