"""`icctl init`, `icctl health`, `icctl version`"""

import click

from icd import __version__
from icd.app import render
from icd.app.invocation import Ask, Local, Output, World
from icd.errors import IcError, NoDatabase
from icd.features.database import adopt as adoptions
from icd.features.database import methods


@click.command(
    "init", add_help_option=False, short_help="Create or upgrade the project's database."
)
@click.option("--adopt", is_flag=True, help="Take over a later database of the original ic.")
def init(world: World, *, adopt: bool) -> Ask | Local:
    """Create the project's database in .clavain/, or bring an existing one up to date.

    Only this command and restore ever create a database.
    The directory is made with mode 0700, the file with 0600; an upgrade makes a backup first.

    Databases of the original program up to its schema v9 are upgraded like our own.
    With --adopt a later one is taken over, too, while nobody uses it: ours is built from the
    tables and columns that intercore knows, the old file is kept beside it, and what was left
    behind is printed.

    \b
    Examples:
      icctl init
      icctl init --adopt
      icctl init --adopt --json --timeout=1m
    """
    if adopt:
        return adoptions.adopt(world)

    def show(result: methods.Initialized) -> Output:
        path = render.relative(result.path, world.cwd)
        return render.text(f"initialized {path} (schema v{result.schema})")

    return Ask("db.init", methods.Init(), render.to_json if world.json else show)


@click.command("health", add_help_option=False, short_help="Print ok if the database can be used.")
@click.option("--check", "thorough", is_flag=True, help="Read every page of the database, too.")
def health(world: World, *, thorough: bool) -> Ask:
    """Print ok if the database can be used; else exit 2 and say what is wrong.

    Checks that it can be read, that its schema is current, that it is in WAL mode and that more
    than 10 MB of disk are free.

    \b
    Examples:
      icctl health
      icctl health --check
    """

    def show(_result: methods.Healthy) -> Output:
        return render.text("ok")

    return Ask("db.health", methods.Health(thorough), render.to_json if world.json else show)


@click.command(
    "version", add_help_option=False, short_help="Print the versions of program and schema."
)
@click.argument("ignored", nargs=-1, metavar="")
def version(world: World, *, ignored: tuple[str, ...]) -> Ask:
    """Print the version of the program and of the schema, with or without a database.

    With --verbose also the door, that is which client forwarded the command and whether the
    daemon or the client itself ran it, and the version of that daemon.

    \b
    Examples:
      icctl version
      icctl version --verbose
    """
    del ignored  # scripts of the original pass all sorts of things
    program = world.program
    mine = world.client_version or __version__
    door = _door(world)
    daemon = __version__ if world.host == "daemon" else None

    def shown(schema: int | None, why: str) -> Output:
        if world.json:
            facts = {"program": program, "version": mine, "schema": schema}
            more = {"door": door, "daemon": daemon}
            return render.to_json(facts | more if world.verbose else facts)
        more_lines = [f"door: {door}", f"daemon: {daemon or 'not asked'}"]
        lines = [f"{program} {mine}", f"schema: {why}"]
        return render.text(*lines, *(more_lines if world.verbose else []))

    def show(result: methods.SchemaVersion) -> Output:
        return shown(result.schema, f"v{result.schema}")

    def without(error: IcError) -> Output:
        missing = isinstance(error, NoDatabase)
        return shown(None, "unknown (no database)" if missing else f"unknown ({error.message})")

    return Ask("db.schema", methods.Schema(), show, render_error=without, optional=True)


def _door(invocation: World) -> str:
    way = "through" if invocation.host == "daemon" else "without"
    return f"{invocation.door}, {way} the daemon"


COMMANDS = [init, health, version]
