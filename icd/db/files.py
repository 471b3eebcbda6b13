"""Files that a person names: created private, never over something that is there."""

import errno
import os

from icd.errors import BadPath, from_os

# What is wrong with the name, rather than with the disk.
_BAD_NAMES = {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP}


def create(file: str) -> int:
    """A descriptor of a new file, private from its first moment; links are not followed."""
    try:
        return os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except FileExistsError as exc:
        raise BadPath(f"{file} exists already", hint="name a file that does not exist yet") from exc
    except OSError as exc:
        if exc.errno in _BAD_NAMES:
            hint = "name a file in a directory that exists"
            raise BadPath(f"cannot create {file}: {exc.strerror}", hint=hint) from exc
        raise from_os(exc, f"create {file}") from exc


def check_absolute(file: str) -> None:
    """A relative name would be looked up in this process's directory."""
    if "\0" in file or not os.path.isabs(file):
        raise BadPath(f"the file must be an absolute path, not {file!r}")
