"""`icctl sentinel …`"""

import click

from icd.app import render
from icd.app.invocation import Ask, Output, World
from icd.app.types import DURATION, Seconds
from icd.errors import Usage
from icd.features.sentinels import methods
from icd.features.sentinels.store import MAX_INTERVAL_S

SECONDS = Seconds(0, MAX_INTERVAL_S)


@click.command("check", add_help_option=False, short_help="Claim it: allowed (0) or throttled (1).")
@click.argument("name")
@click.argument("scope")
@click.option(
    "--interval",
    type=SECONDS,
    required=True,
    metavar="SECONDS",
    help="Allow one claim per interval; 0 allows one for ever.",
)
def check(world: World, *, name: str, scope: str, interval: int) -> Ask:
    """Claim a sentinel: prints allowed (exit 0) or throttled (exit 1).

    Of all who ask within an interval, exactly one is allowed.
    An interval is a number of seconds, or a duration such as 5m, rounded up to seconds.
    Interval 0 allows one claim per scope, for ever, until it is reset or pruned.
    A crash after "allowed" blocks the retry: the claim is made, whether the work was done or not.
    For work that must complete, record started and done in state as well
    (see docs/examples/started-done.sh).

    \b
    Examples:
      icctl sentinel check stop "$SESSION" --interval=0 || exit 0
      icctl sentinel check drift "$SESSION" --interval=300
      icctl sentinel check daily global --interval=24h
    """

    def show(result: methods.Checked) -> Output:
        if world.json:
            return render.to_json(result, 0 if result.allowed else 1)
        return render.text(_verdict(result), exit_code=0 if result.allowed else 1)

    return Ask("sentinel.check", methods.Check(name, scope, interval), show)


@click.command("check-many", add_help_option=False, short_help="Claim several at once.")
@click.argument("guards", nargs=-1, required=True, metavar="NAME:SCOPE:INTERVAL...")
def check_many(world: World, *, guards: tuple[str, ...]) -> Ask:
    """Claim several sentinels in one transaction, one verdict per line.

    Prints name, scope and verdict, separated by tabs.
    Exit 0 if all are allowed, 1 if any is throttled; claims are independent and those granted
    stand.
    NAME ends at the first colon, INTERVAL (seconds, or a duration) starts after the last.

    \b
    Example:
      icctl sentinel check-many "stop:$SESSION:0" "drift:$SESSION:300"
    """
    claims = [_guard(guard) for guard in guards]
    if len(claims) > methods.MANY:
        raise Usage(f"at most {methods.MANY} sentinels in one call")

    def show(results: list[methods.Checked]) -> Output:
        exit_code = 0 if all(result.allowed for result in results) else 1
        if world.json:
            return render.to_json(results, exit_code)
        lines = (render.columns(r.name, r.scope_id, _verdict(r)) for r in results)
        return render.text(*lines, exit_code=exit_code)

    return Ask("sentinel.check_many", methods.CheckMany(claims), show)


@click.command("reset", add_help_option=False, short_help="Forget a claim.")
@click.argument("name")
@click.argument("scope", required=False, metavar="[SCOPE]")
@click.option("--all", "every", is_flag=True, help="Reset NAME in all scopes.")
def reset(world: World, *, name: str, scope: str | None, every: bool) -> Ask:
    """Forget a claim, so that the next check is allowed.

    \b
    Examples:
      icctl sentinel reset stop "$SESSION"
      icctl sentinel reset --all stop
    """
    if every == (scope is not None):
        raise Usage("give either a scope or --all")

    def show(result: methods.ResetCount) -> Output:
        if every:
            return render.text(f"{result.reset} reset")
        return render.text("reset" if result.reset else "not found")

    shown = render.to_json if world.json else show
    if every:
        return Ask("sentinel.reset_all", methods.ResetAll(name), shown)
    return Ask("sentinel.reset", methods.Reset(name, scope or ""), shown)


@click.command("list", add_help_option=False, short_help="List claims and when they were made.")
def list_(world: World) -> Ask:
    """Print name, scope and the unix time of the last claim, separated by tabs.

    \b
    Example:
      icctl sentinel list
    """

    def show(found: list[methods.Fired]) -> Output:
        return render.text(*(render.columns(s.name, s.scope_id, s.last_fired) for s in found))

    return Ask("sentinel.list", methods.List(), render.to_json if world.json else show)


@click.command("prune", add_help_option=False, short_help="Delete old claims.")
@click.option(
    "--older-than", type=DURATION, required=True, help="Last claimed at least this long ago."
)
@click.option("--keep-once", is_flag=True, help="Leave once-only claims (interval 0) alone.")
@click.option("--keep-live", is_flag=True, help="Leave alone what still throttles somebody.")
def prune(world: World, *, older_than: int, keep_once: bool, keep_live: bool) -> Ask:
    """Delete old claims, once-only ones included unless --keep-once is given.

    \b
    Example:
      icctl sentinel prune --older-than=7d --keep-once
    """

    def show(result: methods.Pruned) -> Output:
        return render.text(f"{result.pruned} pruned")

    params = methods.Prune(older_than_ms=older_than, keep_once=keep_once, keep_live=keep_live)
    return Ask("sentinel.prune", params, render.to_json if world.json else show)


def _guard(text: str) -> methods.Claim:
    name, colon, rest = text.partition(":")
    scope, second, interval = rest.rpartition(":")
    if not (colon and second):
        raise Usage(f"{text!r} is not NAME:SCOPE:INTERVAL")
    return methods.Claim(name, scope, SECONDS.convert(interval, None, None))


def _verdict(result: methods.Checked) -> str:
    return "allowed" if result.allowed else "throttled"


COMMANDS = [check, check_many, reset, list_, prune]
