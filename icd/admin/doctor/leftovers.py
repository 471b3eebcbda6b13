"""What interrupted programs and earlier times left behind."""

import glob
import os
from collections.abc import Iterator
from contextlib import suppress

from icd.admin.doctor.context import FIX, Finding, Repair, Scene, note, warning
from icd.db import paths
from icd.db.files.lost import LOST
from icd.features.compat.files import find, is_mirrored

# A backup of the largest database takes less; the maker of what is older is gone.
UNFINISHED_SECONDS = 3600
# What copies are called until they are complete; whatever is called a backup is one.
_COPIES = [
    f".{name}{end}" for name in ("unfinished", "restore", "adopt") for end in ("", "-journal")
]


def unfinished(scene: Scene, path: str) -> Iterator[Finding]:
    """Copies that were interrupted before they were complete."""
    for name in [path + ending for ending in _COPIES]:
        with suppress(FileNotFoundError):
            if os.lstat(name).st_mtime < scene.now_ms // 1000 - UNFINISHED_SECONDS:
                yield note("unfinished", f"{name} was never finished", FIX, Repair("remove", name))


def lost_logs(_scene: Scene, path: str) -> Iterator[Finding]:
    """Logs that were taken from a database, and may hold the only copy of a write."""
    for name in sorted(glob.glob(f"{glob.escape(path)}-wal{LOST}*")):
        told = f"{name} may hold writes that are not in the database"
        yield warning("lost logs", told, "remove it once you know that nothing is missing")


def gitignore(_scene: Scene, path: str) -> Iterator[Finding]:
    directory = os.path.dirname(path)
    file = os.path.join(directory, ".gitignore")
    if os.path.basename(directory) == paths.DIRECTORY and not os.path.lexists(file):
        told = f"{file} is gone: git would take the database for a part of the project"
        yield note("gitignore", told, FIX, Repair("write gitignore", file))


def legacy(scene: Scene) -> Iterator[Finding]:
    """Legacy temporary files, as hooks left them; files that the daemon mirrors are none."""
    found = [file for file in find(scene.env, scene.where.cwd) if not is_mirrored(file)]
    if found:
        keys = ", ".join(sorted({file.pattern.key for file in found}))
        hint = "run 'icctl compat status', and 'icctl compat import' to take over"
        yield note("legacy", f"{len(found)} legacy files are left ({keys})", hint)
