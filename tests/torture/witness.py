"""Somebody who waits for no lock and sees what is committed, and nothing else."""

import contextlib
import sqlite3
from pathlib import Path

from tests.torture.suite import Broken, Run


class Witness:
    """Opens the file of the database by itself: whatever anybody was shown must be in there."""

    def __init__(self, run: Run, database: Path) -> None:
        self._run = run
        self._database = database
        self._head = 0  # the last event known to be committed; what is committed stays so

    def confirm(self, seq: int, reader: str) -> None:
        """Right after `reader` was shown the event."""
        if seq <= self._head:
            return
        head = self._look()
        if head is None:
            return
        self._run.figures["looks at what is committed"] += 1
        if head < seq:
            raise Broken(f"{reader} was shown event {seq}, and the last committed is {head}")
        self._head = max(self._head, head)

    def _look(self) -> int | None:
        """None if it cannot be told: whoever had it open has left meanwhile, its log with it."""
        if not self._database.with_name("intercore.db-shm").exists():
            return None
        name = f"file:{self._database}?mode=ro"
        try:
            with contextlib.closing(sqlite3.connect(name, uri=True)) as conn:
                (head,) = conn.execute("SELECT max(seq) FROM events").fetchone()
        except sqlite3.OperationalError:
            return None
        return int(head or 0)
