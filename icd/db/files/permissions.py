"""Why SQLite may not use a database: it says that it cannot, and a person wants to know which file.

Everything here asks the kernel by name, and opens nothing (see docs/adr/0004).
"""

import os
import sqlite3
import stat

from icd.errors import (
    BadPath,
    IcError,
    PermissionRefused,
    TooFewDescriptors,
    UntrustedDatabase,
    from_sqlite,
)

_JOURNAL = (
    "nothing was changed; move it away, and then run 'icctl db check': do not open the database "
    "with another program, which would play it back"
)
COMPANIONS = ("-wal", "-shm", ".lock")
SQLITES_OWN = ("-journal", "-wal", "-shm")
# The lock, the database, its log and the index of that.
DESCRIPTORS_NEEDED = 4


def cause(exc: sqlite3.Error, path: str) -> IcError | None:
    """What keeps SQLite from using the database, if it says so and the cause can be found."""
    if not isinstance(from_sqlite(exc), PermissionRefused):
        return None
    found = obstacle(path)
    if found is None and _free_descriptors() < DESCRIPTORS_NEEDED:
        return TooFewDescriptors(f"cannot open {path}: too few descriptors are left")
    return found


def refuse_read_only(path: str) -> None:
    """SQLite would read such a file, and leave read-only companions behind.

    Those would keep all programs out when the file itself may be written again.
    """
    found = None if _may(path, os.W_OK) else obstacle(path)
    if found is not None:
        raise found


def refuse_second_name(path: str) -> None:
    """SQLite keeps a log for each name of a file: used by two, the file is damaged.

    A restore or an adoption that was killed leaves a second name of its own.
    """
    _refuse_second_name(path, path, os.lstat(path))


def _refuse_second_name(file: str, path: str, found: os.stat_result) -> None:
    if found.st_nlink > 1 and found.st_nlink > 1 + len(_kept_names(path, found)):
        hint = f"make it a file of its own: cp {file} {file}.copy && mv {file}.copy {file}"
        raise BadPath(f"{file} has another name elsewhere, a hard link", hint=hint)


def _kept_names(path: str, found: os.stat_result) -> list[str]:
    """The names that a restore or an adoption gives to what was there."""
    directory, name = os.path.split(path)
    kept = (f"{name}.damaged-", f"{name}.original-")
    there = [each.path for each in os.scandir(directory) if each.name.startswith(kept)]
    return [each for each in there if os.path.samestat(os.lstat(each), found)]


def refuse_companions(path: str) -> None:
    """Look at what stands beside a database before SQLite does.

    SQLite would wait for the other end of a pipe.  It would also play a journal back, which can
    name any file of the user's for SQLite to delete; our databases use a log, and leave none.
    """
    for end in SQLITES_OWN:
        file = path + end
        try:
            found = os.lstat(file)
        except OSError:
            continue  # mostly it is not there; else SQLite says why
        if not stat.S_ISREG(found.st_mode):
            hint = "SQLite keeps a file there while the database is in use: move this one away"
            raise BadPath(f"{file} is not a regular file", hint=hint)
        _refuse_second_name(file, path, found)
        if end == "-journal" and found.st_size:
            raise UntrustedDatabase(
                f"{file} is a journal, which intercore never leaves", hint=_JOURNAL
            )


def obstacle(path: str) -> IcError | None:
    """The first of the database's files, or its directory, that we may not use; None: we may."""
    directory = os.path.dirname(path)
    if not _may(directory, os.X_OK):
        return _refused(directory, "may not be entered", "u+rwx")
    for file in (path, *(path + end for end in COMPANIONS)):
        if not os.path.exists(file):
            continue
        if not _may(file, os.R_OK):
            return _refused(file, "may not be read", "u+rw")
        if not _may(file, os.W_OK):
            return _refused(file, "may not be written", "u+rw")
    if not _may(directory, os.W_OK):  # SQLite makes and removes files in it
        return _refused(directory, "may not be written", "u+rwx")
    return None


def _may(file: str, mode: int) -> bool:
    return os.access(file, mode, effective_ids=True)


def _refused(file: str, what: str, bits: str) -> IcError:
    found = os.stat(file)
    if found.st_uid != os.geteuid():
        hint = f"it belongs to user {found.st_uid}: have it given to you, with chown"
    elif stat.S_IMODE(found.st_mode) & stat.S_IRWXU >= (0o700 if "x" in bits else 0o600):
        hint = "its mode is right: look for a read-only filesystem or attribute (mount, lsattr)"
    else:
        hint = f"run: chmod {bits} {file}"
    return PermissionRefused(f"{file} {what}", hint=hint)


def _free_descriptors() -> int:
    import resource  # only a failure pays for it

    limit, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        return limit - len(os.listdir("/proc/self/fd"))
    except OSError:  # not even one to look with, or no /proc
        return 0 if os.path.exists("/proc/self/fd") else limit
