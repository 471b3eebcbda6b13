"""`icctl backup`, `icctl restore`"""

import click

from icd.app import render
from icd.app.invocation import Ask, Caller, Local, Output, World
from icd.features.database import backup_methods as methods


@click.command("backup", add_help_option=False, short_help="Copy the database, verified.")
@click.argument("file", required=False, metavar="[FILE]")
def backup(world: World, *, file: str | None) -> Ask | Local:
    """Copy the database while it is in use, check the copy, and print its path.

    Without FILE the backup lies beside the database, named after it and the time, and the oldest
    of such backups are removed; the setting backups_kept says how many stay.
    FILE must not exist yet, and is never removed.

    \b
    Examples:
      icctl backup
      icctl backup ~/intercore-before-the-move.db --timeout=1m
    """

    def show(made: methods.Made) -> Output:
        if world.json:
            return render.to_json(made)
        return render.text(render.relative(made.file, world.cwd))

    if file is None:
        return Ask("backup.create", methods.Create(), show)
    target = world.path(file)
    return Local(lambda ask: show(ask("backup.write", methods.Write(file=target))))


@click.command("restore", add_help_option=False, short_help="Go back to a backup.")
@click.argument("file")
def restore(world: World, *, file: str) -> Local:
    """Put a copy of a backup in the place of the database; what was there is kept beside it.

    A file that is damaged, not of intercore, or of a later intercore is refused, and nothing is
    changed.
    The daemon may run: its next call uses what was restored.

    \b
    Example:
      icctl restore .clavain/intercore.db.backup-20260131-120000
    """
    source = world.path(file)

    def run(ask: Caller) -> Output:
        found: methods.Restored = ask("backup.restore", methods.Restore(file=source))
        if world.json:
            return render.to_json(found)
        path, kept = (render.relative(name or "", world.cwd) for name in (found.path, found.kept))
        lines = [f"restored {path} (schema v{found.schema})"]
        return render.text(*lines, *([f"kept {kept}"] if kept else []))

    return Local(run)


COMMANDS = [backup, restore]
