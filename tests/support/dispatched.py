"""Dispatches for tests: rows put there by hand, and processes that they may be about."""

import contextlib
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from icd.values import processes
from icd.values.processes import Process

COLUMNS = {
    "agent_type": "codex",
    "status": "running",
    "project_dir": "/p",
    "turns": 0,
    "commands": 0,
    "messages": 0,
    "input_tokens": 0,
    "output_tokens": 0,
    "created_at": 1_800_000_000,
    "created_ms": 1_800_000_000_000,
    "version": 1,
}


def plant(project: Path, dispatch_id: str, **columns: Any) -> str:
    """Insert a row as another program would; `runner` and `agent` are processes."""
    values = {"id": dispatch_id, **COLUMNS, **columns}
    for prefix, role in (("runner", "runner"), ("pid", "agent")):
        process: Process | None = values.pop(role, None)
        if process is not None:
            values["runner_pid" if prefix == "runner" else "pid"] = process.pid
            values[f"{prefix}_start"] = process.start
            values |= {"boot": process.boot, "pidns": process.pidns}
    names, marks = ", ".join(values), ", ".join("?" * len(values))
    with contextlib.closing(sqlite3.connect(project / ".clavain" / "intercore.db")) as conn, conn:
        statement = f"INSERT INTO dispatches ({names}) VALUES ({marks})"
        conn.execute(statement, list(values.values()))
    return dispatch_id


class Sleeper:
    """A process that sleeps until it is killed; then it is a zombie, for nobody asks how it was."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(["sleep", "600"])
        self.known = processes.identify(self._process.pid)

    def kill(self) -> None:
        self._process.kill()

    def reap(self) -> None:
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def sleepers(count: int) -> Iterator[list[Sleeper]]:
    found: list[Sleeper] = []
    try:
        found.extend(Sleeper() for _ in range(count))
        yield found
    finally:
        for each in found:
            each.reap()
