"""`icctl doctor`"""

import os
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from icd.app import render
from icd.app.invocation import Caller, Local, Output, World, advice, line
from icd.errors import Internal

if TYPE_CHECKING:
    from icd.admin.doctor.context import Scene
    from icd.admin.doctor.examination import Section
    from icd.admin.doctor.findings import Finding

# What a person wants to read also when it is fine.
_TELLING = ("database", "daemon")
_BAD = ("warning", "error")
_SHOWN = ("fixed", "note", *_BAD)


@click.command("doctor", add_help_option=False, short_help="Explain what is wrong here.")
@click.option("--fix", is_flag=True, help="Do the safe repairs, too.")
def doctor(world: World, *, fix: bool) -> Local:
    """Look at the database, the daemon and all around; say what is wrong, and what to do.

    Exit 0 if nothing needs to be done, 1 if there are warnings or errors.
    Nothing is changed, unless with --fix: then modes of your own files are set right, a socket
    that nobody listens at and what is left of interrupted backups are removed, and a missing
    .clavain/.gitignore is written.

    \b
    Examples:
      icctl doctor
      icctl doctor --fix
      icctl doctor --json --timeout=20s
    """

    def run(_ask: Caller) -> Output:
        from icd.admin.doctor.examination import examine, repair  # only this command pays for it

        scene = _scene(world)
        patience = scene.deadline - time.monotonic()
        sections = examine(scene)
        if fix and any(f.repair is not None for section in sections for f in section.findings):
            # Each of look, repair and look again has as much time as the caller gave.
            done = repair(_until(scene, patience), sections)
            sections = [*examine(_until(scene, patience)), done]
        return _shown(world, sections)

    return Local(run)


def _scene(world: World) -> "Scene":
    from icd.admin.doctor.context import Scene
    from icd.features.shell.verbs import PATH

    invocation = world
    return Scene(
        where=world.where,
        env=invocation.env,
        uid=os.geteuid(),
        now_ms=time.time_ns() // 1_000_000,
        deadline=invocation.deadline,
        door=invocation.door,
        library=PATH,
        units=partial(_units, invocation.env),
        sight=invocation.sight and invocation.sight(),
    )


def _units(env: dict[str, str]) -> dict[str, str]:
    from icd.admin.service import units

    return {u.name: u.found for u in units.look(env, sys.executable) if u.name != units.SANDBOX}


def _until(scene: "Scene", patience: float) -> "Scene":
    return replace(scene, deadline=time.monotonic() + patience)


def _shown(world: World, sections: list["Section"]) -> Output:
    found = [finding for section in sections for finding in section.findings]
    bad = any(finding.severity in _BAD for finding in found)
    program = world.program
    output = _json(found) if world.json else render.text(*_lines(program, sections, found))
    output.exit = int(bad)
    bugs = [section.bug for section in sections if section.bug]
    if bugs:
        bug = Internal("a check failed, and what it looks at is unknown")
        bug.__cause__ = RuntimeError("\n".join(bugs))
        output.exit, output.bug = bug.exit, bug
        output.stderr = line(world.program, "doctor", bug)
    return output


def _json(findings: list["Finding"]) -> Output:
    names = ("check", "severity", "message", "hint")
    rows: list[dict[str, object]] = [
        {name: getattr(finding, name) for name in names} | {"fixable": finding.repair is not None}
        for finding in findings
    ]
    return render.to_json(rows)


def _lines(program: str, sections: list["Section"], findings: list["Finding"]) -> list[str]:
    lines = [_fine(section) for section in sections]
    lines += [
        f"{finding.check}: {finding.message}"
        for finding in findings
        if finding.severity == "ok" and finding.check in _TELLING
    ]
    for severity in _SHOWN:
        for finding in findings:
            if finding.severity == severity:
                lines.append(f"{severity}: {finding.check}: {finding.message}")
                lines += [f"  do this: {advice(program, finding.hint)}"] if finding.hint else []
    return [*(text for text in lines if text), _verdict(findings)]


def _fine(section: "Section") -> str:
    """The names of the checks that found nothing wrong."""
    wrong = {finding.check for finding in section.findings if finding.severity != "ok"}
    names = dict.fromkeys(f.check for f in section.findings if f.check not in wrong)
    return f"fine: {section.name}: {', '.join(names)}" if names else ""


def _verdict(findings: list["Finding"]) -> str:
    counts = {s: sum(f.severity == s for f in findings) for s in reversed(_SHOWN)}
    told = [f"{n} {s}{'s' if n > 1 and s != 'fixed' else ''}" for s, n in counts.items() if n]
    if not any(counts[severity] for severity in _BAD):
        told.append("nothing needs to be done")
    return ", ".join(told)


COMMANDS = [doctor]
