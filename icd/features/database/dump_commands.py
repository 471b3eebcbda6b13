"""`icctl export`, `icctl import`"""

import click

from icd.app import progress, render, spool
from icd.app.invocation import Caller, Local, Output, World
from icd.features.database import dump_methods as methods

# Stands for stdout, and for stdin.
PIPE = "-"


@click.command("export", add_help_option=False, short_help="Write every row as a line of JSON.")
@click.argument("file")
def export(world: World, *, file: str) -> Local:
    """Write every row of every table to FILE, as JSON lines; - is stdout.

    FILE must not exist yet.
    On a terminal, stderr shows how far it is.

    \b
    Examples:
      icctl export state.jsonl
      icctl export - | gzip > state.jsonl.gz
    """
    target = world.path(file)

    def run(ask: Caller) -> Output:
        if file == PIPE:
            with spool.place() as lines:
                _export(ask, lines)
                spool.print_out(lines)
            return Output(0)
        done = _export(ask, target)
        return render.to_json(done) if world.json else render.text(f"exported {done.rows} rows")

    return Local(run)


@click.command("import", add_help_option=False, short_help="Take in what was exported.")
@click.argument("file")
def import_(world: World, *, file: str) -> Local:
    """Take the rows of an exported FILE in; - is stdin.  Of two rows of one name the later stays.

    All of it happens, or nothing.
    A second time nothing is left to do.
    On a terminal, stderr shows how far it is.

    \b
    Examples:
      icctl import state.jsonl
      gunzip < state.jsonl.gz | icctl import -
    """
    source = world.path(file)

    def run(ask: Caller) -> Output:
        if file == PIPE:
            with spool.filled() as lines:
                done = _import(ask, lines)
            done.file = PIPE
        else:
            done = _import(ask, source)
        if world.json:
            return render.to_json(done)
        return render.text(f"imported {done.imported} rows, skipped {done.skipped}")

    return Local(run)


def _export(ask: Caller, file: str) -> methods.Exported:
    with progress.bar("exporting") as tell:
        done: methods.Exported = ask("dump.export", methods.Export(file=file), progress=tell)
    return done


def _import(ask: Caller, file: str) -> methods.Imported:
    with progress.bar("importing") as tell:
        done: methods.Imported = ask("dump.import", methods.Import(file=file), progress=tell)
    return done


COMMANDS = [export, import_]
