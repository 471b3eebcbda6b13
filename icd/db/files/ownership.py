"""Who controls the directory of a database, so that root does nothing by name where others do.

A user who may rename what lies in a directory can put a link in the place of any file in it,
between a look at a name and its use.  An ordinary user risks what is that user's own; root would
lend all its rights.  So root's daemon does not open such a database, and root's client becomes
the owner of the directory before it touches anything (icctl/root.py).
"""

import os
import stat

from icd.db import paths
from icd.db.paths import Where
from icd.errors import IcError, OtherOwner

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
        raise OtherOwner(
            f"{directory} is under the control of user {uid}, and root stays out of it"
        )


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
            raise OtherOwner(
                f"other users may write to {place}, and root stays out of it", hint=hint
            )
    return 0


def directory(where: Where) -> str:
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
