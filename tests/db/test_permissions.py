"""Why SQLite may not use a database, for people.  What root ignores is in tests/test_faults_told.py."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from icd.db import permissions
from icd.db.connection import connect, connect_to_read
from icd.errors import BadPath
from tests.support.breakages import ORDINARY


def as_the_owner(code: str, *argv: str) -> str:
    """What a program prints that is no root, in this checkout."""
    done = subprocess.run(
        [
            *ORDINARY,
            sys.executable,
            "-c",
            f"import sys\nfrom icd.db import permissions\n{code}",
            *argv,
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture
def path(database) -> str:
    return database.path


def test_nothing_stands_in_the_way_of_a_healthy_database(path):
    assert permissions.obstacle(path) is None


@pytest.mark.parametrize(
    ("end", "mode", "what"),
    [
        ("", 0o400, "may not be written"),
        ("-wal", 0o000, "may not be read"),
        ("-shm", 0o400, "may not be written"),
        (".lock", 0o000, "may not be read"),
    ],
)
def test_the_file_that_stands_in_the_way_is_named(path, end, mode, what):
    file = path + end
    os.chmod(file, mode)

    told = as_the_owner(
        "found = permissions.obstacle(sys.argv[1]); print(found.message, found.hint, sep='; ')",
        path,
    )

    assert told == f"{file} {what}; run: chmod u+rw {file}"


def test_a_directory_without_permission_is_named(path):
    directory = os.path.dirname(path)
    os.chmod(directory, 0o500)
    try:
        told = as_the_owner("print(permissions.obstacle(sys.argv[1]).hint)", path)
    finally:
        os.chmod(directory, 0o700)

    assert told == f"run: chmod u+rwx {directory}"


def test_where_the_mode_is_right_another_cause_is_looked_for(path):
    refused = permissions._refused(path, "may not be written", "u+rw")

    assert "read-only filesystem" in refused.hint


def test_somebody_else_s_file_is_theirs_to_give(path):
    file = "/proc/1/comm"  # root's
    if os.geteuid() == 0:
        file = path
        os.chown(file, 12345, 12345)

    refused = permissions._refused(file, "may not be read", "u+rw")

    assert "chown it to your user" in refused.hint


def test_other_errors_of_sqlite_have_no_such_cause(path):
    with closing(sqlite3.connect(path)) as conn, pytest.raises(sqlite3.Error) as caught:
        conn.execute("nonsense")

    assert permissions.cause(caught.value, path) is None


def test_what_cannot_be_opened_without_a_cause_stays_as_it_is(tmp_path):
    missing = str(tmp_path / "missing.db")
    with pytest.raises(sqlite3.OperationalError) as caught:
        sqlite3.connect(f"file:{missing}?mode=rw", uri=True).execute("PRAGMA user_version")

    assert permissions.cause(caught.value, missing) is None


def test_too_few_descriptors_are_told_as_such(path):
    code = """
import resource, sqlite3
resource.setrlimit(resource.RLIMIT_NOFILE, (5, 5))
try:
    sqlite3.connect("/proc/nowhere.db")
except sqlite3.Error as exc:
    print(permissions.cause(exc, sys.argv[1]).name)
"""

    assert as_the_owner(code, path) == "too_few_descriptors"


def test_a_read_only_file_is_refused_before_sqlite_leaves_traces(path):
    os.chmod(path, 0o400)

    told = as_the_owner(
        "from icd.errors import PermissionRefused\n"
        "try:\n    permissions.refuse_read_only(sys.argv[1])\n"
        "except PermissionRefused as exc:\n    print(exc.message)",
        path,
    )

    assert told == f"{path} may not be written"


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
@pytest.mark.parametrize("end", permissions.SQLITES_OWN)
@pytest.mark.parametrize("open_", [connect, connect_to_read])
def test_what_is_no_file_beside_a_database_is_refused_and_never_waited_for(
    tmp_path, open_, end, make
):
    """SQLite waited without end for a pipe in place of its journal."""
    path = str(tmp_path / "some.db")
    open(path, "w").close()
    make(path + end)

    with pytest.raises(BadPath, match=f"some.db{end} is not a regular file"):
        open_(path)
