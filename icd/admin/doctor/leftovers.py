"""What interrupted programs and earlier times left behind."""

import glob
import os
from collections.abc import Iterator

from icd.admin.doctor.context import Scene
from icd.admin.doctor.findings import FIX, Finding, Repair, note, ok, warning
from icd.db import paths
from icd.db.files.lost import LOST
from icd.features.compat.files import is_mirrored
from icd.features.compat.patterns import find

# A backup of the largest database is made in less; what is older is nobody's work any more.
UNFINISHED_SECONDS = 3600
# What copies are called until they are complete; whatever is called a backup is one.
_COPIES = [
    f".{name}{end}" for name in ("unfinished", "restore", "adopt") for end in ("", "-journal")
]


def unfinished(scene: Scene, path: str) -> Iterator[Finding]:
    """Copies whose maker died over them."""
    names = [path + ending for ending in _COPIES]
    dead = [name for name in names if _is_dead(name, scene.now_ms // 1000)]
    for name in dead:
        yield note("unfinished", f"{name} was never finished", FIX, Repair("remove", name))
    if not dead:
        yield ok("unfinished", "no backup was interrupted")


def lost_logs(_scene: Scene, path: str) -> Iterator[Finding]:
    """Logs that were taken from a database, and may hold the only copy of a write."""
    found = sorted(glob.glob(f"{glob.escape(path)}-wal{LOST}*"))
    for name in found:
        told = f"{name} may hold writes that are not in the database"
        yield warning("lost logs", told, "remove it once you know that nothing is missing")
    if not found:
        yield ok("lost logs", "no log was set aside")


def _is_dead(name: str, now: int) -> bool:
    try:
        return os.lstat(name).st_mtime < now - UNFINISHED_SECONDS
    except FileNotFoundError:
        return False


def gitignore(_scene: Scene, path: str) -> Iterator[Finding]:
    directory = os.path.dirname(path)
    file = os.path.join(directory, ".gitignore")
    if os.path.basename(directory) != paths.DIRECTORY or os.path.lexists(file):
        yield ok("gitignore", "the database is kept out of git")
    else:
        told = f"{file} is gone: git would take the database for a part of the project"
        yield note("gitignore", told, FIX, Repair("write gitignore", file))


def legacy(scene: Scene) -> Iterator[Finding]:
    """Temporary files of the time before; what the daemon mirrors is not of that time."""
    found = [file for file in find(scene.env, scene.where.cwd) if not is_mirrored(file)]
    if not found:
        yield ok("legacy", "no legacy files are left")
        return
    keys = ", ".join(sorted({file.pattern.key for file in found}))
    told = f"{len(found)} legacy files are left ({keys})"
    yield note("legacy", told, "run 'icctl compat status', and 'icctl compat import' to take over")
