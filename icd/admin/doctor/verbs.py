"""doctor: what is wrong here, and what to do about it."""

import os
import sys
import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Struct
from msgspec.structs import replace

from icd.app import render
from icd.app.invocation import Local, Output, World, advice, line
from icd.app.verb import Command, Option
from icd.errors import Internal

if TYPE_CHECKING:
    from icd.admin.doctor.checks import Section
    from icd.admin.doctor.context import Finding, Scene

# What a person wants to read also when it is fine.
_TELLING = ("database", "daemon")
_BAD = ("warning", "error")
_SHOWN = ("fixed", "note", *_BAD)


class Doctor(Struct):
    """Diagnose the database, the daemon and their environment, and suggest repairs.

    Exit 0 if no action is needed, 1 if there are warnings or errors.
    Nothing changes without --fix, which corrects the modes of your own files, removes stale sockets
    and leftovers of interrupted backups, and writes a missing .clavain/.gitignore.
    """

    fix: Annotated[bool, Option("--fix", "Apply the safe repairs.")] = False


def doctor(world: World, f: Doctor) -> Output:
    from icd.admin.doctor.checks import examine, repair  # only this command pays for it

    scene = _scene(world)
    patience = scene.deadline - time.monotonic()
    sections = examine(scene)
    found = _findings(sections)
    if f.fix and any(finding.repair is not None for finding in found):
        # Each of look, repair and look again has as much time as the caller gave.
        done = repair(_until(scene, patience), found)
        sections = {**examine(_until(scene, patience)), "repairs": done}
    return _shown(world, sections)


def _scene(world: World) -> "Scene":
    from icd.admin.doctor.context import Scene
    from icd.features.shell import PATH

    return Scene(
        where=world.where,
        env=world.env,
        uid=os.geteuid(),
        now_ms=time.time_ns() // 1_000_000,
        deadline=world.deadline,
        door=world.door,
        library=PATH,
        units=lambda: _units(world.env),
        sight=world.sight and world.sight(),
    )


def _units(env: dict[str, str]) -> dict[str, str]:
    from icd.admin.service import systemd

    return {u.name: u.found for u in systemd.look(env, sys.executable) if u.name != systemd.SANDBOX}


def _until(scene: "Scene", patience: float) -> "Scene":
    return replace(scene, deadline=time.monotonic() + patience)


def _findings(sections: dict[str, "Section"]) -> list["Finding"]:
    return [finding for section in sections.values() for finding in section.findings]


# --- what is shown --------------------------------------------------------------------------------


def _shown(world: World, sections: dict[str, "Section"]) -> Output:
    found = _findings(sections)
    if world.json:
        output = _json(found)
    else:
        lines = partial(_lines, world.program, sections)
        output = render.shown(world, sections, lines, partial(_for_people, world.program))
    output.exit = int(any(finding.severity in _BAD for finding in found))
    bugs = [section.bug for section in sections.values() if section.bug]
    if bugs:
        bug = Internal("the check itself failed")
        bug.__cause__ = RuntimeError("\n".join(bugs))
        output.exit, output.bug = bug.exit, bug
        output.stderr = line(world, "doctor", bug)
    return output


def _json(findings: list["Finding"]) -> Output:
    names = ("check", "severity", "message", "hint")
    rows: list[dict[str, object]] = [
        {name: getattr(finding, name) for name in names} | {"fixable": finding.repair is not None}
        for finding in findings
    ]
    return render.to_json(rows)


def _lines(program: str, sections: dict[str, "Section"]) -> Iterator[str]:
    found = _findings(sections)
    for name, section in sections.items():
        if fine := _fine(section):
            yield f"ok: {name}: {', '.join(fine)}"
    for finding in found:
        if finding.severity == "ok" and finding.check in _TELLING:
            yield f"{finding.check}: {finding.message}"
    wrong = [finding for finding in found if finding.severity in _SHOWN]
    for finding in sorted(wrong, key=lambda f: _SHOWN.index(f.severity)):
        yield f"{finding.severity}: {finding.check}: {finding.message}"
        if finding.hint:
            yield f"  do this: {advice(program, finding.hint)}"
    yield _verdict(found)


_SIGNS = {"error": "bad", "warning": "doubt", "note": "note", "fixed": "good"}


def _for_people(
    program: str, sections: dict[str, "Section"], _f: object, screen: Any
) -> Iterator[str]:
    """First whether anything is wrong and what to do, then what is fine."""
    found = _findings(sections)
    wrong = [finding for finding in found if finding.severity in _SHOWN]
    is_bad = any(finding.severity in _BAD for finding in wrong)
    yield from screen.bad(_verdict(found)) if is_bad else screen.good(_verdict(found))
    yield ""
    for finding in sorted(wrong, key=lambda f: -_SHOWN.index(f.severity)):
        yield from getattr(screen, _SIGNS[finding.severity])(f"{finding.check}: {finding.message}")
        if finding.hint:
            yield from screen.advice(advice(program, finding.hint))
    if wrong:
        yield ""
    for finding in found:
        if finding.severity == "ok" and finding.check in _TELLING:
            yield from screen.note(f"{finding.check}: {finding.message}")
    for name, section in sections.items():
        if fine := _fine(section):
            yield from screen.good(f"{name}: {', '.join(fine)}")


def _fine(section: "Section") -> list[str]:
    other = {finding.check for finding in section.findings if finding.severity != "ok"}
    return list(dict.fromkeys(f.check for f in section.findings if f.check not in other))


def _verdict(findings: list["Finding"]) -> str:
    counts = {s: sum(f.severity == s for f in findings) for s in reversed(_SHOWN)}
    told = [f"{n} {s}{'s' if n > 1 and s != 'fixed' else ''}" for s, n in counts.items() if n]
    if not any(counts[severity] for severity in _BAD):
        told.append("no action needed")
    return ", ".join(told)


VERBS = [
    Command(
        "doctor",
        Doctor,
        lambda world, f: Local(lambda _ask: doctor(world, f)),
        human=partial(_for_people, "icctl"),
        summary="Diagnose problems and suggest repairs.",
        examples=["icctl doctor", "icctl doctor --fix", "icctl doctor --json --timeout=20s"],
    ),
]
