"""Telling a disk that failed from a process that may not write files of that size.

SQLite says "disk full" or "disk I/O error" for both, and so does the kernel's EFBIG.
"""

import os
import resource

from icd.db.files import ownership
from icd.db.paths import FILE, Where
from icd.errors import DiskFull, IcError

# SQLite writes the log and its index in steps that are smaller than this.
STEP_BYTES = 256 * 1024


def blame(error: IcError, where: Where) -> IcError:
    """The limit instead of the disk, if a file of the database has reached it."""
    limit, _hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit == resource.RLIM_INFINITY or limit >= _largest(where) + STEP_BYTES:
        return error
    told = f"this process may not write a file beyond {limit} bytes"
    return DiskFull(
        told, hint="raise the limit with 'ulimit -f' and try again; nothing was changed"
    )


def _largest(where: Where) -> int:
    database = os.path.join(ownership.directory(where), FILE)
    sizes = [0]
    for name in (database, f"{database}-wal", f"{database}-shm"):
        try:
            sizes.append(os.lstat(name).st_size)
        except OSError:
            continue
    return max(sizes)
