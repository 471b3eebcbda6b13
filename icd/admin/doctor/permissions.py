"""Whose the files are, and who else may touch them."""

import glob
import os
import pwd
import stat
from collections.abc import Iterator

from icd.admin.doctor.context import Scene
from icd.admin.doctor.findings import FIX, Finding, Repair, error, note, ok, warning
from icd.db import paths

PRIVATE_DIRECTORY, PRIVATE_FILE = 0o700, 0o600
_OTHERS, _OTHERS_WRITE = 0o077, 0o022


def permissions(scene: Scene, path: str) -> Iterator[Finding]:
    """The directory, the database and everything that is named after it."""
    owner = _owner(scene, path)
    directory = os.path.dirname(path)
    # A database elsewhere in a project lies in a directory that is not ours to judge.
    ours = [directory] if os.path.basename(directory) == paths.DIRECTORY else []
    found = [*ours, *sorted(glob.glob(f"{glob.escape(path)}*"))]
    bad = False
    for name in found:
        for finding in _judge(name, owner):
            bad = True
            yield finding
    if not bad:
        yield ok("permissions", "the directory and its files are private, and of the right owner")


def _owner(scene: Scene, path: str) -> int:
    """Root may work on anybody's database, whose files then stay that person's."""
    return scene.uid or os.lstat(path).st_uid


def _judge(name: str, owner: int) -> Iterator[Finding]:
    try:
        found = os.lstat(name)
    except FileNotFoundError:  # a log comes and goes
        return
    if stat.S_ISLNK(found.st_mode):
        yield error("symlinks", f"{name} is a symlink (refusing to use it)", f"remove {name}")
    elif found.st_uid != owner:
        yield error(
            "permissions",
            f"{name} belongs to {user(found.st_uid)}, not {user(owner)}",
            f"run 'chown {owner} {name}' as root",
        )
    else:
        yield from _judge_mode(name, found)


def _judge_mode(name: str, found: os.stat_result) -> Iterator[Finding]:
    mode = stat.S_IMODE(found.st_mode)
    wanted = PRIVATE_DIRECTORY if stat.S_ISDIR(found.st_mode) else PRIVATE_FILE
    repair = Repair("chmod", name, wanted)
    shown = f"(mode {mode:04o} instead of {wanted:04o})"
    if mode & wanted != wanted:
        told = f"its owner may not read and write {name} {shown}"
        yield error("permissions", told, FIX, repair)
    elif mode & _OTHERS_WRITE:
        yield warning("permissions", f"other users may change {name} {shown}", FIX, repair)
    elif mode & _OTHERS and stat.S_ISDIR(found.st_mode):
        # The files in it are private: only their names can be seen.
        yield note("permissions", f"other users may look into {name} {shown}", FIX, repair)
    elif mode & _OTHERS:
        yield warning("permissions", f"other users may read {name} {shown}", FIX, repair)
    elif not os.access(name, os.R_OK | os.W_OK, effective_ids=True):
        yield error(
            "permissions",
            f"{name} may not be written, though its mode allows it",
            "look at its attributes ('lsattr') and at its file system ('findmnt')",
        )


def user(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"
