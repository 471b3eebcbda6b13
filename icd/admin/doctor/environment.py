"""What a caller brings along, from limits to units, and the file system that a project lies on."""

import errno
import os
import re
import resource
import time
from collections.abc import Iterator

from icd import config, trust
from icd.admin.doctor.context import Finding, Scene, error, note, ok, warning
from icd.db.check import FREE_BYTES_NEEDED, free_bytes
from icd.errors import PermissionRefused, Untrusted, from_os
from icd.features.compat.files import find, is_mirrored

# A direct call needs about six: the lock, SQLite's own, and one to load code.
DESCRIPTORS_NEEDED = 16
# The first year of this program: an earlier clock was never set.
FIRST_YEAR_MS = 1_704_067_200_000
LIBRARY_BYTES = 65_536

_INSTALL = "run 'icctl service install', or start 'icd serve' with another supervisor"
_UNITS = (
    ("missing", note, "not installed, so nothing starts the daemon"),
    ("outdated", warning, "written by another installation or version"),
    ("foreign", note, "not written by icctl, which does not change it"),
)


def too_few_files() -> Finding | None:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        used = len(os.listdir("/proc/self/fd")) - 1  # one of them was for looking
    except OSError:  # not even for that
        used = limit
    if limit < 0 or limit - used >= DESCRIPTORS_NEEDED:
        return None
    told = f"this process may open {limit} files at once, and {used} are open already"
    hint = "raise the limit with 'ulimit -n', or close unused files"
    return error("limits", told, hint)


def limits(_scene: Scene) -> Iterator[Finding]:
    size, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if 0 <= size < FREE_BYTES_NEEDED:
        told = f"this process may write {size} bytes to a file (need {FREE_BYTES_NEEDED})"
        yield error("limits", told, "raise the limit with 'ulimit -f'")


def settings(scene: Scene) -> Iterator[Finding]:
    """The settings of the user; what the project says about itself lies with the project."""
    problems = [str(p) for f in config.read(config.user_file(scene.home), None) for p in f.problems]
    problems += [str(problem) for problem in config.check_environment(scene.env)]
    yield from _judged(problems)


def settings_of_project(scene: Scene, path: str) -> Iterator[Finding]:
    project = config.project_file(path)
    files = [f for f in config.read(config.user_file(scene.home), project) if f.path == project]
    yield from _judged([str(problem) for file in files for problem in file.problems])
    for ignored in (each for file in files for each in file.ignored):
        yield note("settings", str(ignored), "move it to your own settings file, or remove it")


def trust_in_project(scene: Scene, path: str) -> Iterator[Finding]:
    """Nothing to worry about, but the answer to "why does it start no agents?"."""
    why = trust.objection(scene.home, path)
    if why:
        told = f"its database starts no agents and mirrors no rows: {why}"
        yield note("trust", told, Untrusted.hint)


def _judged(problems: list[str]) -> Iterator[Finding]:
    for problem in problems:
        yield error("settings", problem, "correct it; verify with 'icctl config check'")
    if not problems:
        yield ok("settings", "they are valid")


def clock(scene: Scene) -> Iterator[Finding]:
    if scene.now_ms < FIRST_YEAR_MS:
        told = "the clock was never set: it shows a year before 2024"
        yield error("clock", told, "set it; 'timedatectl' shows whether it is synchronized")


def library(scene: Scene) -> Iterator[Finding]:
    """What hooks of this shell use, as far as it told its children."""
    program = scene.env.get("INTERCORE_BIN")
    if program and "/" in program and not os.access(program, os.X_OK):
        told = (
            f"INTERCORE_BIN names {program}, which cannot be executed: hooks run without intercore"
        )
        yield warning("library", told, "correct INTERCORE_BIN, or unset it")
    loaded, installed = scene.env.get("INTERCORE_LIB_VERSION"), version_of(scene.library)
    if loaded and loaded != installed:
        told = f"this shell has loaded lib-intercore.sh {loaded}; installed is {installed}"
        yield warning("library", told, f"source {scene.library} instead of another copy")
    elif installed is None:
        yield warning("library", f"{scene.library} cannot be read", "reinstall intercore")
    else:
        yield ok("library", f"lib-intercore.sh {installed} is {scene.library}")


def version_of(library: str) -> str | None:
    try:
        with open(library, encoding="utf-8", errors="replace") as file:
            text = file.read(LIBRARY_BYTES)
    except OSError:
        return None
    found = re.search(r"^INTERCORE_LIB_VERSION=(\S+)", text, re.MULTILINE)
    return found[1] if found else None


def client(scene: Scene) -> Iterator[Finding]:
    if not scene.door.startswith("native"):
        told = f"the {scene.door} is used: a call takes ten milliseconds instead of one"
        yield note("client", told, "install intercore where there is a C compiler")


def units(scene: Scene) -> Iterator[Finding]:
    """The unit files as they lie there; `icctl service status` knows more."""
    found = scene.units()
    for state, severity, told in _UNITS:
        names = [name for name, is_ in found.items() if is_ == state]
        if names:
            yield severity("units", f"{' and '.join(names)}: {told}", _INSTALL)


def legacy(scene: Scene) -> Iterator[Finding]:
    """Temporary files of the time before; what the daemon mirrors is not of that time."""
    found = [file for file in find(scene.env, scene.where.cwd) if not is_mirrored(file)]
    if found:
        keys = ", ".join(sorted({file.pattern.key for file in found}))
        hint = "run 'icctl compat status', and 'icctl compat import' to import them"
        yield note("legacy", f"{len(found)} legacy files are left ({keys})", hint)


# --- the file system ------------------------------------------------------------------------------

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
        told = f"{directory} is on a network file system ({kind}): {_WHY}"
        yield warning("filesystem", told, _MOVE)
    if synced:
        told = f"{directory} is synced to other machines ({synced[0]}), also mid-write: {_WHY}"
        yield warning("filesystem", told, _MOVE)
    if kind not in NETWORK and not synced:
        yield ok("filesystem", f"{directory} is on a local file system ({kind or 'unknown'})")


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
        hint = "remount it read-write; disk errors cause read-only remounts: see 'dmesg'"
        yield error("space", f"the file system of {directory} is mounted read-only", hint)
    elif free <= FREE_BYTES_NEEDED:
        told = f"the disk of {directory} is full: {free} bytes available (need {FREE_BYTES_NEEDED})"
        yield error("space", told, "free some space")
    elif there.f_files and not there.f_favail:
        told = f"the disk of {directory} has no free inodes"
        yield error("space", told, "remove unneeded files")
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
        yield warning(
            "clock", told, "set the clock; 'timedatectl' shows whether it is synchronized"
        )
