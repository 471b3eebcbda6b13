"""What a caller brings along: limits, settings, the clock, the library, the client, units."""

import os
import re
import resource
from collections.abc import Iterator

from icd import config, trust
from icd.admin.doctor.context import Finding, Scene, error, note, ok, warning
from icd.db.health import FREE_BYTES_NEEDED
from icd.errors import Untrusted

# A direct call needs about six: the lock, SQLite's own, and one to load code.
DESCRIPTORS_NEEDED = 16
# The first year of this program: an earlier clock was never set.
FIRST_YEAR_MS = 1_704_067_200_000
LIBRARY_BYTES = 65_536

_INSTALL = "run 'icctl service install', or see docs/service.md for life without systemd"
_UNITS = (
    ("missing", note, "not installed, so nothing starts the daemon"),
    ("outdated", warning, "written by another installation or version"),
    ("foreign", note, "not written by icctl, which leaves it alone"),
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
    hint = "raise the limit with 'ulimit -n', or start fewer things that stay open; then look again"
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
        yield note("settings", str(ignored), "move it to your own file of settings, or remove it")


def trust_in_project(scene: Scene, path: str) -> Iterator[Finding]:
    """Nothing to worry about, but the answer to "why does it start no agents?"."""
    why = trust.objection(scene.home, path)
    if why:
        told = f"its database starts no agents and mirrors no rows: {why}"
        yield note("trust", told, Untrusted.hint)


def _judged(problems: list[str]) -> Iterator[Finding]:
    for problem in problems:
        yield error("settings", problem, "correct it; 'icctl config check' looks again")
    if not problems:
        yield ok("settings", "nothing is wrong with them")


def clock(scene: Scene) -> Iterator[Finding]:
    if scene.now_ms < FIRST_YEAR_MS:
        told = "the clock was never set: it shows a year before 2024"
        yield error("clock", told, "set it; 'timedatectl' shows whether it is kept right")


def library(scene: Scene) -> Iterator[Finding]:
    """What hooks of this shell use, as far as it told its children."""
    program = scene.env.get("INTERCORE_BIN")
    if program and "/" in program and not os.access(program, os.X_OK):
        told = f"INTERCORE_BIN names {program}, which cannot be run: hooks do without intercore"
        yield warning("library", told, "correct INTERCORE_BIN, or unset it")
    loaded, installed = scene.env.get("INTERCORE_LIB_VERSION"), version_of(scene.library)
    if loaded and loaded != installed:
        told = f"this shell has loaded lib-intercore.sh {loaded}; installed is {installed}"
        yield warning("library", told, f"source {scene.library} instead of another copy")
    elif installed is None:
        yield warning("library", f"{scene.library} cannot be read", "install intercore again")
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
