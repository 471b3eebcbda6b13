"""All checks, in three sections that can hang on their own: the daemon, surroundings, the project.

The sections are looked at one after the other, each for its share of the time, the project last
and for whatever is left: it is the one that may lie on a hung mount.
"""

import time
from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from icd.admin.doctor import (
    bounded,
    contents,
    daemons,
    disks,
    sockets,
)
from icd.admin.doctor import (
    database_choice as choice,
)
from icd.admin.doctor import environment as around
from icd.admin.doctor import (
    leftovers as remains,
)
from icd.admin.doctor import (
    permissions as modes,
)
from icd.admin.doctor import repairs as safe
from icd.admin.doctor.bounded import Step
from icd.admin.doctor.context import Scene
from icd.admin.doctor.findings import Finding, error, from_error
from icd.errors import IcError, from_os

# Whoever looks has this much of the time of whoever waits for it, so that its "no" still arrives.
PART = 0.9

# Beside whose its files are, and what is inside.
PROJECT = [
    disks.filesystem,
    disks.space,
    around.settings_of_project,
    around.trust_in_project,
    remains.unfinished,
    remains.lost_logs,
    remains.gitignore,
]
# What may hang comes last.
SURROUNDINGS = [
    around.limits,
    around.clock,
    around.client,
    around.library,
    around.units,
    around.settings,
    remains.legacy,
]


class Section(Struct):
    name: str
    findings: list[Finding]
    bug: str | None = None


def examine(scene: Scene) -> list[Section]:
    narrow = around.too_few_files()
    if narrow is not None:  # whatever else we found would come of this
        return [Section("surroundings", [narrow])]
    daemon = _section("daemon", scene, _daemon, share=1 / 3)
    surroundings = _section("surroundings", scene, _surroundings, share=1 / 2)
    return [_section("project", scene, _project), daemon, surroundings]


def repair(scene: Scene, sections: list[Section]) -> Section:
    """Carry out what was offered; a mount may hang now, too."""
    found = [finding for section in sections for finding in section.findings]
    return _section("repairs", scene, lambda s: safe.carry_out(s, found))


def _section(
    name: str, scene: Scene, steps: Callable[[Scene], Iterator[Step]], share: float = 1
) -> Section:
    """`share`: how much of the time that is left it may take, at most."""
    now = time.monotonic()
    deadline = now + (scene.deadline - now) * share
    patient = replace(scene, deadline=now + (deadline - now) * PART)
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
    yield f"{path} (permissions)"
    touchable = list(_careful("permissions", modes.permissions(scene, path)))
    yield from touchable
    for check in PROJECT:
        yield f"{path} ({check.__name__})"
        yield from _careful(check.__name__, check(scene, path))
    yield f"{path} (contents)"
    refused = any(finding.severity == "error" for finding in touchable)
    for finding in _careful("integrity", contents.contents(scene, path)):
        # That it cannot be opened has been said then, and better.
        if not (refused and finding.check == "permissions"):
            yield finding


def _daemon(scene: Scene) -> Iterator[Step]:
    if scene.sight is None:
        return
    yield "the daemon's socket"
    now = time.monotonic()
    seen = scene.sight.look(now + (scene.deadline - now) * PART)
    yield from _careful("socket", sockets.sockets(scene, seen))
    yield from _careful("daemon", daemons.daemon(scene, seen))
    yield from _careful("failures", daemons.missed(scene, seen))


def _surroundings(scene: Scene) -> Iterator[Step]:
    for check in SURROUNDINGS:
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
    yield from_error(check, told)
