"""All checks and all repairs, as two tables, and how they are carried out.

The sections can hang on their own: each is looked at for its share of the time, the project last
and for all that is left, because it may lie on a hung mount.  A process that asks a hung mount
cannot be interrupted, and a thread in it would keep the process from ending.  So a child takes
every look: it writes down what it finds as it goes, and is left behind when its time is over.
"""

import json
import os
import select
import signal
import stat
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from icd.admin.doctor.context import Action, Finding, Repair, Scene, error, from_error, ok
from icd.admin.doctor.daemon import daemon, missed, sockets
from icd.admin.doctor.environment import (
    client,
    clock,
    filesystem,
    legacy,
    library,
    limits,
    settings,
    settings_of_project,
    space,
    too_few_files,
    trust_in_project,
    units,
)
from icd.admin.doctor.project import choose, contents, gitignore, lost_logs, permissions, unfinished
from icd.db.database import GITIGNORE
from icd.errors import IcError, from_os

# A section has this much of the time of the process that waits for it, so that its "no" arrives.
PART = 0.9


# What is about to be looked at, or what was found.
Step = str | Finding


class Section(Struct):
    """What came of it.  `stuck`: what the child was looking at when its time was over."""

    findings: list[Finding] = []
    stuck: str | None = None
    bug: str | None = None


class Check(Struct, frozen=True):
    """`look` yields findings; checks that share a look get theirs from one run of it.

    A look is given the scene; in a project also the path of the database, of the daemon also what
    was seen at its sockets.
    """

    name: str
    section: Literal["project", "daemon", "environment", ""]
    looks_at: str  # as the table of the reference says it
    look: Callable[..., Any] | None = None
    # Said if the look finds nothing at all; without it, the look says itself what is fine.
    fine: str = ""
    repairs: tuple[Action, ...] = ()


# In the order in which they run; what may hang comes last.
CHECKS = [
    Check("database", "project",
          "which database is used, and why; leftovers of a deleted or emptied one",
          choose),
    Check("shadow", "project", "a database that hides another one, or is ignored", choose),
    Check("permissions", "project",
          "modes and owners of `.clavain`, of the database and of all files that are named after "
          "it", permissions, fine="the directory and its files are private, with the right owner",
          repairs=("chmod",)),
    Check("symlinks", "project", "symbolic links in place of the directory or a file", permissions),
    Check("filesystem", "project",
          "network file systems, and directories synced to other machines", filesystem),
    Check("space", "project",
          "disk space; a small unnamed file is written to detect quotas",
          space),
    Check("settings", "project", "settings of the project, as [`config check`](#config-check)",
          settings_of_project),
    Check("trust", "project", "whether the database is [trusted](#trust), and why not",
          trust_in_project, fine="its database is trusted"),
    Check("unfinished", "project",
          "leftovers of interrupted backups, restores and adoptions, after an hour",
          unfinished, fine="no backup was interrupted", repairs=("remove",)),
    Check("lost logs", "project",
          "logs set aside from the database, which may hold the only copy of a write",
          lost_logs, fine="no log was set aside"),
    Check("gitignore", "project", "`.clavain/.gitignore`", gitignore,
          fine="the database is kept out of git", repairs=("write gitignore",)),
    Check("integrity", "project",
          "damage, up to 64 MiB and for a second; [`db check`](#db-check) reads everything",
          contents),
    Check("lock", "project",
          "who holds the database's lock for more than a second, and whether that process is "
          "stopped", contents),
    Check("schema", "project", "whether the database is of intercore, and of which version",
          contents),
    Check("times", "project", "rows with times in the future: the clock was set back", contents),
    Check("socket", "daemon",
          "the sockets of daemons: a stale socket, a file, a daemon that hangs, "
          "two of them, a sandbox without sockets", sockets, repairs=("chmod", "remove socket")),
    Check("daemon", "daemon", "whether one answers, its version and protocol, and starts that "
          "failed", daemon),
    Check("sqlite", "daemon", "the daemon's SQLite", daemon),
    Check("hung", "daemon", "databases in which the daemon hangs", daemon),
    Check("replaced", "daemon", "databases that were replaced or deleted under the daemon", daemon),
    Check("mirror", "daemon",
          "files that could not be mirrored, rows that are left out because a key has "
          "too many, databases whose rows are not mirrored because they are not trusted", daemon),
    Check("hooks", "daemon", "hooks that failed", daemon),
    Check("failures", "daemon",
          "calls that failed: those that the daemon knows of, and those that never reached it, if "
          "there was one in the last day", missed),
    Check("limits", "environment", "limits on the number and size of files",
          limits, fine="the limits are high enough"),
    Check("clock", "environment",
          "a clock that was never set, or differs from the disk's by more than a minute",
          clock, fine="it was set"),
    Check("client", "environment", "whether the native client is used", client,
          fine="the native client is used"),
    Check("library", "environment", "`lib-intercore.sh`, and `INTERCORE_BIN`", library),
    Check("units", "environment", "the systemd units", units,
          fine="they belong to this installation"),
    Check("settings", "environment",
          "settings of the user and the environment, as [`config check`](#config-check)", settings),
    Check("legacy", "environment",
          "legacy files, as [`compat status`](#compat-status)", legacy,
          fine="no legacy files are left"),
    Check("time", "", "checks that timed out"),
]  # fmt: skip


def examine(scene: Scene) -> dict[str, Section]:
    """What was found, by section."""
    narrow = too_few_files()
    if narrow is not None:  # all other findings would come of this
        return {"environment": Section([narrow])}
    seen = _section(scene, _daemon, share=1 / 3)
    around = _section(scene, _environment, share=1 / 2)
    return {"project": _section(scene, _project), "daemon": seen, "environment": around}


def repair(scene: Scene, findings: list[Finding]) -> Section:
    """Carry out what was offered; a mount may hang now, too."""
    return _section(scene, lambda patient: carry_out(patient, findings))


def _section(scene: Scene, steps: Callable[[Scene], Iterator[Step]], share: float = 1) -> Section:
    """`share`: how much of the time that is left it may take, at most."""
    now = time.monotonic()
    deadline = now + (scene.deadline - now) * share
    patient = replace(scene, deadline=now + (deadline - now) * PART)
    found = bounded(lambda: steps(patient), deadline)
    if found.stuck is not None:
        told = f"checking {found.stuck} takes too long: its disk or its process does not answer"
        hint = "check the mounts with 'findmnt', or raise --timeout"
        found.findings.append(error("time", told, hint))
    return found


def _project(scene: Scene) -> Iterator[Step]:
    yield f"{scene.where.explicit or scene.where.cwd}"
    path, found = choose(scene.where)
    yield from found
    refused = False
    for look in _looks("project") if path else []:
        if look is choose:
            continue
        yield f"{path} ({look.__name__})"
        for finding in _findings(look, scene, path):
            # That it cannot be opened has been said then, and better.
            if not (refused and look is contents and finding.check == "permissions"):
                yield finding
            refused |= look is permissions and finding.severity == "error"


def _daemon(scene: Scene) -> Iterator[Step]:
    if scene.sight is None:
        return
    yield "the daemon's socket"
    now = time.monotonic()
    seen = scene.sight.look(now + (scene.deadline - now) * PART)
    for look in _looks("daemon"):
        yield from _findings(look, scene, seen)


def _environment(scene: Scene) -> Iterator[Step]:
    for look in _looks("environment"):
        yield f"{scene.home} ({look.__name__})"
        yield from _findings(look, scene)


def _looks(section: str) -> list[Callable[..., Any]]:
    """Each look of a section once."""
    found = [check.look for check in CHECKS if check.section == section and check.look]
    return list(dict.fromkeys(found))


def _findings(look: Callable[..., Iterator[Finding]], *about: object) -> Iterator[Finding]:
    """What goes wrong while looking is a finding, too, and the next look has its turn."""
    checks = [check for check in CHECKS if check.look is look]
    is_fine = True
    try:
        for finding in look(*about):
            is_fine = False
            yield finding
        if is_fine:
            yield from (ok(check.name, check.fine) for check in checks if check.fine)
        return
    except IcError as exc:
        told = exc
    except OSError as exc:
        told = from_os(exc, f"look at {exc.filename}" if exc.filename else "look")
    yield from_error(checks[0].name, told)


# --- repairs --------------------------------------------------------------------------------------
# Each looks again at what it changes, and changes nothing that is not ours or is a link.


def carry_out(scene: Scene, findings: list[Finding]) -> Iterator[Finding]:
    """Do what the findings offer; say what was done, or why not."""
    for finding in findings:
        if finding.repair is not None:
            do, done = REPAIRS[finding.repair.action]
            try:
                why_not = do(scene, finding.repair)
            except OSError as exc:
                why_not = exc.strerror or str(exc)
            if why_not:
                told = f"not repaired: {finding.message}: {why_not}"
                yield error(finding.check, told, "repair it by hand")
            else:
                yield Finding(finding.check, "fixed", done.format(finding.repair))


def _set_mode(scene: Scene, wanted: Repair) -> str:
    """By a descriptor that does not open the file: no link can take its place meanwhile."""
    fd = os.open(wanted.path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        if stat.S_ISLNK(found.st_mode):
            return "it is a symlink"
        if scene.uid not in (0, found.st_uid):
            return "it belongs to another user"
        os.chmod(f"/proc/self/fd/{fd}", wanted.mode)
    finally:
        os.close(fd)
    return ""


def _remove(_scene: Scene, wanted: Repair) -> str:
    os.unlink(wanted.path)
    return ""


def _remove_socket(scene: Scene, wanted: Repair) -> str:
    return scene.sight.clear(wanted.path) if scene.sight else "sockets cannot be inspected"


def _write_gitignore(_scene: Scene, wanted: Repair) -> str:
    with open(wanted.path, "x", encoding="utf-8") as file:
        file.write(GITIGNORE)
    return ""


# What does it, and says why not, else the empty string; what is said when it is done.
REPAIRS: dict[Action, tuple[Callable[[Scene, Repair], str], str]] = {
    "chmod": (_set_mode, "set the mode of {0.path} to {0.mode:04o}"),
    "remove": (_remove, "removed {0.path}"),
    "remove socket": (_remove_socket, "removed the socket {0.path}"),
    "write gitignore": (_write_gitignore, "wrote {0.path}"),
}


# --- a look at files that may never answer --------------------------------------------------------


def bounded(steps: Callable[[], Iterator[Step]], deadline: float) -> Section:
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ours)
        _be_the_child(steps, theirs)
    os.close(theirs)
    try:
        written = _written(ours, deadline)
    finally:
        os.close(ours)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, os.WNOHANG)  # one that cannot be killed is init's
    return _understood(written)


def _be_the_child(steps: Callable[[], Iterator[Step]], out: int) -> None:
    try:
        # The reader of our output must not wait for a child that hangs.
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        os.close(null)
        for step in steps():
            _tell(out, {"step" if isinstance(step, str) else "found": step})
        _tell(out, {"done": True})
    except BaseException:  # noqa: BLE001 -- the parent tells it
        _tell(out, {"bug": traceback.format_exc()})
    finally:
        os._exit(0)


def _tell(out: int, line: dict[str, object]) -> None:
    # Paths may hold any bytes, which this JSON can carry.
    data = json.dumps(msgspec.to_builtins(line)).encode() + b"\n"
    while data:
        data = data[os.write(out, data) :]


def _written(fd: int, deadline: float) -> bytes:
    parts = []
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    while poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        part = os.read(fd, 65536)
        if not part:
            break
        parts.append(part)
    return b"".join(parts)


def _understood(written: bytes) -> Section:
    found = Section(stuck="where to look")
    for line in written.splitlines(keepends=True):
        if not line.endswith(b"\n"):
            break
        told = json.loads(line)
        if "step" in told:
            found.stuck = told["step"]
        elif "found" in told:
            found.findings.append(msgspec.convert(told["found"], Finding))
        else:
            found.stuck = None
            found.bug = told.get("bug")
    return found
