"""Whose the files are, and who else may touch them."""

import glob
import os
import pwd
import stat
from collections.abc import Callable, Iterator

from icd.admin.doctor.context import FIX, Finding, Repair, Scene, error, note, warning
from icd.db import paths

PRIVATE_DIRECTORY, PRIVATE_FILE = 0o700, 0o600
_OTHERS, _OTHERS_WRITE = 0o077, 0o022


def permissions(scene: Scene, path: str) -> Iterator[Finding]:
    """The directory, the database and everything that is named after it."""
    # Root may work on the database of any user, whose files then stay that user's.
    owner = scene.uid or os.lstat(path).st_uid
    directory = os.path.dirname(path)
    # A database elsewhere in a project lies in a directory that is not ours to judge.
    ours = [directory] if os.path.basename(directory) == paths.DIRECTORY else []
    for name in [*ours, *sorted(glob.glob(f"{glob.escape(path)}*"))]:
        try:
            found = os.lstat(name)
        except FileNotFoundError:  # a log comes and goes
            continue
        yield from _judge(name, found, owner)


def _judge(name: str, found: os.stat_result, owner: int) -> Iterator[Finding]:
    mode = stat.S_IMODE(found.st_mode)
    is_directory = stat.S_ISDIR(found.st_mode)
    wanted = PRIVATE_DIRECTORY if is_directory else PRIVATE_FILE
    if stat.S_ISLNK(found.st_mode):
        yield error("symlinks", f"{name} is a symlink (refusing to use it)", f"remove {name}")
    elif found.st_uid != owner:
        told = f"{name} belongs to {user(found.st_uid)}, not {user(owner)}"
        yield error("permissions", told, f"run 'chown {owner} {name}' as root")
    elif mode & wanted != wanted:
        yield _mode(error, "its owner may not read and write", name, mode, wanted)
    elif mode & _OTHERS_WRITE:
        yield _mode(warning, "other users may change", name, mode, wanted)
    elif mode & _OTHERS and is_directory:  # the files in it are private: only names can be seen
        yield _mode(note, "other users may look into", name, mode, wanted)
    elif mode & _OTHERS:
        yield _mode(warning, "other users may read", name, mode, wanted)
    elif not os.access(name, os.R_OK | os.W_OK, effective_ids=True):
        hint = "look at its attributes ('lsattr') and at its file system ('findmnt')"
        told = f"{name} may not be written, though its mode allows it"
        yield error("permissions", told, hint)


def _mode(
    severity: Callable[..., Finding], what: str, name: str, mode: int, wanted: int
) -> Finding:
    told = f"{what} {name} (mode {mode:04o} instead of {wanted:04o})"
    return severity("permissions", told, FIX, Repair("chmod", name, wanted))


def user(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"
