"""The hook's file: where git looks for it, what was there before, and how that comes back.

A project's directory is not trusted.  The project's own configuration may not lead us out of the
project, no link is followed on the way to the directory of hooks, and nothing is written through
one: the new file gets its name by a rename.  A hook that was there is renamed, never copied or
read by us but for its mark, and is run by ours as git would have run it.

Only a file that is byte for byte one that we wrote is replaced or removed: its sum, in it, says so.
One that bears our mark and was changed since is left to its owner.
"""

import hashlib
import os
import stat
import subprocess
from collections.abc import Mapping

from msgspec import Struct

from icd import files
from icd.errors import GuardRefused

NAME = "pre-commit"
# What was there before, while the guard is installed.
CHAINED = "pre-commit.before-intercore"
# What the framework pre-commit makes of a hook that it finds: it runs it first.
LEGACY = "pre-commit.legacy"
MARK = b"# intercore-guard"
# Git reads an index and a few objects for us: seconds, on the slowest disk.
GIT_SECONDS = 60
SUM = b"# sum: "
_MOST_BYTES = 4096  # several times what we write

# Run twice in one commit, as by the framework that keeps it beside an older copy of itself, the
# second does nothing: else the two could call each other for ever.  What a hook commits elsewhere,
# or with another index, is another commit, and judged.
_LINES = b"""#!/bin/sh
# intercore-guard: refuses a commit of files that another session has reserved.
# Installed by 'icctl guard install'; 'icctl guard uninstall' restores what was here before.
# Put your own lines into pre-commit.before-intercore, which runs after it.
this="$(pwd -P):${GIT_INDEX_FILE:-}"
case "|${INTERCORE_GUARD_RUNS:-}|" in *"|$this|"*) exit 0 ;; esac
INTERCORE_GUARD_RUNS="${INTERCORE_GUARD_RUNS:-}|$this"
export INTERCORE_GUARD_RUNS
if command -v icctl >/dev/null 2>&1; then
    icctl guard check
    [ $? -ne 1 ] || exit 1
fi
before=$(dirname "$0")/pre-commit.before-intercore
if [ -x "$before" ]; then
    exec "$before" "$@"
fi
"""


def _sum(lines: bytes) -> bytes:
    return SUM + hashlib.sha256(lines).hexdigest().encode() + b"\n"


SCRIPT = _LINES + _sum(_LINES)


class Place(Struct, frozen=True):
    """A checkout, and the directory of its hooks."""

    top: str
    hooks: str


def git(env: Mapping[str, str], cwd: str, *words: str) -> bytes:
    """What git prints; it runs no program that the project's configuration names."""
    command = ["git", "-c", "core.fsmonitor=false", *words]
    try:
        done = subprocess.run(  # noqa: S603 -- the words are ours
            command, cwd=cwd, env=dict(env), stdin=subprocess.DEVNULL, capture_output=True,
            timeout=GIT_SECONDS, check=False,
        )  # fmt: skip
    except FileNotFoundError as exc:
        raise GuardRefused("there is no git", hint="install git") from exc
    except subprocess.TimeoutExpired as exc:
        raise GuardRefused(f"git {words[0]} takes longer than {GIT_SECONDS} seconds") from exc
    if done.returncode:
        told = done.stderr.decode("utf-8", "replace").strip().partition("\n")[0]
        raise GuardRefused(f"git {words[0]} failed: {told}")
    return done.stdout


def line_of(env: Mapping[str, str], cwd: str, *words: str) -> str:
    return os.fsdecode(git(env, cwd, *words).removesuffix(b"\n"))


def find(env: Mapping[str, str], cwd: str) -> Place:
    """Where git looks for the hooks of a checkout; refused where only the project says so."""
    top = line_of(env, cwd, "rev-parse", "--show-toplevel")
    common = _absolute(top, line_of(env, top, "rev-parse", "--git-common-dir"))
    hooks = _absolute(top, line_of(env, top, "rev-parse", "--git-path", "hooks"))
    inside = [root for root in (common, top) if _is_below(hooks, root)]
    if not inside:
        if _scope(env, top) not in ("global", "system", "command"):
            raise GuardRefused(
                f"the project's core.hooksPath leads out of the project, to {hooks}",
                hint="set core.hooksPath to a directory of the project, or unset it",
            )
        return Place(top, hooks)
    _refuse_links(hooks, inside[0])
    return Place(top, hooks)


def _absolute(top: str, path: str) -> str:
    return os.path.normpath(os.path.join(top, path))


def _is_below(path: str, root: str) -> bool:
    return path.startswith(root.rstrip("/") + "/")


def _scope(env: Mapping[str, str], top: str) -> str:
    """Which configuration says where hooks are: the user's own, or the project's."""
    try:
        found = line_of(env, top, "config", "--show-scope", "--get", "core.hooksPath")
    except GuardRefused:  # it is not set, or git is too old to tell
        return ""
    return found.partition("\t")[0]


def _refuse_links(path: str, root: str) -> None:
    at = root
    for name in path[len(root) :].strip("/").split("/"):
        at = os.path.join(at, name)
        if os.path.islink(at):
            raise GuardRefused(f"{at} is a symbolic link", hint="make it a directory")


def install(place: Place) -> bool:
    """Whether a hook that was there is chained now."""
    os.makedirs(place.hooks, exist_ok=True)
    _require_own(place.hooks)
    hook, chained = _paths(place)
    if os.path.lexists(hook) and not is_ours(hook):
        _require_plain(hook)
        _refuse_changed(hook)
        _keep(hook, chained)
    files.replace(hook, SCRIPT, 0o755)
    return os.path.lexists(chained)


def _keep(hook: str, chained: str) -> None:
    """A second name, so that at no moment there is no hook; what is kept is never overwritten."""
    try:
        os.link(hook, chained, follow_symlinks=False)
    except FileExistsError:
        raise GuardRefused(
            f"{hook} is another hook, and {chained} is still there",
            hint="move one of them away, then try again",
        ) from None


def uninstall(place: Place) -> bool | None:
    """Whether a hook came back; None: there was no guard."""
    hook, chained = _paths(place)
    legacy = os.path.join(place.hooks, LEGACY)
    _refuse_changed(hook)
    if is_ours(hook):
        files.remove(hook)
        if os.path.lexists(chained):
            os.rename(chained, hook)
            return True
        return False
    if is_ours(legacy):  # the framework has installed itself before us, and keeps what we kept
        files.remove(legacy)
        if os.path.lexists(chained):
            os.rename(chained, legacy)
        return os.path.lexists(legacy)
    return None


def _paths(place: Place) -> tuple[str, str]:
    return os.path.join(place.hooks, NAME), os.path.join(place.hooks, CHAINED)


def is_ours(path: str) -> bool:
    """Whether it is as this version or another one wrote it."""
    lines, mark, rest = _read(path).rpartition(SUM)
    return MARK in lines and mark + rest == _sum(lines)


def _refuse_changed(hook: str) -> None:
    if MARK in _read(hook) and not is_ours(hook):
        raise GuardRefused(
            f"{hook} is the guard, changed by hand",
            hint=f"move your lines to {CHAINED} beside it, which runs after it, and remove it",
        )


def _read(path: str) -> bytes:
    try:
        with files.opened(path) as fd:
            return os.read(fd, _MOST_BYTES)
    except OSError:
        return b""


def _require_own(directory: str) -> None:
    found = os.stat(directory, follow_symlinks=False)
    if not stat.S_ISDIR(found.st_mode) or (os.geteuid() and found.st_uid != os.geteuid()):
        raise GuardRefused(f"{directory} is not a directory of yours")


def _require_plain(path: str) -> None:
    mode = os.lstat(path).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISLNK(mode):
        raise GuardRefused(f"{path} is not a file", hint="move it away, then try again")
