"""The safe repairs: modes of our own files, what interrupted programs left, a stale socket.

Each looks again at what it changes, and changes nothing that is not ours or is a link.
"""

import os
import stat
from collections.abc import Iterator

from icd.admin.doctor.context import Scene
from icd.admin.doctor.findings import Finding, Repair, error
from icd.db.database import GITIGNORE


def carry_out(scene: Scene, findings: list[Finding]) -> Iterator[Finding]:
    """Do what the findings offer; say what was done, or why not."""
    for finding in findings:
        if finding.repair is not None:
            try:
                why_not = _repair(scene, finding.repair)
            except OSError as exc:
                why_not = exc.strerror or str(exc)
            done = _DONE[finding.repair.action].format(finding.repair)
            if why_not:
                yield error(
                    finding.check,
                    f"not repaired: {finding.message}: {why_not}",
                    "repair it by hand",
                )
            else:
                yield Finding(finding.check, "fixed", done)


_DONE = {
    "chmod": "set the mode of {0.path} to {0.mode:04o}",
    "remove": "removed {0.path}",
    "remove socket": "removed the socket {0.path}",
    "write gitignore": "wrote {0.path}",
}


def _repair(scene: Scene, repair: Repair) -> str:
    """Why not; empty if it is done."""
    if repair.action == "chmod":
        return _set_mode(scene, repair)
    if repair.action == "remove":
        os.unlink(repair.path)
    elif repair.action == "write gitignore":
        with open(repair.path, "x", encoding="utf-8") as file:
            file.write(GITIGNORE)
    else:
        return scene.sight.clear(repair.path) if scene.sight else "sockets cannot be looked at"
    return ""


def _set_mode(scene: Scene, repair: Repair) -> str:
    """By a descriptor that does not open the file: nobody can put a link in its place."""
    fd = os.open(repair.path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        if stat.S_ISLNK(found.st_mode):
            return "it is a symlink"
        if scene.uid not in (0, found.st_uid):
            return "it belongs to another user"
        os.chmod(f"/proc/self/fd/{fd}", repair.mode)
    finally:
        os.close(fd)
    return ""
