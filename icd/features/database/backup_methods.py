"""backup.*: copies of the database, and the way back."""

import os

from icd.app.call import Params, Whole
from icd.app.verb import Method, Runs
from icd.db import backup, migrate
from icd.db.files import private as files
from icd.db.restore import refuse_name
from icd.db.restore import restore as put_back
from icd.values.wire import Result


class Create(Params):
    pass


class Write(Params):
    file: str


class Restore(Params):
    file: str


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
    )
    return Made(database.path, file, os.path.getsize(file))


def write(whole: Whole, p: Write) -> Made:
    database = whole.database
    files.refuse_own_names(p.file, database.path)
    file = backup.to(database.connection(), p.file, deadline=whole.deadline)
    return Made(database.path, file, os.path.getsize(file))


def restore(whole: Whole, p: Restore) -> Restored:
    database = whole.database
    kept = put_back(database, p.file, now_ms=whole.now_ms, deadline=whole.deadline)
    schema = migrate.version(database.connection())
    return Restored(database.path, schema, kept)


def check_file(p: Write | Restore) -> None:
    files.check_absolute(p.file)
    if isinstance(p, Restore):
        refuse_name(p.file)  # before a directory is made for the database


METHODS = [
    Method("backup.create", Create, Made, create, runs=Runs(whole=True)),
    Method("backup.write", Write, Made, write, check=check_file, runs=Runs(whole=True, local=True)),
    Method(
        "backup.restore",
        Restore,
        Restored,
        restore,
        check=check_file,
        runs=Runs(whole=True, local=True, creates=True),
    ),
]
