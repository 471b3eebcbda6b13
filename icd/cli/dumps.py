"""`icctl export`, `icctl import`"""

import click

from icd.cli import render
from icd.cli.invocation import Caller, Local, Output, World
from icd.rpc.methods import dumps as methods


@click.command("export", add_help_option=False, short_help="Write every row as a line of JSON.")
@click.argument("file")
def export(world: World, *, file: str) -> Local:
    """Write every row of every table to FILE, as JSON lines.

    FILE must not exist yet.

    \b
    Example:
      icctl export state.jsonl
    """
    target = world.path(file)

    def run(ask: Caller) -> Output:
        done: methods.Exported = ask("dump.export", methods.Export(file=target))
        return render.to_json(done) if world.json else render.text(f"exported {done.rows} rows")

    return Local(run)


@click.command("import", add_help_option=False, short_help="Take in what was exported.")
@click.argument("file")
def import_(world: World, *, file: str) -> Local:
    """Take the rows of an exported FILE in; of two rows of one name the later one stays.

    All of it happens, or nothing.
    A second time nothing is left to do.

    \b
    Example:
      icctl import state.jsonl
    """
    source = world.path(file)

    def run(ask: Caller) -> Output:
        done: methods.Imported = ask("dump.import", methods.Import(file=source))
        if world.json:
            return render.to_json(done)
        return render.text(f"imported {done.imported} rows, skipped {done.skipped}")

    return Local(run)


COMMANDS = [export, import_]
