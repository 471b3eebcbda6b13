"""Root in another user's project becomes that user, for good, before it touches anything there.

HOME and the XDG directories are forgotten: root's settings are not the owner's, and no hook of
either runs.  What the other user trusts is that user's own, and waits for that user's next call.
"""

from __future__ import annotations

import os
import pwd

import icd
from icd.app.invocation import Ask, Errand
from icd.db import permissions
from icd.db.paths import Where, upward
from icd.errors import OtherOwner

_PROGRAM = (icd.__file__, os.__file__)
_ELSEWHERE = "install intercore where every user can read it, or run this as user {}"


def act_as_owner(planned: Ask | Errand) -> int | None:
    """The user that this process is from now on; None: it stays what it is."""
    where = _where(planned)
    if where is None:
        return None
    directory = permissions.directory_of(where)
    try:
        uid = permissions.controller(directory)
    except OtherOwner:
        if planned.context != "doctor":
            raise
        uid = 0  # it explains such a directory, and opens its files for reading only
    if uid == 0:
        return None
    try:
        _become(uid, *_groups(uid, directory))
    except OSError as exc:
        told = f"{directory} belongs to user {uid}, and this process may not act as that user"
        raise OtherOwner(f"{told}: {exc.strerror}") from exc
    for name in [name for name in os.environ if name == "HOME" or name.startswith("XDG_")]:
        del os.environ[name]
    return uid


def _where(planned: Ask | Errand) -> Where | None:
    if isinstance(planned, Errand):
        return planned.where
    return planned.call.where if planned.call.method.run is not None else None


def _become(uid: int, gid: int, groups: list[int]) -> None:
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.seteuid(uid)
    hidden = [file for file in _PROGRAM if not _is_readable(os.path.dirname(file))]
    if hidden:  # the next module could not be loaded
        os.seteuid(0)
        told = f"user {uid}, to whom the project belongs, may not read {os.path.dirname(hidden[0])}"
        raise OtherOwner(told, hint=_ELSEWHERE.format(uid))
    os.setresuid(uid, uid, uid)


def _is_readable(directory: str) -> bool:
    return os.access(directory, os.R_OK | os.X_OK, effective_ids=True)


def _groups(uid: int, directory: str) -> tuple[int, list[int]]:
    """The groups of the user; a number without a name has that of its directory, or its own."""
    try:
        found = pwd.getpwuid(uid)
    except KeyError:
        there = os.lstat(next(place for place in upward(directory) if os.path.lexists(place)))
        return (there.st_gid if there.st_uid == uid and there.st_gid else uid), []
    return found.pw_gid, os.getgrouplist(found.pw_name, found.pw_gid)
