"""Who may use the files of a database: whose the directory is, why SQLite may not, private files.

What judges a database asks the kernel by name, and opens nothing (see ADR 4).
"""

from __future__ import annotations

import errno
import os
import sqlite3
import stat

from icd import files
from icd.db import paths
from icd.db.paths import Where
from icd.errors import (
    BadPath,
    IcError,
    InputOutput,
    OtherOwner,
    PermissionRefused,
    TooFewDescriptors,
    UntrustedDatabase,
    from_os,
    from_sqlite,
)

# --- why SQLite may not use a database: it does not say which file --------------------------------

_JOURNAL = (
    "nothing was changed; move it away, then run 'icctl db check'; do not open the database "
    "with another program, which would apply it"
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
        return TooFewDescriptors(f"cannot open {path}: too few descriptors left")
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
        hint = f"replace the link with a copy: cp {file} {file}.copy && mv {file}.copy {file}"
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
            hint = "SQLite uses this name while the database is open: move the file away"
            raise BadPath(f"{file} is not a regular file", hint=hint)
        _refuse_second_name(file, path, found)
        if end == "-journal" and found.st_size:
            raise UntrustedDatabase(
                f"{file} is a journal, which intercore never creates", hint=_JOURNAL
            )


def obstacle(path: str) -> IcError | None:
    """The first of the database's files, or its directory, that we may not use; None: we may."""
    directory = os.path.dirname(path)
    if not _may(directory, os.X_OK):
        return _refused(directory, "cannot be entered", "u+rwx")
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
        hint = f"it belongs to user {found.st_uid}: chown it to your user"
    elif stat.S_IMODE(found.st_mode) & stat.S_IRWXU >= (0o700 if "x" in bits else 0o600):
        hint = "its mode is correct; check for a read-only filesystem or attribute (mount, lsattr)"
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


# --- who controls the directory -------------------------------------------------------------------
# A user who may rename what lies in a directory can put a link in the place of any file in it,
# between a look at a name and its use.  An ordinary user risks what is that user's own; root would
# lend all its rights.  So root's daemon does not open such a database, and root's client becomes
# the owner of the directory before it touches anything (icctl/root.py).

_SHARED = stat.S_IWGRP | stat.S_IWOTH
_ACL = "system.posix_acl_access"
# What the kernel shows for a user of whom our user namespace knows nothing.
OVERFLOW_UID = 65534


def refuse_others(directory: str) -> None:
    """Raise if root is about to work in a directory that another user controls."""
    if os.geteuid() != 0:
        return
    uid = controller(directory)
    if uid:
        raise OtherOwner(f"{directory} is controlled by user {uid}; root does not use it")


def controller(directory: str) -> int:
    """The user who can replace what lies in a directory, or the directory itself; 0: only root.

    The path is canonical.  What does not exist yet is judged by what it would be made in.
    OtherOwner is raised where root alone owns it, and more than one user may write to it.
    """
    for place in paths.upward(directory):
        try:
            found = os.lstat(place)
        except FileNotFoundError:
            continue
        if found.st_uid != 0 and not _is_beyond(found.st_uid):
            return found.st_uid
        # In a sticky directory no other user moves what is root's, but all make files.
        is_safe = found.st_mode & stat.S_ISVTX and place != directory
        if not stat.S_ISDIR(found.st_mode) or (_is_shared(place, found) and not is_safe):
            hint = f"run: chmod go-w {place}"
            raise OtherOwner(f"other users may write to {place}; root does not use it", hint=hint)
    return 0


def directory_of(where: Where) -> str:
    """The directory that a caller's words are about, be there a database or not."""
    for find in (paths.resolve, paths.target):
        try:
            return os.path.dirname(paths.canonical(find(where)))
        except IcError:  # it is told when the call itself looks for it
            continue
    return os.path.realpath(where.cwd or "/")


def _is_shared(place: str, found: os.stat_result) -> bool:
    if found.st_mode & stat.S_IWGRP and found.st_gid == 0 and not _has_list(place):
        return bool(found.st_mode & stat.S_IWOTH)  # the group root is root's own
    return bool(found.st_mode & _SHARED)


def _has_list(place: str) -> bool:
    """Whether an access control list may name others; the bits of the group are its mask then."""
    try:
        return bool(os.getxattr(place, _ACL, follow_symlinks=False))
    except OSError:
        return False


def _is_beyond(uid: int) -> bool:
    """Whether it is unknown here: in a user namespace, the machine's own root looks like that."""
    if uid != OVERFLOW_UID:
        return False
    try:
        with open("/proc/self/uid_map", encoding="ascii") as table:
            rows = [[int(word) for word in line.split()] for line in table]
    except (OSError, ValueError):
        return False
    return not any(first <= uid < first + count for first, _, count in rows)


# --- files beside a database, or that a person names ----------------------------------------------

# Files that SQLite, the lock, a backup, a restore or an adoption make beside a database.
_OWN_ENDINGS = (
    *("", "-wal", "-shm", "-journal", ".lock"),
    *(".unfinished", ".unfinished-journal", ".restore", ".restore-journal"),
    *(".adopt", ".adopt-journal"),
)
# What is wrong with the name, rather than with the disk.
_BAD_NAMES = {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP}


def create(file: str) -> int:
    """A descriptor of a new file, private from its first moment; links are not followed."""
    try:
        return files.create(file)
    except FileExistsError as exc:
        raise BadPath(
            f"{file} already exists", hint="choose a file that does not exist yet"
        ) from exc
    except OSError as exc:
        if exc.errno in _BAD_NAMES:
            hint = "choose a file in an existing directory"
            raise BadPath(f"cannot create {file}: {exc.strerror}", hint=hint) from exc
        known = from_os(exc, f"create {file}")
        if isinstance(known, PermissionRefused):
            known.hint = "choose a file in a directory that you can write to"
        raise known from exc


def free_name(stem: str, *endings: str) -> str:
    """The first of `stem`, `stem-1`, … that nothing has, nor with one of these endings.

    Only the holder of a database's lock takes a name beside it.
    """
    for name in (stem, *(f"{stem}-{number}" for number in range(1, 1000))):
        if not any(os.path.lexists(f"{name}{end}") for end in ("", *endings)):
            return name
    raise InputOutput(f"there are already a thousand files named {stem}")


def refuse_own_names(file: str, path: str) -> None:
    """SQLite and we remove such files, or take them for something else."""
    if paths.canonical(file) in {f"{path}{end}" for end in _OWN_ENDINGS}:
        hint = "choose another name, or another directory"
        raise BadPath(f"{file} is a reserved name of the database", hint=hint)


def check_absolute(file: str) -> None:
    """A relative name would be looked up in this process's directory."""
    if "\0" in file or not os.path.isabs(file):
        raise BadPath(f"the file must be an absolute path, not {file!r}")
