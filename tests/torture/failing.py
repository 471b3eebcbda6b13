"""`icd`, or a direct call, that kills itself with SIGKILL at a failpoint.

`python -m tests.torture.failing serve --socket …` is `icd`, and `… direct state set …` is `icctl`.
$TORTURE_FAILPOINT is `name:pass:microseconds`: at which pass of the failpoint, and for those that
are inside a call of SQLite (`during_…`), how long after it began.

Nothing of this is in the code that people run: every failpoint is put around a seam from outside,
and a seam that is no longer there ends the daemon before it starts.
"""

import functools
import os
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

VARIABLE = "TORTURE_FAILPOINT"
COMMITS = ("before_commit", "during_commit", "after_commit")
CHECKPOINTS = ("before_checkpoint", "during_checkpoint", "after_checkpoint")
# Those whose pass is one of few; the others are reached at every call.
REEXEC = ("before_preflight", "before_exec", "after_exec")
NAMES = (*COMMITS, *CHECKPOINTS, *REEXEC, "before_reply", "migration", "backup", "mirror")
# Only of a direct call: no daemon does this.
ADOPTION = "during_adoption"

_CHECKPOINT = "PRAGMA wal_checkpoint"


class Fuse:
    """Burns down a little at each pass of the failpoint that was asked for."""

    def __init__(self, spec: str) -> None:
        name, left, delay_us = (spec or "none:0:0").split(":")
        assert not spec or name in (*NAMES, ADOPTION), f"no failpoint is called {name}"
        self.name = name
        self.left = int(left)
        self.delay_us = int(delay_us)

    def passes(self, name: str) -> bool:
        if name == self.name:
            self.left -= 1
        return name == self.name and self.left == 0

    def reached(self, name: str) -> None:
        if self.passes(name):
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, what: str, function: Callable[..., Any], *args: Any) -> Any:
        """Run it, with the failpoints before, during and after it."""
        self.reached(f"before_{what}")
        if self.passes(f"during_{what}"):
            threading.Thread(target=self._soon, daemon=True).start()
        result = function(*args)
        self.reached(f"after_{what}")
        return result

    def _soon(self) -> None:
        """SQLite works without Python's lock, so this thread gets to run meanwhile."""
        time.sleep(self.delay_us / 1_000_000)
        os.kill(os.getpid(), signal.SIGKILL)


fuse = Fuse(os.environ.get(VARIABLE, ""))
_migrating = threading.local()


class Connection(sqlite3.Connection):
    """SQLite's, with failpoints around what is written."""

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        if getattr(_migrating, "now", False):
            fuse.reached("migration")
        run = super().execute
        if sql == "COMMIT":
            return fuse.around("commit", run, sql)
        if sql.startswith(_CHECKPOINT):
            return fuse.around("checkpoint", lambda: _fetched(run(sql)))
        return run(sql, *args)

    def backup(self, target: sqlite3.Connection, *, progress: Any = None, **_: Any) -> None:
        """A page at a time, whatever was asked: each is a pass."""

        def look(*now: int) -> None:
            fuse.reached("backup")
            if progress is not None:
                progress(*now)

        super().backup(target, pages=1, progress=look)


@functools.cache
def _failing(factory: type[sqlite3.Connection]) -> type[sqlite3.Connection]:
    """The kind of connection that was asked for, with failpoints."""
    return type("Failing", (Connection, factory), {})


class _Row:
    """A cursor that was read already."""

    def __init__(self, row: Any) -> None:
        self._row = row

    def fetchone(self) -> Any:
        return self._row


def _fetched(cursor: sqlite3.Cursor) -> Any:
    """SQLite checkpoints when the first row is asked for, or before: then it is over."""
    return _Row(cursor.fetchone())


class _Os:
    """A module's `os` in which some functions are failpoints."""

    def __init__(self, **replaced: Callable[..., Any]) -> None:
        self.__dict__.update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


def _wrap(owner: Any, name: str, point: str) -> None:
    """Before each call of `owner.name`; both must be there."""
    function = getattr(owner, name)

    def wrapped(*args: Any, **options: Any) -> Any:
        fuse.reached(point)
        return function(*args, **options)

    setattr(owner, name, wrapped)


def _around(point: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A pass before it and one after it."""

    def wrapped(*args: Any, **options: Any) -> Any:
        fuse.reached(point)
        result = function(*args, **options)
        fuse.reached(point)
        return result

    return wrapped


def _fail_in_database() -> None:
    from icd.db import backup, connection, database, migrate
    from icd.db.original import adopt
    from icd.features.database import verbs

    connect = sqlite3.connect
    sqlite3.connect = lambda *args, **options: connect(
        *args, **options | {"factory": _failing(options.get("factory", sqlite3.Connection))}
    )
    assert connection.sqlite3 is sqlite3
    assert database.connect is connection.connect
    _require(database, 'execute("COMMIT")')
    _require(connection, '_finish(conn, "COMMIT")', "conn.execute(statement)")
    for step in ("_verify", "_name", "_rotate"):
        _wrap(backup, step, "backup")
    run = migrate.migrate

    def migrating(*args: Any, **options: Any) -> None:
        _migrating.now = True
        try:
            run(*args, **options)
            fuse.reached("migration")
        finally:
            _migrating.now = False

    assert database.migrate is migrate
    migrate.migrate = migrating  # type: ignore[assignment]
    take_over = adopt.adopt
    assert verbs.taking_over is adopt
    adopt.adopt = lambda *args, **options: fuse.around(  # type: ignore[assignment]
        "adoption", lambda: take_over(*args, **options)
    )


def _fail_in_server() -> None:
    from icd.db import connection
    from icd.server import reexec as handover
    from icd.server import reload
    from icd.server.net.session import Session
    from icd.server.workers import mirror_files

    _wrap(Session, "_reply", "before_reply")
    _require(connection, f'execute("{_CHECKPOINT}')
    _require(mirror_files, "os.utime(", "os.rename(")
    rename, utime = _around("mirror", os.rename), _around("mirror", os.utime)
    mirror_files.os = _Os(rename=rename, utime=utime)  # type: ignore[assignment]
    _wrap(reload, "_start", "before_preflight")
    _require(handover, "os.execve(")

    def execve(*args: Any) -> None:
        fuse.reached("before_exec")
        os.execve(*args)

    handover.os = _Os(execve=execve)  # type: ignore[assignment]
    command, take_over = handover.command, handover.take_over

    def ours() -> list[str]:
        """The next daemon has failpoints, too."""
        words = command()
        words[words.index("icd")] = "tests.torture.failing"
        return words

    def taken_over() -> Any:
        found = take_over()
        if found is not None:
            fuse.reached("after_exec")
        return found

    handover.command, handover.take_over = ours, taken_over


def _require(module: Any, *words: str) -> None:
    import inspect

    text = inspect.getsource(module)
    for word in words:
        assert word in text, f"{module.__name__} has no {word} any more: mend the failpoints"


def main() -> None:
    _fail_in_database()
    if sys.argv[1:2] == ["direct"]:
        from icctl.client import main as call

        sys.exit(call(sys.argv[2:], "icctl"))
    _fail_in_server()
    from icd.__main__ import main as serve

    serve()


if __name__ == "__main__":
    main()
