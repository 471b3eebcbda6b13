"""`icctl state …`"""

import click
from msgspec import Raw

from icd.app import render
from icd.app.invocation import Ask, Output, World
from icd.app.types import SPAN, Whole
from icd.errors import Usage
from icd.features.state import methods
from icd.features.state.store import INT64, Name
from icd.features.state.watch import watch

VERSION = Whole(0, INT64 - 1)
INT64_ANY = Whole(-INT64, INT64 - 1)


@click.command("set", add_help_option=False, short_help="Store a JSON payload.")
@click.argument("key")
@click.argument("scope")
@click.argument("file", required=False, metavar="[@FILE]")
@click.option("--value", metavar="JSON", help="The payload itself, instead of stdin or a file.")
@click.option("--ttl", type=SPAN, default="0", help="Forget the row after this long.")
@click.option(
    "--if-version", type=VERSION, metavar="N", help="Write only over version N (0: over nothing)."
)
@click.option("--debounce", type=SPAN, default="0", help="Skip an unchanged write this soon.")
def set_(
    world: World,
    *,
    key: str,
    scope: str,
    file: str | None,
    value: str | None,
    ttl: int,
    if_version: int | None,
    debounce: int,
) -> Ask:
    """Store a JSON payload, read from stdin unless @FILE or --value is given.

    A write replaces the row with its TTL and gives it a new version.
    With --if-version the exit code is 1 when the row is at another version.
    --debounce skips a write whose payload did not change within the window; it goes with neither
    --ttl nor --if-version, and without a daemon every write is done.

    \b
    Examples:
      echo '{"phase":"executing"}' | icctl state set dispatch "$SESSION"
      icctl state set dispatch "$SESSION" @payload.json --ttl=5m
      icctl state set leader build --value '"me"' --if-version 0
    """
    if debounce and (ttl or if_version is not None):
        raise Usage("--debounce goes with neither --ttl nor --if-version")
    params = methods.Set(
        key,
        scope,
        Raw(_payload(world, file, value)),
        ttl_ms=ttl,
        if_version=if_version,
        debounce_ms=debounce,
    )
    return Ask("state.set", params, render.to_json if world.json else _silent)


@click.command("get", add_help_option=False, short_help="Print a payload; exit 1 if there is none.")
@click.argument("key")
@click.argument("scope")
@click.option("--meta", is_flag=True, help="Show version, times and writer instead.")
def get(world: World, *, key: str, scope: str, meta: bool) -> Ask:
    """Print the payload exactly as it was stored; exit 1 if there is none.

    --meta prints what is known about the row, one field a line; --json prints both.

    \b
    Examples:
      icctl state get dispatch "$SESSION"
      icctl state get dispatch "$SESSION" --meta
    """

    def show(row: methods.Document | None) -> Output:
        if row is None:
            return Output(1)
        if world.json:
            return render.to_json(row)
        return _meta(row) if meta else render.payload(row.payload)

    return Ask("state.get", methods.Get(key, scope), show)


@click.command("delete", add_help_option=False, short_help="Remove a row, or all rows of a key.")
@click.argument("key")
@click.argument("scope", required=False, metavar="[SCOPE]")
@click.option("--all", "every", is_flag=True, help="Delete the rows of all scopes of KEY.")
def delete(world: World, *, key: str, scope: str | None, every: bool) -> Ask:
    """Remove a row; prints whether there was one, and exits 0 either way.

    \b
    Examples:
      icctl state delete dispatch "$SESSION"
      icctl state delete --all dispatch
    """
    if every == (scope is not None):
        raise Usage("give either a scope or --all")
    if every:

        def count(result: methods.Deleted) -> Output:
            return render.text(f"{result.deleted} deleted")

        ask = methods.DeleteAll(key)
        return Ask("state.delete_all", ask, render.to_json if world.json else count)

    def show(result: methods.Deleted) -> Output:
        return render.text("deleted" if result.deleted else "not found")

    one = methods.Delete(key, scope or "")
    return Ask("state.delete", one, render.to_json if world.json else show)


@click.command("incr", add_help_option=False, short_help="Add to a counter and print it.")
@click.argument("key")
@click.argument("scope")
@click.option("--by", type=INT64_ANY, default=1, metavar="N", help="Add N instead of 1.")
@click.option("--ttl", type=SPAN, default="0", help="For a counter that starts with this call.")
def incr(world: World, *, key: str, scope: str, by: int, ttl: int) -> Ask:
    """Add to a counter atomically and print its new value; it starts at 0.

    A running counter keeps its expiry, so --ttl makes a counter per window.

    \b
    Examples:
      icctl state incr turns "$SESSION"
      icctl state incr tokens "$SESSION" --by=1200 --ttl=1h
    """

    def show(result: methods.Written) -> Output:
        return render.text(str(result.value))

    params = methods.Incr(key, scope, by=by, ttl_ms=ttl)
    return Ask("state.incr", params, render.to_json if world.json else show)


@click.command("list", add_help_option=False, short_help="List the scopes of a key.")
@click.argument("key", required=False, metavar="[KEY]")
@click.option("--prefix", metavar="P", help="List all keys that start with P, with their scopes.")
def list_(world: World, *, key: str | None, prefix: str | None) -> Ask:
    """Print the scopes of a key, one per line; with --prefix, key and scope.

    \b
    Examples:
      icctl state list dispatch
      icctl state list --prefix=dispatch.
    """
    if (key is None) == (prefix is None):
        raise Usage("give either a key or --prefix")

    def show(found: list[Name]) -> Output:
        if prefix is None:
            return render.text(*(render.columns(row.scope_id) for row in found))
        return render.text(*(render.columns(row.key, row.scope_id) for row in found))

    params = methods.List(key=key, prefix=prefix)
    return Ask("state.list", params, render.to_json if world.json else show)


@click.command("prune", add_help_option=False, short_help="Delete expired rows now.")
def prune(world: World) -> Ask:
    """Delete expired rows now; they are invisible already.

    \b
    Example:
      icctl state prune
    """

    def show(result: methods.Pruned) -> Output:
        return render.text(f"{result.pruned} pruned")

    return Ask("state.prune", methods.Prune(), render.to_json if world.json else show)


def _payload(world: World, file: str | None, value: str | None) -> bytes:
    if file is not None and value is not None:
        raise Usage("give either @FILE or --value")
    if value is not None:
        return value.encode()
    if file is None:
        return world.stdin()
    if not file.startswith("@"):
        raise Usage(f"unexpected argument {file!r}: write @FILE, or --value for inline JSON")
    return world.file(file[1:])


def _silent(_result: object) -> Output:
    return Output(0)


def _meta(row: methods.Document) -> Output:
    fields = [
        ("key", row.key),
        ("scope_id", row.scope_id),
        ("version", row.version),
        ("updated_at", row.updated_at),
        ("updated_at_iso", row.updated_at_iso),
        ("expires_at", row.expires_at),
        ("expires_at_iso", row.expires_at_iso),
        ("writer_pid", row.writer_pid),
        ("writer_session", row.writer_session),
    ]
    return render.text(
        *(render.columns(name, "" if value is None else value) for name, value in fields)
    )


COMMANDS = [set_, get, delete, incr, list_, prune, watch]
