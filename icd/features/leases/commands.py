"""`icctl lease …`"""

import click

from icd.app import render
from icd.app.invocation import Ask, Output, World
from icd.app.types import SPAN, Whole
from icd.errors import Usage
from icd.features.leases import methods
from icd.features.state.store import INT64

TOKEN = Whole(1, INT64 - 1)

_owner = click.option("--owner", metavar="O", help="Who holds it; else $CLAUDE_SESSION_ID.")
_token = click.option(
    "--token", type=TOKEN, metavar="N", help="Only if this is still the lease's token."
)


@click.command("acquire", add_help_option=False, short_help="Claim work; exit 1 if it is taken.")
@click.argument("name")
@click.argument("scope")
@click.option("--ttl", type=SPAN, required=True, help="Others may take over after this long.")
@_owner
def acquire(world: World, *, name: str, scope: str, ttl: int, owner: str | None) -> Ask:
    """Claim work for a time, and print the fencing token of the claim.

    Exit 1 if somebody else holds it, with who, for how long, and the token.
    Whoever holds it already extends it and keeps its token.
    After its deadline anybody may take it over, with a greater token: renew it before.

    \b
    Examples:
      token=$(icctl lease acquire sprint "$BEAD" --ttl=30m) || exit 0
      icctl lease acquire deploy production --ttl=10m --owner="$USER" --json
    """
    params = methods.Acquire(name, scope, _who(world, owner), ttl)
    return Ask("lease.acquire", params, render.to_json if world.json else _show_token)


@click.command("renew", add_help_option=False, short_help="Keep a claim; exit 1 if it is lost.")
@click.argument("name")
@click.argument("scope")
@click.option("--ttl", type=SPAN, help="From now on; else as long as the last time.")
@_owner
@_token
def renew(world: World, *, name: str, scope: str, ttl: int | None, owner: str | None,
          token: int | None) -> Ask:  # fmt: skip
    """Move the deadline of a claim that you hold, and print its token.

    A deadline never moves to an earlier moment.
    Exit 1 if the claim is lost: its deadline has passed, it was released, or another has it.

    \b
    Examples:
      icctl lease renew sprint "$BEAD" || exit 1
      icctl lease renew sprint "$BEAD" --ttl=1h --token="$TOKEN"
    """
    params = methods.Renew(name, scope, _who(world, owner), ttl_ms=ttl, token=token)
    return Ask("lease.renew", params, render.to_json if world.json else _show_token)


@click.command("release", add_help_option=False, short_help="Give a claim up.")
@click.argument("name")
@click.argument("scope")
@_owner
@_token
def release(world: World, *, name: str, scope: str, owner: str | None, token: int | None) -> Ask:
    """Give a claim up; prints released, or not held if nobody holds it any more.

    Exit 1 if somebody else holds it by now, or if --token is not that of the last claim.

    \b
    Examples:
      icctl lease release sprint "$BEAD"
      icctl lease release sprint "$BEAD" --token="$TOKEN"
    """

    def show(result: methods.Released) -> Output:
        return render.text("released" if result.released else "not held")

    params = methods.Release(name, scope, _who(world, owner), token=token)
    return Ask("lease.release", params, render.to_json if world.json else show)


@click.command("list", add_help_option=False, short_help="List the claims that are held.")
@click.argument("name", required=False, metavar="[NAME]")
@click.argument("scope", required=False, metavar="[SCOPE]")
def list_(world: World, *, name: str | None, scope: str | None) -> Ask:
    """Print name, scope, owner, token and the unix time of the deadline, separated by tabs.

    \b
    Examples:
      icctl lease list
      icctl lease list sprint "$BEAD" --json
    """

    def show(found: list[methods.Held]) -> Output:
        return render.text(
            *(render.columns(h.name, h.scope_id, h.owner, h.token, h.expires_at) for h in found)
        )

    params = methods.List(name=name, scope_id=scope)
    return Ask("lease.list", params, render.to_json if world.json else show)


def _who(world: World, owner: str | None) -> str:
    """A lease outlives processes: a pid would be an owner that is soon somebody else."""
    if owner is not None:
        return owner
    session = world.invocation.env.get("CLAUDE_SESSION_ID", "")
    if not session:
        raise Usage("who is to hold it?", hint="give --owner, or set CLAUDE_SESSION_ID")
    return session.encode("utf-8", "backslashreplace").decode()


def _show_token(held: methods.Held) -> Output:
    return render.text(str(held.token))


COMMANDS = [acquire, renew, release, list_]
