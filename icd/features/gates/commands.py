"""`icctl gate …`"""

import click

from icd.app import render
from icd.app.invocation import Ask, Output, World
from icd.app.types import Whole
from icd.features.gates import methods
from icd.features.gates import rules as gate_rules
from icd.features.gates import store as gates
from icd.features.gates.checks import Condition
from icd.features.runs import phases

# Whoever counts priorities in another way is not turned away.
PRIORITY = Whole(-(2**31), 2**31 - 1)


@click.command("check", add_help_option=False, short_help="May a run go on: yes (0) or no (1)?")
@click.argument("run")
@click.option(
    "--priority",
    type=PRIORITY,
    default=gates.DEFAULT_PRIORITY,
    metavar="N",
    help="Of the work: up to 1 hard, 2 and 3 soft, from 4 on unchecked (default 3).",
)
def check(world: World, *, run: str, priority: int) -> Ask:
    """Tell whether RUN may go on to its next phase, and what was found; changes nothing.

    The next phase is where an advance would go: over all phases that are skipped, whose gates count
    nevertheless.
    Prints the transition, the result (pass, fail or none) and the tier, then a line for each check.
    Exit 1 if it fails, also where the gate is soft and an advance would go on.

    \b
    Examples:
      icctl gate check "$RUN"
      icctl gate check "$RUN" --priority=0 || echo "not yet"
    """

    def show(result: methods.Checked) -> Output:
        exit_code = 1 if result.result == "fail" else 0
        if world.json:
            output = render.lines([result])
            output.exit = exit_code
            return output
        arrow = f"{result.from_phase} → {result.to_phase}"
        found = result.evidence.conditions if result.evidence else []
        return render.text(
            f"{arrow}: {result.result} (tier: {result.tier})",
            *(_condition(condition) for condition in found),
            exit_code=exit_code,
        )

    return Ask("gate.check", methods.Check(run, priority), show)


@click.command("override", add_help_option=False, short_help="Go on though a gate is closed.")
@click.argument("run")
@click.option("--reason", required=True, metavar="TEXT", help="Why; it is recorded.")
def override(world: World, *, run: str, reason: str) -> Ask:
    """Take RUN to the very next phase of its chain, whatever its gates say.

    Phases that are skipped are not passed over.
    Records an event of the type override with the reason.

    \b
    Example:
      icctl gate override "$RUN" --reason="reviewed by hand"
    """

    def show(result: methods.Overridden) -> Output:
        if world.json:
            return render.to_json(result)
        arrow = f"{result.from_phase} → {result.to_phase}"
        return render.text(f"{arrow} (override: {result.reason})")

    return Ask("gate.override", methods.Override(run, reason), show)


@click.command("rules", add_help_option=False, short_help="List what is checked, and where.")
@click.option("--phase", metavar="FROM", help="Only what is checked before leaving this phase.")
@click.option("--run", metavar="RUN", help="The rules of this run, which may have its own.")
def rules(world: World, *, phase: str | None, run: str | None) -> Ask | Output:
    """List the rules of gates: the transition, a tab, and what is checked, a line each.

    Without --run the default ones, for which no database is needed.
    With --json they are in the shape that 'run create --gates' takes.

    \b
    Examples:
      icctl gate rules
      icctl gate rules --phase=review
      icctl gate rules --run="$RUN" --json
    """

    def show(found: list[gate_rules.Rule]) -> Output:
        if world.json:
            return render.to_json(found)
        return render.text(*(line for rule in found for line in _lines(rule)))

    if run is None:
        return show(gate_rules.met(gate_rules.DEFAULT, phases.DEFAULT, phase))
    return Ask("gate.rules", methods.Rules(run, phase), show)


def _condition(found: Condition) -> str:
    """`  [FAIL] check (count: N) — detail`, and the transition where a run passes over several."""
    line = f"  [{found.result.upper()}] {found.check}"
    if found.from_phase is not None:
        line += f" ({found.from_phase} → {found.to_phase})"
    if found.count is not None:
        line += f" (count: {found.count})"
    return line if found.detail is None else f"{line} — {found.detail}"


def _lines(rule: gate_rules.Rule) -> list[str]:
    arrow = f"{rule.from_phase} → {rule.to_phase}"
    about = [f" (phase: {check.phase})" if check.phase else "" for check in rule.checks]
    return [
        render.columns(arrow, f"{c.check}{phase}")
        for c, phase in zip(rule.checks, about, strict=True)
    ]


COMMANDS = [check, override, rules]
