"""Databases of earlier schemas, whose migration is killed: they must be the old one or the new one.

What the new one is like was found out by migrating a copy that nobody killed.
"""

import random
import shutil
import sqlite3
import threading
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from icd.db import migrate
from icd.db.connection import connect
from tests.data import original
from tests.torture.suite import Broken

# The original's, ours of long ago, and one that is only just being made.
SCHEMAS = (*range(1, 10), *range(1001, migrate.LATEST), 0)

Content = tuple[int, list[tuple[object, ...]]]


@dataclass(frozen=True)
class Template:
    file: Path | None
    before: Content
    after: Content


def template(directory: Path, schema: int) -> Template:
    directory.mkdir()
    file, migrated = directory / "old.db", directory / "new.db"
    if schema:
        original.write(str(file), min(schema, 9))
    if schema > 9:
        original.take_over_long_ago(str(file), schema)
    file.touch()
    shutil.copy(file, migrated)
    with closing(connect(str(migrated))) as conn:
        conn.execute("PRAGMA journal_mode = WAL")
        migrate.migrate(conn, str(migrated), keep=1, now_ms=time.time_ns() // 1_000_000)
    return Template(file if schema else None, content(file), content(migrated))


def content(file: Path) -> Content:
    """The schema's number, and its tables with the rows that stay as they are."""
    with closing(sqlite3.connect(file)) as conn:
        conn.execute("PRAGMA synchronous = OFF")  # a copy that is thrown away, or only read
        (verdict,) = conn.execute("PRAGMA integrity_check(1)").fetchone()
        if verdict != "ok":
            raise Broken(f"{file} is damaged: {verdict}")
        rows = conn.execute("SELECT type, name FROM sqlite_schema").fetchall()
        if ("table", "state") in rows:
            rows += conn.execute(
                "SELECT key, scope_id, payload FROM state WHERE expires_at IS NULL"
            )
            rows += conn.execute("SELECT name, scope_id FROM sentinels")
        return migrate.version(conn), sorted(rows, key=repr)


class Upgrade:
    """A project with an old database, until a daemon has lived long enough to migrate it."""

    def __init__(self, directory: Path, found: Template) -> None:
        self.directory = directory
        self._template = found
        self.database = directory / ".clavain" / "intercore.db"
        (directory / ".git").mkdir(parents=True)
        if found.file is not None:
            self.database.parent.mkdir(mode=0o700)
            shutil.copy(found.file, self.database)

    def check(self, copy: Path) -> bool:
        """Whether it is the new one; else it must be the old one."""
        self._check_backups()
        if not copy.exists():
            return False
        found = content(copy)
        if found not in (self._template.before, self._template.after):
            extra = [row for row in found[1] if row not in self._template.before[1]][:10]
            raise Broken(f"half migrated: {self.database} is at v{found[0]} and has {extra}")
        return found == self._template.after

    def _check_backups(self) -> None:
        """Each that has a backup's name is the whole old database."""
        for backup in self.database.parent.glob("intercore.db.backup-*"):
            if content(backup) != self._template.before:
                raise Broken(f"the backup {backup} is not what was there before")


class Templates:
    """Each is made when it is first wanted."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._made: dict[int, Template] = {}
        self._lock = threading.Lock()  # workers want the same one at once

    def choose(self, rng: random.Random) -> Template:
        schema = rng.choice(SCHEMAS)
        with self._lock:
            if schema not in self._made:
                self._made[schema] = template(self._directory / str(schema), schema)
            return self._made[schema]
