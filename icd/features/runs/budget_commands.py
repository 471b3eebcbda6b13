"""`icctl run tokens`, `icctl run budget`"""

import click

from icd.app import render
from icd.app.invocation import Ask, Output, World
from icd.features.runs import budget_methods as methods


@click.command("tokens", add_help_option=False, short_help="Show how many tokens a run has used.")
@click.argument("run")
def tokens(world: World, *, run: str) -> Ask:
    """Print the tokens that the dispatches of a run have used; of an unknown run, zeros.

    \b
    Examples:
      icctl run tokens "$RUN"
      icctl run tokens "$RUN" --json
    """

    def show(used: methods.Used) -> Output:
        lines = [
            f"Run: {used.run_id}",
            f"  Input tokens:  {used.input_tokens}",
            f"  Output tokens: {used.output_tokens}",
            f"  Cache hits:    {used.cache_hits}",
        ]
        if used.cache_ratio is not None:
            lines.append(f"  Cache ratio:   {used.cache_ratio:.1f}%")
        return render.text(*lines, f"  Total tokens:  {used.total_tokens}")

    return Ask("run.tokens", methods.Tokens(run), render.to_json if world.json else show)


@click.command("budget", add_help_option=False, short_help="Exit 1 if a run's budget is used up.")
@click.argument("run")
def budget(world: World, *, run: str) -> Ask:
    """Print how the token budget of a run stands; exit 1 as long as it is used up.

    \b
    Examples:
      icctl run budget "$RUN" || exit
      icctl run budget "$RUN" --json
    """

    def show(found: methods.Standing) -> Output:
        exit_code = 1 if found.exceeded else 0
        if world.json:
            return render.to_json(found, exit_code)
        return render.text(*_lines(found), exit_code=exit_code)

    return Ask("run.budget", methods.Budget(run), show)


def status(found: methods.Standing) -> str:
    return "EXCEEDED" if found.exceeded else "WARNING" if found.warning else "OK"


def _lines(found: methods.Standing) -> list[str]:
    if found.budget is None:
        return [f"Run {found.run_id}: no budget set"]
    return [
        f"Run: {found.run_id}",
        f"  Budget:    {found.budget} tokens",
        f"  Used:      {found.used} tokens ({found.usage_pct:.1f}%)",
        f"  Warn at:   {found.warn_pct}%",
        f"  Status:    {status(found)}",
    ]


COMMANDS = [tokens, budget]
