"""`icctl discovery …`"""

import click
from msgspec import Raw

from icd.app import render
from icd.app.invocation import Ask, Output, World
from icd.app.types import SCORE, SPAN, Whole
from icd.errors import Usage
from icd.features.discoveries import methods
from icd.features.discoveries import (
    profile_commands as profiles,
)
from icd.features.discoveries import (
    search_commands as searches,
)
from icd.features.discoveries import (
    submit_commands as submissions,
)
from icd.features.discoveries.store import STATUSES, Status
from icd.features.discoveries.submit_commands import content
from icd.features.discoveries.tiers import TIERS, Tier
from icd.values.wire import INT64

# Until the year 9999, like all times.
UNIX = Whole(0, 253_402_300_799)
COUNT = Whole(-INT64, INT64 - 1)


@click.command("status", add_help_option=False, short_help="Show a discovery; exit 1 if absent.")
@click.argument("id_", metavar="ID")
def status(world: World, *, id_: str) -> Ask:
    """Print a discovery: id, source, title, status, effective score and tier, between tabs.

    --json tells everything about it.

    \b
    Examples:
      icctl discovery status k3v9x0a1b2c4
      icctl discovery status k3v9x0a1b2c4 --json
    """

    def show(found: methods.View) -> Output:
        return render.in_order(found) if world.json else render.text(row(found))

    return Ask("discovery.get", methods.Get(id_), show)


@click.command("list", add_help_option=False, short_help="List discoveries, the best first.")
@click.option("--source", metavar="S", help="Only of this source.")
@click.option("--status", type=click.Choice(STATUSES), help="Only with this status.")
@click.option("--tier", type=click.Choice(TIERS), help="Only of this tier.")
@click.option("--limit", type=COUNT, default=100, metavar="N", help="At most N (default 100).")
def list_(
    world: World, *, source: str | None, status: Status | None, tier: Tier | None, limit: int
) -> Ask:
    """Print discoveries in the columns of 'discovery status', the highest effective score first.

    \b
    Examples:
      icctl discovery list --tier=high
      icctl discovery list --source=arxiv --status=new --json
    """
    most = min(limit, methods.MOST) if limit > 0 else methods.LIMIT
    params = methods.List(source=source or None, status=status, tier=tier, limit=most)

    def show(found: list[methods.View]) -> Output:
        return render.in_order(found) if world.json else render.text(*map(row, found))

    return Ask("discovery.list", params, show)


@click.command("score", add_help_option=False, short_help="Give a discovery another score.")
@click.argument("id_", metavar="ID")
@click.option("--score", type=SCORE, required=True, metavar="F", help="From 0 to 1.")
def score(world: World, *, id_: str, score: float) -> Ask:
    """Give a discovery another score; it has not decayed then.

    Exit 1 if there is no such discovery, or if it was promoted or dismissed.

    \b
    Example:
      icctl discovery score k3v9x0a1b2c4 --score=0.75
    """

    def show(result: methods.Scored) -> Output:
        told = f"{result.relevance_score:.2f} ({result.confidence_tier})"
        return render.text(f"scored {result.id}: {told}")

    params = methods.Score(id_, score)
    return Ask("discovery.score", params, render.to_json if world.json else show)


@click.command("promote", add_help_option=False, short_help="Give a discovery a bead.")
@click.argument("id_", metavar="ID")
@click.option("--bead-id", required=True, metavar="B", help="The bead that it becomes.")
@click.option("--force", is_flag=True, help="Whatever its score is; this is recorded.")
@click.option("--actor", metavar="A", help="Who forces it; else the session.")
def promote(world: World, *, id_: str, bead_id: str, force: bool, actor: str | None) -> Ask:
    """Promote a discovery to a bead, if its effective score reaches the promotion threshold.

    Exit 1 if it does not, if the discovery was dismissed, or if it has another bead.
    The same bead again changes nothing.

    \b
    Examples:
      icctl discovery promote k3v9x0a1b2c4 --bead-id=ic-42
      icctl discovery promote k3v9x0a1b2c4 --bead-id=ic-42 --force --actor=me
    """
    if actor is not None and not force:
        raise Usage("--actor goes with --force")

    def show(result: methods.Promoted) -> Output:
        return render.text(f"promoted {result.id} → {result.bead_id}")

    params = methods.Promote(id_, bead_id, force=force, actor=actor)
    return Ask("discovery.promote", params, render.to_json if world.json else show)


@click.command("dismiss", add_help_option=False, short_help="Put a discovery aside.")
@click.argument("id_", metavar="ID")
def dismiss(world: World, *, id_: str) -> Ask:
    """Dismiss a discovery, also one that was promoted; a second time changes nothing.

    \b
    Example:
      icctl discovery dismiss k3v9x0a1b2c4
    """

    def show(result: methods.Dismissed) -> Output:
        return render.text(f"dismissed {result.id}")

    return Ask("discovery.dismiss", methods.Dismiss(id_), render.to_json if world.json else show)


@click.command("feedback", add_help_option=False, short_help="Record what somebody thinks of it.")
@click.argument("id_", metavar="ID")
@click.option("--signal", required=True, metavar="S", help="Any word, such as promote or dismiss.")
@click.option("--data", metavar="JSON", help="More about it, or @FILE.")
@click.option("--actor", default="system", metavar="A", help="Whose signal it is.")
def feedback(world: World, *, id_: str, signal: str, data: str | None, actor: str) -> Ask:
    """Record a signal about a discovery; signals are only ever added.

    The score stays as it is, unless the setting feedback_learning_rate says otherwise.

    \b
    Examples:
      icctl discovery feedback k3v9x0a1b2c4 --signal=boost --actor=me
      icctl discovery feedback k3v9x0a1b2c4 --signal=read --data='{"seconds":40}'
    """

    def show(result: methods.Recorded) -> Output:
        return render.text(f"feedback recorded: {result.id} {result.signal}")

    params = methods.Feedback(id_, signal, Raw(content(world, data or "{}")), actor)
    return Ask("discovery.feedback", params, render.to_json if world.json else show)


@click.command("decay", add_help_option=False, short_help="Let old discoveries fade.")
@click.option("--rate", type=SCORE, metavar="F", help="The part that is lost: score x (1 - F).")
@click.option("--factor", type=SCORE, metavar="F", help="The part that is left: score x F.")
@click.option(
    "--min-age", type=SPAN, default="86400", metavar="D", help="Only those older (default 86400 s)."
)
@click.option(
    "--every", type=SPAN, default="24h", metavar="D", help="Each at most this often (24h)."
)
@click.option(
    "--min-floor", type=SCORE, default=methods.MIN_FLOOR, metavar="F", help="The least factor."
)
def decay(
    world: World,
    *,
    rate: float | None,
    factor: float | None,
    min_age: int,
    every: int,
    min_floor: float,
) -> Ask:
    """Multiply the scores of old discoveries by 1 - rate, or by a factor; print how many.

    --rate=0.1 and --factor=0.9 are the same: a score of 0.80 becomes 0.72.
    --rate=0.9 leaves a tenth: 0.80 becomes 0.08.
    If any decayed, a line on stderr says what was done.

    A discovery decays at most once in --every, so that two of these at once do what one does.
    Its factor never falls below --min-floor; a new score starts without decay.
    What was promoted or dismissed does not decay.
    A daily job is never on time to the second: it says --every=20h.

    \b
    Examples:
      icctl discovery decay --rate=0.1 --every=20h
      icctl discovery decay --factor=0.9 --every=20h
      icctl discovery decay --rate=0.05 --min-age=7d --every=12h --min-floor=0.2
    """
    if (rate is None) == (factor is None):
        raise Usage("give either --rate or --factor", hint="--rate=0.1 is --factor=0.9")
    lost = rate if rate is not None else _rest(factor or 0.0)

    def show(result: methods.Decayed) -> Output:
        if world.json:
            return render.to_json(result)
        output = render.text(f"{result.decayed} decayed")
        if not result.decayed:
            return output
        done = f"multiplied the scores of {result.decayed} by {_rest(lost):g} (--rate={lost:g})"
        output.stderr = f"{world.program}: discovery decay: {done}\n".encode()
        return output

    return Ask("discovery.decay", methods.Decay(lost, min_age, every, min_floor), show)


def _rest(part: float) -> float:
    """What is missing to 1, in the millionths that scores are kept in: 0.1, not 0.09999999."""
    return round(1 - part, 6)


@click.command("retire", add_help_option=False, short_help="Dismiss what a source found since.")
@click.option("--source", required=True, metavar="S", help="Whose discoveries.")
@click.option("--since", type=UNIX, required=True, metavar="UNIX", help="Found then or later.")
@click.option("--apply", is_flag=True, help="Dismiss them.")
@click.option("--dry-run", is_flag=True, help="Only list them: the default.")
def retire(world: World, *, source: str, since: int, apply: bool, dry_run: bool) -> Ask:
    """List what a source has found since a moment, or dismiss it with --apply.

    Without --apply nothing is changed: the candidates are printed like 'discovery list' does.
    What was promoted or dismissed is no candidate.

    \b
    Examples:
      icctl discovery retire --source=exa --since="$(date -d yesterday +%s)"
      icctl discovery retire --source=exa --since=1767225600 --apply
    """
    if apply and dry_run:
        raise Usage("give either --apply or --dry-run")

    def show(result: methods.Retired) -> Output:
        if world.json:
            return render.in_order(result)
        if result.applied:
            return render.text(f"{result.count} dismissed")
        return render.text(*map(row, result.discoveries))

    return Ask("discovery.retire", methods.Retire(source, since, apply=apply), show)


@click.command("rollback", add_help_option=False, short_help="Count what 'retire' would dismiss.")
@click.option("--source", required=True, metavar="S", help="Whose discoveries.")
@click.option("--since", type=UNIX, required=True, metavar="UNIX", help="Found then or later.")
@click.option("--apply", is_flag=True, help="Dismiss them.")
@click.option("--dry-run", is_flag=True, help="Only count them: the default.")
def rollback(world: World, *, source: str, since: int, apply: bool, dry_run: bool) -> Ask:
    """Print how many discoveries of a source since a moment would be dismissed.

    Without --apply nothing is changed, and a line on stderr says so; with it they are dismissed.
    The name that the original has for 'discovery retire', which lists them; the original acts at
    once.

    \b
    Examples:
      icctl discovery rollback --source=exa --since=1767225600
      icctl discovery rollback --source=exa --since=1767225600 --apply
    """
    if apply and dry_run:
        raise Usage("give either --apply or --dry-run")

    def show(result: methods.Retired) -> Output:
        output = render.in_order(result) if world.json else render.text(str(result.count))
        if not result.applied:
            told = "nothing was changed; add --apply to dismiss them"
            output.stderr = f"{world.program}: discovery rollback: {told}\n".encode()
        return output

    return Ask("discovery.retire", methods.Retire(source, since, apply=apply), show)


def row(found: methods.View) -> str:
    """The columns of the original."""
    columns = (
        found.id,
        found.source,
        render.one_line(found.title),
        found.status,
        f"{found.relevance_score:.2f}",
        found.confidence_tier,
    )
    return render.columns(*columns)


COMMANDS = [
    *submissions.COMMANDS,
    status,
    list_,
    score,
    promote,
    dismiss,
    feedback,
    decay,
    retire,
    rollback,
    *searches.COMMANDS,
    *profiles.COMMANDS,
]
