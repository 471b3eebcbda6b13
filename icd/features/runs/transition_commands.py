"""`icctl run …`: what happens to a run."""

from collections.abc import Callable

import click
import msgspec

from icd.app import invocation, render
from icd.app.invocation import Ask, Output, World
from icd.app.types import TRUTH, Whole
from icd.errors import Usage
from icd.features.gates import store as gates
from icd.features.runs import artifact_commands as artifacts
from icd.features.runs import transition_methods as methods
from icd.features.runs.transitions import Advance
from icd.values.wire import INT64

RUN = click.argument("run_id", metavar="RUN")
# What is in the way of an advance, and how to go on.
_ADVICE = {
    "block": "a hard gate is closed; see 'icctl gate check {0} --priority=0', or go on with "
    "'icctl gate override {0} --reason=…'",
    "pause": "auto_advance is off; go on with --skip-reason, "
    "or 'icctl run set {0} --auto-advance=true'",
}


@click.command("advance", add_help_option=False, short_help="Go to the next phase.")
@RUN
@click.option(
    "--priority",
    type=Whole(-INT64, INT64 - 1),
    default=gates.DEFAULT_PRIORITY,
    metavar="N",
    help=f"Up to 1: gates are hard; up to 3: soft; else none (default {gates.DEFAULT_PRIORITY}).",
)
@click.option("--disable-gates", is_flag=True, help="Ask no gate.")
@click.option("--skip-reason", default="", metavar="TEXT", help="Why to go on though auto is off.")
@click.option("--if-phase", metavar="P", help="Only if it is in this phase.")
def advance(
    world: World,
    *,
    run_id: str,
    priority: int,
    disable_gates: bool,
    skip_reason: str,
    if_phase: str | None,
) -> Ask:
    """Go to the next phase that is not skipped, and print from where to where.

    Exit 1 if a hard gate blocks it, or if it pauses because auto_advance is off: both are recorded.
    With --if-phase a run that is in another phase stays there, exit 1, and the answer says who
    moved it: of several who advance at once, one does.

    \b
    Examples:
      icctl run advance "$RUN"
      icctl run advance "$RUN" --if-phase=planned --priority=1
      icctl run advance "$RUN" --skip-reason="approved"
    """

    def show(found: Advance) -> Output:
        exit_code = 0 if found.advanced else 1
        if world.json:
            output = render.to_json(found, exit_code)
        else:
            output = render.text(_outcome(found), exit_code=exit_code)
        if advice := _ADVICE.get(found.event_type):
            output.stderr = _note(world, "run advance", advice.format(run_id))
        if found.spawns:
            _continue(world, output, ["dispatch", "auto-spawn", run_id], "its agents")
        return output

    params = methods.AdvanceRun(run_id, priority, disable_gates, skip_reason, if_phase)
    return Ask("run.advance", params, show)


@click.command("skip", add_help_option=False, short_help="Pass over a phase ahead.")
@RUN
@click.argument("phase")
@click.option("--reason", required=True, metavar="TEXT", help="Why.")
@click.option("--actor", metavar="A", help="Who decided it.")
def skip(world: World, *, run_id: str, phase: str, reason: str, actor: str | None) -> Ask:
    """Have the run pass over a phase ahead of it; not over its last one.

    The gates on the way are asked all the same.
    A rollback to before that phase forgets it.

    \b
    Example:
      icctl run skip "$RUN" polish --reason="nothing to polish" --actor=lead
    """
    if not reason:
        raise Usage("--reason is empty")

    def show(found: methods.Skipped) -> Output:
        return render.text(f"skipped: {found.phase}")

    params = methods.Skip(run_id, phase, reason, actor)
    return Ask("run.skip", params, render.to_json if world.json else show)


@click.command("cancel", add_help_option=False, short_help="End a run: it is not wanted any more.")
@RUN
def cancel(world: World, *, run_id: str) -> Ask:
    """End a run that is not wanted any more; exit 1 if it has ended already.

    \b
    Example:
      icctl run cancel "$RUN"
    """
    return Ask("run.cancel", methods.Cancel(run_id), _changed(world))


@click.command("abandon", add_help_option=False, short_help="End a run: nobody works on it.")
@RUN
@click.option("--reason", default="", metavar="TEXT", help="Why.")
def abandon(world: World, *, run_id: str, reason: str) -> Ask:
    """End a run that nobody works on any more, so that others may begin with its scope.

    \b
    Example:
      icctl run abandon "$RUN" --reason="its session crashed"
    """
    return Ask("run.abandon", methods.Abandon(run_id, reason), _changed(world))


@click.command("set", add_help_option=False, short_help="Change settings of a run.")
@RUN
@click.option("--complexity", type=Whole(1, 5), metavar="1..5", help="Kept for those who ask.")
@click.option("--auto-advance", type=TRUTH, metavar="BOOL", help="Whether 'run advance' goes on.")
@click.option("--force-full", type=TRUTH, metavar="BOOL", help="Kept for those who ask.")
def set_(
    world: World,
    *,
    run_id: str,
    complexity: int | None,
    auto_advance: bool | None,
    force_full: bool | None,
) -> Ask:
    """Change settings of an active run.

    Without auto-advance, 'run advance' needs a --skip-reason.

    \b
    Example:
      icctl run set "$RUN" --auto-advance=false
    """
    params = methods.Set(run_id, complexity, auto_advance, force_full)
    return Ask("run.set", params, _changed(world))


@click.command("rollback", add_help_option=False, short_help="Go back to an earlier phase.")
@RUN
@click.option("--to-phase", metavar="P", help="The phase to go back to.")
@click.option("--reason", default="", metavar="TEXT", help="Why.")
@click.option("--dry-run", is_flag=True, help="Only tell what would be rolled back.")
@click.option("--layer", type=click.Choice(["code"]), help="List the files of phases instead.")
@click.option("--phase", metavar="P", help="With --layer=code: only the files of this phase.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["json", "text"]),
    default="json",
    help="With --layer=code: how (default json).",
)
def rollback(
    world: World,
    *,
    run_id: str,
    to_phase: str | None,
    reason: str,
    dry_run: bool,
    layer: str | None,
    phase: str | None,
    form: str,
) -> Ask:
    """Go back to an earlier phase, and tell as JSON what that took back.

    Artifacts of the phases since are marked, skips of them are forgotten, all active agents of the
    run have failed, and its dispatches are cancelled.
    A completed run is active again; any other that has ended is refused, exit 2.

    \b
    Examples:
      icctl run rollback "$RUN" --to-phase=planned --dry-run
      icctl run rollback "$RUN" --to-phase=planned --reason="wrong plan"
      icctl run rollback "$RUN" --layer=code --phase=executing
    """
    if layer is not None:
        return artifacts.code_rollback(run_id, phase, form)
    if to_phase is None:
        raise Usage("give --to-phase, or --layer=code")
    if phase is not None:
        raise Usage("--phase goes with --layer=code")

    def show(done: methods.RolledBack) -> Output:
        output = _indented(done)
        if done.dispatches:
            _continue(
                world,
                output,
                ["dispatch", "kill", "--if-running", "--quiet", *done.dispatches],
                "processes of its dispatches",
            )
        return output

    params = methods.Rollback(run_id, to_phase, reason, dry_run)
    return Ask("run.rollback", params, show)


def _changed(world: World) -> Callable[[methods.Changed], Output]:
    if world.json:
        return render.to_json
    return lambda found: render.text(found.status)


def _outcome(found: Advance) -> str:
    if found.advanced:
        return f"{found.from_phase} → {found.to_phase}"
    if found.event_type == "stale":
        return f"{found.from_phase} (stale: {found.reason})"
    return f"{found.from_phase} (blocked: {found.event_type})"


def _indented(value: object) -> Output:
    """As the original: over several lines, keys sorted."""
    data = render.to_json(value).stdout
    return Output(0, msgspec.json.format(data.rstrip(b"\n"), indent=2) + b"\n")


def _continue(world: World, output: Output, words: list[str], what: str) -> None:
    """Processes are started and ended by whoever asked, once it has been told the rest."""
    if world.continues:
        chosen = [] if world.db is None else ["--db", world.db]
        output.then = [*chosen, *words]
    else:
        output.stderr += _note(world, "run", f"{what}: run 'icctl {' '.join(words)}'")


def _note(world: World, context: str, text: str) -> bytes:
    program = world.program
    return f"{program}: {context}: {invocation.advice(program, text)}\n".encode()


COMMANDS = [advance, skip, cancel, abandon, set_, rollback]
