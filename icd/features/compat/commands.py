"""`icctl compat …`"""

import click

from icd.app import render
from icd.app.invocation import Ask, Caller, Local, Output, World, line
from icd.errors import (
    BadPath,
    Corrupt,
    IcError,
    Misconfigured,
    NoDatabase,
    NotOurs,
    PermissionRefused,
    SchemaTooNew,
    UnreadableInput,
    Usage,
)
from icd.features.compat import import_ as legacy
from icd.features.compat import methods
from icd.features.compat import table as sides
from icd.features.compat.legacy.finding import find, shown
from icd.features.compat.legacy.patterns import KEYS

# No database that could be asked: to the original, and so to scripts, an ordinary "no".
_UNUSABLE = (NoDatabase, BadPath, SchemaTooNew, NotOurs, Corrupt, PermissionRefused, Misconfigured)


@click.command("status", add_help_option=False, short_help="Show which keys still live in files.")
def status(world: World) -> Local:
    """Show, per key, the legacy files that are left and what the database holds.

    Exit 0 always; n/a stands for what could not be looked at, and stderr says why.

    \b
    Example:
      icctl compat status
    """

    def run(ask: Caller) -> Output:
        complaints: list[IcError] = []
        found = known = None
        try:
            found = find(world.env, world.cwd)
        except UnreadableInput as exc:
            complaints.append(exc)
        try:
            known = ask("compat.status", methods.Status(KEYS))
        except IcError as exc:
            complaints.append(exc)
        lines = sides.compare(found, known)
        output = render.to_json(lines) if world.json else sides.table(lines)
        program = world.program
        output.stderr = b"".join(line(program, "compat status", exc) for exc in complaints)
        return output

    return Local(run)


@click.command("check", add_help_option=False, short_help="Exit 0 if the database knows a key.")
@click.argument("key")
def check(world: World, *, key: str) -> Ask:
    """Print in how many scopes the database knows a key, as state or as a sentinel.

    Exit 1 if in none, or if there is no database that can be used.

    \b
    Example:
      icctl compat check dispatch && echo "consumers of dispatch may switch"
    """

    def show(known: methods.Known) -> Output:
        exit_code = 0 if known.scopes else 1
        if world.json:
            return render.to_json(known, exit_code)
        answer = f"{known.scopes} scope(s) in DB" if known.scopes else "not in DB"
        return render.text(f"{shown(key.encode())}: {answer}", exit_code=exit_code)

    def without(error: IcError) -> Output:
        told = line(world.program, "compat check", error)
        return Output(1 if isinstance(error, _UNUSABLE) else error.exit, b"", told)

    return Ask("compat.check", methods.Check(key), show, render_error=without)


@click.command("import", add_help_option=False, short_help="Take legacy files over.")
@click.argument("key", required=False, metavar="[KEY]")
@click.option("--dry-run", is_flag=True, help="Only show what would be imported.")
def import_(world: World, *, key: str | None, dry_run: bool) -> Local:
    """Read legacy files into the database: JSON into state, guards into sentinels.

    Rows carry the files' times.
    Nothing that the database has newer is overwritten, and a second run imports nothing.
    What is skipped is listed with the reason.

    \b
    Examples:
      icctl compat import --dry-run
      icctl compat import stop
    """
    _check_key(key)

    def run(ask: Caller) -> Output:
        found = find(world.env, world.cwd, key)
        imported, skipped = legacy.bring_in(ask, found, dry_run=dry_run)
        if world.json:
            return render.to_json({"dry_run": dry_run, "imported": imported, "skipped": skipped})
        done = "would import" if dry_run else "imported"
        return _report(done, imported, "skipped", skipped)

    return Local(run)


@click.command("cleanup", add_help_option=False, short_help="Remove legacy files taken over.")
@click.argument("key", required=False, metavar="[KEY]")
@click.option("--apply", is_flag=True, help="Remove them; else only show what would be removed.")
@click.option("--superseded", is_flag=True, help="Also those that the database has newer data for.")
def cleanup(world: World, *, key: str | None, apply: bool, superseded: bool) -> Local:
    """Remove legacy files whose content is in the database; without --apply only list them.

    A file that is written again in the meantime stays.

    \b
    Examples:
      icctl compat cleanup
      icctl compat cleanup stop --apply
    """
    _check_key(key)

    def run(ask: Caller) -> Output:
        found = find(world.env, world.cwd, key)
        removed, left = legacy.clean_up(ask, found, apply=apply, superseded=superseded)
        if world.json:
            return render.to_json({"applied": apply, "removed": removed, "left": left})
        done = "removed" if apply else "would remove"
        return _report(done, removed, "left", left)

    return Local(run)


def _check_key(key: str | None) -> None:
    if key is not None and key not in KEYS:
        raise Usage(f"{key!r} is no key of legacy files", hint=f"use one of {', '.join(KEYS)}")


def _report(
    done: str, taken: list[legacy.Taken], undone: str, passed: list[legacy.Passed]
) -> Output:
    lines = [render.columns(done, file.key, file.path, file.table) for file in taken]
    lines += [render.columns(undone, file.key, file.path, file.reason) for file in passed]
    return render.text(*lines, f"{len(taken)} {done}, {len(passed)} {undone}")


COMMANDS = [status, check, import_, cleanup]
