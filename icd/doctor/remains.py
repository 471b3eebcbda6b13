"""What interrupted programs and earlier times left behind."""

import glob
import os
import re
from collections.abc import Iterator

from icd.db import paths
from icd.doctor.findings import FIX, Finding, Repair, note, ok
from icd.doctor.scene import Scene
from icd.legacy.finding import find
from icd.legacy.reading import is_mirrored

# A backup of the largest database is made in less; what is older is nobody's work any more.
UNFINISHED_SECONDS = 3600
# The journal of SQLite beside a copy means that the copy was never finished.
_COPY = re.compile(r"\.(restore|backup-\d{8}-\d{6}(-\d+)?)(-journal)?")


def unfinished(scene: Scene, path: str) -> Iterator[Finding]:
    """Copies whose maker died over them."""
    names = [
        name for name in glob.glob(f"{glob.escape(path)}.*") if _COPY.fullmatch(name, len(path))
    ]
    dead = [name for name in sorted(names) if _is_dead(name, scene.now_ms // 1000)]
    for name in dead:
        yield note("unfinished", f"{name} was never finished", FIX, Repair("remove", name))
    if not dead:
        yield ok("unfinished", "no backup was interrupted")


def _is_dead(name: str, now: int) -> bool:
    try:
        found = os.lstat(name)
    except FileNotFoundError:
        return False
    stem = name.removesuffix("-journal")
    broken = found.st_size == 0 or stem.endswith(".restore") or os.path.exists(f"{stem}-journal")
    return broken and found.st_mtime < now - UNFINISHED_SECONDS


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
