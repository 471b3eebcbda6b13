"""`icctl db …`"""

import click

from icd.app import render
from icd.app.invocation import Ask, Caller, Local, Output, World, line
from icd.errors import Corrupt
from icd.features.database import methods

_WAY_OUT = (
    "run 'icctl restore FILE' to restore a backup, which keeps the damaged file; backups lie "
    "beside the database and are named after it: ls .clavain/intercore.db.backup-*"
)


@click.command("check", add_help_option=False, short_help="Look for damage, everywhere.")
def check(world: World) -> Local:
    """Read every page and index, and compare the schema; print ok, or what was found.

    Exit 2 if anything was found.
    It works in this process, so that it can look at a database that the daemon refuses.

    \b
    Examples:
      icctl db check
      icctl db check --timeout=5m
    """

    def run(ask: Caller) -> Output:
        try:
            found: methods.Checked = ask("db.check", methods.Check())
        except Corrupt as exc:  # too damaged to be opened; its hint would be to do what was done
            raise Corrupt(exc.message, hint=_WAY_OUT) from exc
        exit_code = 0 if found.ok else Corrupt.exit
        output = (
            render.to_json(found, exit_code)
            if world.json
            else render.text(*(found.findings or ["ok"]), exit_code=exit_code)
        )
        if not found.ok:
            told = Corrupt(f"{found.path} is not sound", hint=_WAY_OUT)
            output.stderr = line(world.program, "db check", told)
        return output

    return Local(run)


@click.command("vacuum", add_help_option=False, short_help="Give unused space back to the disk.")
def vacuum(world: World) -> Ask:
    """Rebuild the database file, so that it is as small as what it holds.

    Other callers of this database wait meanwhile.
    Twice its size must be free on the disk.

    \b
    Examples:
      icctl db vacuum
      icctl db vacuum --timeout=5m
    """

    def show(done: methods.Vacuumed) -> Output:
        if world.json:
            return render.to_json(done)
        return render.text(f"{done.bytes_before} bytes before, {done.bytes_after} after")

    return Ask("db.vacuum", methods.Vacuum(), show)


COMMANDS = [check, vacuum]
