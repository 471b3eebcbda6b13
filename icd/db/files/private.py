"""Files beside a database, or that a person names: private, and never over what is there."""

import errno
import os

from icd import files
from icd.db import paths
from icd.errors import BadPath, InputOutput, PermissionRefused, from_os

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
        raise BadPath(f"{file} exists already", hint="name a file that does not exist yet") from exc
    except OSError as exc:
        if exc.errno in _BAD_NAMES:
            hint = "name a file in a directory that exists"
            raise BadPath(f"cannot create {file}: {exc.strerror}", hint=hint) from exc
        known = from_os(exc, f"create {file}")
        if isinstance(known, PermissionRefused):
            known.hint = "name a file in a directory that you may write to"
        raise known from exc


def free_name(stem: str, *endings: str) -> str:
    """The first of `stem`, `stem-1`, … that nothing has, nor with one of these endings.

    Only the holder of a database's lock takes a name beside it.
    """
    for name in (stem, *(f"{stem}-{number}" for number in range(1, 1000))):
        if not any(os.path.lexists(f"{name}{end}") for end in ("", *endings)):
            return name
    raise InputOutput(f"there are a thousand files named {stem}")


def refuse_own_names(file: str, path: str) -> None:
    """SQLite and we remove such files, or take them for something else."""
    if paths.canonical(file) in {f"{path}{end}" for end in _OWN_ENDINGS}:
        hint = "name a file that is not beside the database, or named otherwise"
        raise BadPath(f"{file} is a name that belongs to the database itself", hint=hint)


def check_absolute(file: str) -> None:
    """A relative name would be looked up in this process's directory."""
    if "\0" in file or not os.path.isabs(file):
        raise BadPath(f"the file must be an absolute path, not {file!r}")
