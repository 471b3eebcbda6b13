"""The error tree: every fact has its own code and name, and a caller can act on it."""

import errno
import sqlite3

import pytest

from icd import errors
from icd.errors import DiskFull, IcError, InputOutput, Locked, PermissionRefused, TooFewDescriptors


def test_every_error_has_a_code_and_a_name_of_its_own():
    kinds = errors.TABLE

    assert len({kind.code for kind in kinds}) == len(kinds)
    assert len({kind.name for kind in kinds}) == len(kinds)


def test_an_error_fits_the_specification_and_the_exit_codes():
    for kind in errors.TABLE:
        assert -32768 <= kind.code <= -32000, kind
        assert kind.exit in (1, 2, 3) or kind.name == "already_running", kind
        assert kind.name == kind.name.lower(), kind


def test_every_error_is_a_row_of_the_table():
    named = {kind for kind in vars(errors).values() if isinstance(kind, type)}

    assert named & set(errors.TABLE) == set(errors.TABLE)
    assert {kind for kind in named if issubclass(kind, IcError)} == {IcError, *errors.TABLE}


def test_an_error_tells_the_wire_what_to_do():
    error = Locked("the database is locked")

    assert error.data == {
        "name": "locked",
        "exit": 2,
        "hint": "retry, or raise --timeout",
        "retryable": True,
    }


def test_a_hint_can_be_given_where_it_is_known_better():
    error = IcError("no", hint="do this")

    assert (error.hint, IcError("no").hint) == ("do this", "")


@pytest.mark.parametrize(
    "number, kind",
    [
        (errno.EACCES, PermissionRefused),
        (errno.EROFS, PermissionRefused),
        (errno.EPERM, PermissionRefused),
        (errno.ENOSPC, DiskFull),
        (errno.EDQUOT, DiskFull),
        (errno.EMFILE, TooFewDescriptors),
        (errno.ENFILE, TooFewDescriptors),
        (errno.EIO, InputOutput),
    ],
)
def test_errors_of_the_operating_system_get_a_name(number, kind):
    error = errors.from_os(OSError(number, "the reason"), "open x")

    assert type(error) is kind
    assert error.message == "cannot open x: the reason"


def test_an_error_of_the_operating_system_without_a_reason_is_told_anyway():
    assert errors.from_os(OSError("strange"), "open x").message == "cannot open x: strange"


def test_a_busy_database_is_locked(tmp_path):
    one = sqlite3.connect(tmp_path / "x.db", isolation_level=None, timeout=0)
    two = sqlite3.connect(tmp_path / "x.db", isolation_level=None, timeout=0)
    one.execute("BEGIN EXCLUSIVE")

    with pytest.raises(sqlite3.OperationalError) as busy:
        two.execute("SELECT * FROM sqlite_schema")

    assert isinstance(errors.from_sqlite(busy.value), Locked)
    one.close()
    two.close()


def test_what_sqlite_says_about_our_own_mistakes_gets_no_name():
    conn = sqlite3.connect(":memory:")

    with pytest.raises(sqlite3.OperationalError) as bug:
        conn.execute("SELECT nonsense")

    assert errors.from_sqlite(bug.value) is None
    assert errors.from_sqlite(sqlite3.Error("without a code")) is None
    conn.close()
