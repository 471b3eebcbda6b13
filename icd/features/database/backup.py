"""backup, restore: copies of the database, and the way back."""

import os
from typing import Annotated

from msgspec import Struct

from icd.app import render
from icd.app.call import Params, Whole
from icd.app.invocation import Ask, Caller, Local, Output, World
from icd.app.verb import Argument, Command, Method, Runs
from icd.db import backup, migrate, permissions
from icd.values.wire import Result


def _check_name(file: str) -> None:
    backup.refuse_name(file)  # before a directory is made for the database


File = Annotated[str, Argument("FILE", "Path of the backup."), permissions.check_absolute]


class Create(Params):
    """Create a backup beside the database, and remove the oldest such backups."""


class Write(Params):
    """Create a backup in a file that does not exist yet."""

    file: File


class BackupForm(Struct):
    """Copy the database while it is in use, verify the copy, and print its path.

    Without FILE the backup lies beside the database, named after it and the time, and the oldest
    such backups are removed; the setting backups_kept says how many are kept.
    FILE must not exist yet, and is never removed.
    """

    file: File | None = None


class Restore(Params):
    """Replace the database with a copy of a backup; the old database is kept beside it.

    A backup that is damaged, foreign or of a newer intercore is refused, and nothing changes.
    The daemon may run: its next call uses the restored database.
    """

    file: Annotated[File, _check_name]


class Made(Result):
    """`path`: the database; `file`: its backup."""

    path: str
    file: str
    bytes: int


class Restored(Result):
    """`kept`: where the database lies that was there before, if there was one."""

    path: str
    schema: int
    kept: str | None


def create(whole: Whole, _p: Create) -> Made:
    database = whole.database
    file = backup.beside(
        database.connection(),
        database.path,
        keep=database.settings.backups_kept,
        now_ms=whole.now_ms,
        deadline=whole.deadline,
        tell=whole.progress,
    )
    return Made(database.path, file, os.path.getsize(file))


def write(whole: Whole, p: Write) -> Made:
    database = whole.database
    permissions.refuse_own_names(p.file, database.path)
    file = backup.to(database.connection(), p.file, deadline=whole.deadline, tell=whole.progress)
    return Made(database.path, file, os.path.getsize(file))


def restore(whole: Whole, p: Restore) -> Restored:
    database = whole.database
    kept = backup.restore(
        database, p.file, now_ms=whole.now_ms, deadline=whole.deadline, tell=whole.progress
    )
    return Restored(database.path, migrate.version(database.connection()), kept)


def ask_backup(world: World, f: BackupForm) -> Ask | Local:
    def show(made: Made) -> Output:
        if world.json:
            return render.to_json(made)
        return render.text(render.relative(made.file, world.cwd))

    if f.file is None:
        return Ask("backup.create", Create(), show)
    target = world.path(f.file)
    return Local(lambda ask: show(ask("backup.write", Write(file=target))))


def ask_restore(world: World, p: Restore) -> Local:
    source = world.path(p.file)

    def run(ask: Caller) -> Output:
        found: Restored = ask("backup.restore", Restore(file=source))
        if world.json:
            return render.to_json(found)
        path, kept = (render.relative(name or "", world.cwd) for name in (found.path, found.kept))
        lines = [f"restored {path} (schema v{found.schema})"]
        return render.text(*lines, *([f"kept {kept}"] if kept else []))

    return Local(run)


VERBS = [
    Method("backup.create", Create, Made, create, runs=Runs(whole=True, long="backing up")),
    Method(
        "backup.write", Write, Made, write, runs=Runs(whole=True, local=True, long="backing up")
    ),
    Method(
        "backup.restore",
        Restore,
        Restored,
        restore,
        runs=Runs(whole=True, local=True, creates=True, long="restoring"),
    ),
    Command(
        "backup",
        BackupForm,
        ask_backup,
        summary="Back up the database and verify the copy.",
        examples=["icctl backup", "icctl backup ~/intercore-before-the-move.db --timeout=1m"],
    ),
    Command(
        "restore",
        Restore,
        ask_restore,
        summary="Restore a backup.",
        examples=["icctl restore .clavain/intercore.db.backup-20260131-120000"],
    ),
]
