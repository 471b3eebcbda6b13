"""The file system that a project lies on: is it local, is there room, does its clock agree?"""

import errno
import os
import re
import time
from collections.abc import Iterator

from icd.admin.doctor.context import Finding, Scene, error, ok, warning
from icd.db.health import FREE_BYTES_NEEDED, free_bytes
from icd.errors import PermissionRefused, from_os

# Shared between machines, or with a host: neither locks nor shared memory can be relied on.
NETWORK = {
    *("nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "9p", "afs", "ceph", "davfs", "ncpfs"),
    *("fuse.sshfs", "fuse.rclone", "fuse.s3fs", "fuse.gcsfuse", "fuse.glusterfs", "fuse.davfs2"),
    *("fuse.vmhgfs-fuse", "fuse.google-drive-ocamlfuse", "fuse.onedriver", "fuse.curlftpfs"),
    *("vboxsf", "prl_fs", "drvfs", "virtiofs", "glusterfs", "lustre", "beegfs", "gpfs"),
}
# Directories that a program copies to other machines, file by file.
SYNCED = re.compile(
    r"(Dropbox|OneDrive|Google ?Drive|iCloud ?Drive|Mobile Documents|pCloudDrive|Nextcloud"
    r"|ownCloud|Syncthing|MEGAsync)( .*)?",
    re.IGNORECASE,
)
_WHY = "SQLite's write-ahead log needs locks and shared memory of one machine"
_MOVE = "move the project to a local disk, or name a database on one with INTERCORE_DB"

# What a small write needs; a disk that has not even this is full, whatever it says.
PROBE_BYTES = 4096
# Some file systems cannot make files without a name.
_UNSUPPORTED = {errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL}
# A file's time is that of the last tick, and networks take a moment.
CLOCK_SECONDS = 60


def filesystem(_scene: Scene, path: str) -> Iterator[Finding]:
    directory = os.path.dirname(path)
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as mounts:
        kind = kind_of(directory, mounts.read())
    synced = [part for part in directory.split(os.sep) if SYNCED.fullmatch(part)]
    if kind in NETWORK:
        told = f"{directory} lies on a network file system ({kind}): {_WHY}"
        yield warning("filesystem", told, _MOVE)
    if synced:
        told = f"{directory} is copied to other machines ({synced[0]}), half written or not: {_WHY}"
        yield warning("filesystem", told, _MOVE)
    if kind not in NETWORK and not synced:
        yield ok("filesystem", f"{directory} lies on a local file system ({kind or 'unknown'})")


def kind_of(directory: str, mounts: str) -> str | None:
    """The type of the file system that holds a directory; `mounts` is as in /proc/self/mountinfo.

    Of several mounts at one place the last one hides the others.
    """
    best, kind = "", None
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split(" ")
        point = _unescaped(fields[4]) if len(fields) > 4 else "?"
        inside = point == "/" or f"{directory}/".startswith(f"{point}/")
        if inside and len(point) >= len(best):
            best, kind = point, right.partition(" ")[0]
    return kind


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


def space(_scene: Scene, path: str) -> Iterator[Finding]:
    directory = os.path.dirname(path)
    free, there = free_bytes(directory), os.statvfs(directory)
    if there.f_flag & os.ST_RDONLY:
        hint = "mount it for writing; a disk with errors is remounted so: see 'dmesg'"
        yield error("space", f"the file system of {directory} is mounted read-only", hint)
    elif free <= FREE_BYTES_NEEDED:
        told = f"the disk of {directory} is full: {free} bytes available (need {FREE_BYTES_NEEDED})"
        yield error("space", told, "free some space")
    elif there.f_files and not there.f_favail:
        told = f"the disk of {directory} has no room for another file (no inodes)"
        yield error("space", told, "remove files that are not needed")
    else:
        yield from _probe(directory, free)


def _probe(directory: str, free: int) -> Iterator[Finding]:
    """Write a little to a file without a name: a quota shows, and nothing stays."""
    ahead = 0.0
    try:
        fd = os.open(directory, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, bytes(PROBE_BYTES))
            ahead = time.time() - os.fstat(fd).st_mtime
        finally:
            os.close(fd)
    except OSError as exc:
        known = from_os(exc, f"write to a file in {directory}")
        # What may not be written is told elsewhere.
        if exc.errno not in _UNSUPPORTED and not isinstance(known, PermissionRefused):
            yield error("space", known.message, known.hint)
            return
    yield ok("space", f"{free} bytes are available")
    if abs(ahead) > CLOCK_SECONDS:
        direction = "ahead of" if ahead > 0 else "behind"
        told = f"the clock is {abs(int(ahead))} s {direction} that of the disk of {directory}"
        yield warning("clock", told, "set the clock; 'timedatectl' shows whether it is kept right")
