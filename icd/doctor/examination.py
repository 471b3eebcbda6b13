"""All checks, in three sections that can hang on their own: the daemon, surroundings, the project.

The sections are looked at one after the other, each for a limited time, the project last and for
whatever is left: it is the one that may lie on a hung mount.
"""

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from icd.doctor import bounded, choice, contents, daemons, disks, modes, remains, sockets
from icd.doctor import repairs as safe
from icd.doctor import surroundings as around
from icd.doctor.bounded import Step
from icd.doctor.findings import Finding, error, from_error
from icd.doctor.scene import Scene
from icd.errors import IcError, InputOutput, from_os, from_sqlite

# A daemon that is well answers in milliseconds, and a home directory is near.
SECTION_SECONDS = 1.5
# Between the end of a child's own patience and ours.
MARGIN_SECONDS = 0.2


class Section(Struct):
    name: str
    findings: list[Finding]
    bug: str | None = None


def examine(scene: Scene) -> list[Section]:
    narrow = around.too_few_files()
    if narrow is not None:  # whatever else we found would come of this
        return [Section("surroundings", [narrow])]
    soon = min(scene.deadline, time.monotonic() + SECTION_SECONDS)
    daemon = _section("daemon", scene, _daemon, soon)
    soon = min(scene.deadline, time.monotonic() + SECTION_SECONDS)
    surroundings = _section("surroundings", scene, _surroundings, soon)
    return [_section("project", scene, _project, scene.deadline), daemon, surroundings]


def repair(scene: Scene, sections: list[Section]) -> Section:
    """Carry out what was offered; a mount may hang now, too."""
    found = [finding for section in sections for finding in section.findings]
    return _section("repairs", scene, lambda s: safe.carry_out(s, found), scene.deadline)


def _section(
    name: str, scene: Scene, steps: Callable[[Scene], Iterator[Step]], deadline: float
) -> Section:
    patient = replace(scene, deadline=deadline - MARGIN_SECONDS)
    found = bounded.look(lambda: steps(patient), deadline)
    if found.stuck is not None:
        told = f"looking at {found.stuck} takes too long: its disk or its owner does not answer"
        hint = "look at the mounts with 'findmnt'; --timeout gives more time"
        found.findings.append(error("time", told, hint))
    return Section(name, found.findings, found.bug)


def _project(scene: Scene) -> Iterator[Step]:
    yield f"{scene.where.explicit or scene.where.cwd}"
    path, found = choice.choose(scene.where)
    yield from found
    if path is None:
        return
    checks = [modes.permissions, disks.filesystem, disks.space, remains.unfinished]
    for check in [*checks, remains.gitignore, contents.contents]:
        yield f"{path} ({check.__name__})"
        yield from _careful(check.__name__, check(scene, path))


def _daemon(scene: Scene) -> Iterator[Step]:
    if scene.sight is None:
        return
    yield "the daemon's socket"
    # Some time must be left for what is judged afterwards.
    seen = scene.sight.look(scene.deadline - MARGIN_SECONDS)
    yield from _careful("socket", sockets.sockets(scene, seen))
    yield from _careful("daemon", daemons.daemon(scene, seen))
    yield from _careful("failures", daemons.missed(scene, seen))


def _surroundings(scene: Scene) -> Iterator[Step]:
    checks = [around.limits, around.clock, around.client, around.library, around.units]
    for check in [*checks, around.settings, remains.legacy]:
        yield f"{scene.home} ({check.__name__})"
        yield from _careful(check.__name__, check(scene))


def _careful(check: str, findings: Iterable[Finding]) -> Iterator[Finding]:
    """What goes wrong while looking is a finding, too, and the next check has its turn."""
    try:
        yield from findings
        return
    except IcError as exc:
        told = exc
    except OSError as exc:
        told = from_os(exc, f"look at {exc.filename}" if exc.filename else "look")
    except sqlite3.Error as exc:
        told = from_sqlite(exc) or InputOutput(f"SQLite says: {exc}")
    yield from_error(check, told)
