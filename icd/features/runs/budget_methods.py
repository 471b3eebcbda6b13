"""run.tokens, run.budget: what a run has used, and what it may use."""

from icd.app.call import Context, Params
from icd.app.verb import Method
from icd.features.runs import budget as budgets
from icd.features.runs import store as runs
from icd.values.wire import Result


class Tokens(Params):
    run_id: str


class Budget(Params):
    run_id: str


class Used(Result):
    """`cache_ratio`, in percent, is there once there was any input."""

    run_id: str
    input_tokens: int
    output_tokens: int
    cache_hits: int
    total_tokens: int
    cache_ratio: int | float | None = None


class Standing(Result):
    """`message` instead of the rest: there is no budget."""

    run_id: str
    budget: int | None
    used: int | None = None
    usage_pct: int | float | None = None
    warn_pct: int | None = None
    warning: bool | None = None
    exceeded: bool | None = None
    message: str = ""


def tokens(ctx: Context, p: Tokens) -> Used:
    return used(p.run_id, budgets.tokens(ctx.conn, p.run_id))


def budget(ctx: Context, p: Budget) -> Standing:
    run = runs.find(ctx.conn, p.run_id)
    return standing(p.run_id, None if run is None else budgets.of_run(ctx.conn, run))


def used(run_id: str, found: budgets.Tokens) -> Used:
    return Used(
        run_id=run_id,
        input_tokens=found.input_tokens,
        output_tokens=found.output_tokens,
        cache_hits=found.cache_hits,
        total_tokens=found.total,
        cache_ratio=found.cache_ratio,
    )


def standing(run_id: str, found: budgets.Budget | None) -> Standing:
    if found is None:
        return Standing(run_id, budget=None, message="no budget set")
    return Standing(
        run_id=run_id,
        budget=found.budget,
        used=found.used,
        usage_pct=found.usage_pct,
        warn_pct=found.warn_pct,
        warning=found.warning,
        exceeded=found.exceeded,
    )


METHODS = [
    Method("run.tokens", Tokens, Used, tokens),
    Method("run.budget", Budget, Standing, budget),
]
