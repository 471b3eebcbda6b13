"""init, health, version, db: the database itself."""

import os
from functools import partial
from typing import Annotated

from msgspec import Struct, structs

from icd import __version__
from icd.app import render
from icd.app.call import Context, Params, Whole
from icd.app.invocation import Ask, Caller, Local, Output, World, line
from icd.app.verb import Argument, Command, Method, Option, Runs, Verb
from icd.db import check as examination
from icd.db import migrate, paths
from icd.db.original import adopt as taking_over
from icd.db.original.adopt import Left
from icd.errors import Corrupt, IcError, NoDatabase, Usage
from icd.features.coordination import adoption
from icd.features.database import store
from icd.features.database.watch import WATCH
from icd.values.wire import Result

_WAY_OUT = (
    "run 'icctl restore FILE' to restore a backup, which keeps the damaged file; backups are "
    "next to the database and named after it: ls .clavain/intercore.db.backup-*"
)


# --- parameters -----------------------------------------------------------------------------------


class Init(Params):
    """Create the project's database, or upgrade an existing one."""


class Adopt(Params):
    """Convert a newer database of the original program, while no process uses it."""


class InitForm(Struct):
    """Create the project's database in .clavain/, or upgrade an existing one.

    Only this command and restore ever create a database.
    A database serves every directory below its project, so none is created in / or in the home
    directory without --force.
    The directory gets mode 0700, the file 0600; an upgrade makes a backup first.

    Databases of the original program up to its schema v9 are upgraded like our own.
    With --adopt, a newer one is converted too, while no process uses it: a new database is built
    from the tables and columns that intercore knows, the old file is kept beside it, and what was
    left out is printed.
    """

    adopt: Annotated[bool, Option("--adopt", "Convert a newer database of the original ic.")] = (
        False
    )
    force: Annotated[bool, Option("--force", "Create it even in / or in your home directory.")] = (
        False
    )


class Health(Params):
    """Print ok if the database is usable; else exit 2 and print what is wrong.

    Checks that it is readable, that its schema is current, that it is in WAL mode and that more
    than 10 MB of disk space are free.
    """

    rpc = (
        "Check that the database is usable.\n"
        "It must be readable, have the current schema and be in WAL mode, and more than 10 MB "
        "of disk space must be free."
    )
    thorough: Annotated[bool, Option("--check", "Read every page of the database as well.")] = False


class Schema(Params):
    """Return the versions of the schema and of the program."""


class VersionForm(Struct):
    """Print the version of the program and of the schema, with or without a database.

    --verbose adds which client forwarded the command, whether the daemon or the client ran it, and
    the version of that daemon.
    """

    # Scripts of the original pass all sorts of things.
    ignored: Annotated[tuple[str, ...], Argument("", "Ignored.", nargs=-1, usage="")] = ()


class Check(Params):
    """Read every page and index and compare the schema; print ok or the findings.

    Exit 2 if there are findings.
    It runs in this process, so that it works on a database that the daemon refuses.
    """

    rpc = (
        "Read every page and index, and compare the schema.\n"
        "It runs in the caller's process, so that it works on a database that the daemon "
        "refuses."
    )


class Vacuum(Params):
    """Rebuild the database file, so that it takes no more space than needed.

    Other callers of this database wait meanwhile.
    Free disk space of twice its size is needed.
    """


# --- results --------------------------------------------------------------------------------------


class Initialized(Result):
    path: str
    schema: int


class Adopted(Result):
    """What came of it: without `original`, the schema that it had, it was ours already."""

    path: str
    schema: int
    original: int | None
    kept: str | None
    taken: dict[str, int]
    left: list[Left]
    still_open: list[int]


class Healthy(Result):
    healthy: bool
    path: str
    schema: int


class SchemaVersion(Result):
    path: str
    schema: int
    program: str


class Checked(Result):
    path: str
    schema: int
    ok: bool
    findings: list[str]


class Vacuumed(Result):
    path: str
    bytes_before: int
    bytes_after: int


# --- what is done ---------------------------------------------------------------------------------


def init(ctx: Context, _p: Init) -> Initialized:
    """By now the host has created and migrated it; this says where."""
    return Initialized(ctx.path, migrate.version(ctx.conn))


def adopt(whole: Whole, _p: Adopt) -> Adopted:
    """In the caller's own process: that may look at who has the original open, takes as long as
    the database is large, and delays no other caller of the daemon."""
    database = whole.database
    bring = partial(adoption.bring, path=database.path, now_ms=whole.now_ms)
    found = taking_over.adopt(
        database, bring=bring, now_ms=whole.now_ms, deadline=whole.deadline, tell=whole.progress
    )
    schema = migrate.version(database.connection())
    if found is None:
        return Adopted(database.path, schema, None, None, {}, [], [])
    return Adopted(database.path, schema, *structs.astuple(found))


def health(ctx: Context, p: Health) -> Healthy:
    examination.examine(ctx.conn, ctx.path, thorough=p.thorough)
    return Healthy(healthy=True, path=ctx.path, schema=migrate.version(ctx.conn))


def schema(ctx: Context, _p: Schema) -> SchemaVersion:
    return SchemaVersion(ctx.path, migrate.version(ctx.conn), __version__)


def check(whole: Whole, _p: Check) -> Checked:
    database = whole.database
    conn = database.connection()
    schema = migrate.version(conn)
    found = examination.findings(conn, deadline=whole.deadline, tell=whole.progress)
    if found:
        database.close()  # a daemon looks again before it goes on with it
    return Checked(database.path, schema, not found, found)


def vacuum(whole: Whole, _p: Vacuum) -> Vacuumed:
    database = whole.database
    sizes = store.vacuum(database.connection(), database.path, deadline=whole.deadline)
    return Vacuumed(database.path, *sizes)


# --- what is typed and shown ----------------------------------------------------------------------


def ask_init(world: World, f: InitForm) -> Ask | Local:
    wide = "" if f.force or world.where.explicit is not None else _wide(world)

    def run(ask: Caller) -> Output:
        there = _existing(world)
        if wide and there is None:
            raise Usage(
                f"{world.cwd} is {wide}: its database would serve everything below it",
                hint="change to the project's directory, or pass --force",
            )
        if f.adopt:
            return _show_adopted(world, ask("db.adopt", Adopt()))
        return _show_init(world, ask("db.init", Init()), there)

    if f.adopt or wide or world.terminal is not None:
        return Local(run)  # it looks at files, and a file system that hangs must hold up no other
    return Ask("db.init", Init(), lambda found: _show_init(world, found, None))


def _show_init(world: World, found: Initialized, there: str | None) -> Output:
    """`there`: the database that was there before, for a person."""
    if world.json:
        return render.to_json(found)
    path = render.relative(found.path, world.cwd)
    is_old = there is not None and world.terminal is not None
    done = "already initialized" if is_old else "initialized"
    told = [f"{done} {path} (schema v{found.schema})"]
    if is_old and os.path.isabs(path):
        told.append(f"this directory uses the database of {_project(path)}")
    return render.text(*told)


def _show_adopted(world: World, found: Adopted) -> Output:
    return render.to_json(found) if world.json else render.text(*_adopted(found, world.cwd))


def _existing(world: World) -> str | None:
    """The database that is there already; what is wrong with it is told by the call."""
    try:
        return paths.resolve(world.where)
    except IcError:
        return None


def _project(path: str) -> str:
    return os.path.dirname(os.path.dirname(path))


def _wide(world: World) -> str:
    """What would catch every project of the machine's user; no file system is asked for it."""
    if world.cwd == "/":
        return "the root of the file system"
    if world.cwd != (world.env.get("HOME") or "").rstrip("/"):
        return ""
    import pwd  # few are at home

    try:  # by the system's word, too: a sandbox may call any directory its home
        is_home = world.cwd == pwd.getpwuid(os.geteuid()).pw_dir.rstrip("/")
    except KeyError:
        return ""
    return "your home directory" if is_home else ""


def _adopted(found: Adopted, cwd: str) -> list[str]:
    path = render.relative(found.path, cwd)
    if found.kept is None:
        return [f"{path} is intercore's own (schema v{found.schema}): nothing to adopt"]
    return [
        f"adopted {path} (schema v{found.original} of the original, now v{found.schema})",
        f"kept {render.relative(found.kept, cwd)}",
        *(f"took {_rows(rows)} of {table}" for table, rows in found.taken.items()),
        *(_left(left) for left in found.left),
        *(f"process {pid} still has the old file open: end it" for pid in found.still_open),
    ]


def _left(left: Left) -> str:
    if left.kind == "rows":
        return f"left {_rows(left.rows)} of {left.table}"
    name = left.table if left.column is None else f"{left.table}.{left.column}"
    return f"left the {left.kind} {name}: {_rows(left.rows)}"


def _rows(count: int | None) -> str:
    if count is None:
        return "an unknown number of rows"
    return "1 row" if count == 1 else f"{count} rows"


def ask_version(world: World, _f: VersionForm) -> Ask:
    program, mine = world.program, world.client_version or __version__
    door = f"{world.door}, {'through' if world.host == 'daemon' else 'without'} the daemon"
    daemon = __version__ if world.host == "daemon" else None

    def shown(schema: int | None, why: str) -> Output:
        if world.json:
            facts = {"program": program, "version": mine, "schema": schema}
            more = {"door": door, "daemon": daemon}
            return render.to_json(facts | more if world.verbose else facts)
        more_lines = [f"door: {door}", f"daemon: {daemon or 'not asked'}"]
        lines = [f"{program} {mine}", f"schema: {why}"]
        return render.text(*lines, *(more_lines if world.verbose else []))

    def show(found: SchemaVersion) -> Output:
        return shown(found.schema, f"v{found.schema}")

    def without(error: IcError) -> Output:
        missing = isinstance(error, NoDatabase)
        return shown(None, "unknown (no database)" if missing else f"unknown ({error.message})")

    return Ask("db.schema", Schema(), show, render_error=without, optional=True)


def ask_check(world: World, p: Check) -> Local:
    def run(ask: Caller) -> Output:
        try:
            found: Checked = ask("db.check", p)
        except Corrupt as exc:  # too damaged to be opened; its hint would be to do what was done
            raise Corrupt(exc.message, hint=_WAY_OUT) from exc
        status = 0 if found.ok else Corrupt.exit
        if world.json:
            output = render.to_json(found, status)
        else:
            output = render.text(*(found.findings or ["ok"]), exit_code=status)
        if not found.ok:
            told = Corrupt(f"{found.path} is damaged", hint=_WAY_OUT)
            output.stderr = line(world, "db check", told)
        return output

    return Local(run)


VERBS = [
    Method("db.init", Init, Initialized, init, runs=Runs(creates=True, long="opening")),
    Method("db.adopt", Adopt, Adopted, adopt, runs=Runs(whole=True, local=True, long="adopting")),
    Command(
        "init",
        InitForm,
        ask_init,
        summary="Create or upgrade the project's database.",
        examples=["icctl init", "icctl init --adopt", "icctl init --adopt --json --timeout=1m"],
    ),
    Verb(
        "health",
        Health,
        Healthy,
        health,
        method="db.health",
        runs=Runs(long="checking", long_if="thorough"),
        show=lambda _found, _p: ["ok"],
        summary="Print ok if the database is usable.",
        examples=["icctl health", "icctl health --check"],
    ),
    Method("db.schema", Schema, SchemaVersion, schema),
    WATCH,
    Command(
        "version",
        VersionForm,
        ask_version,
        summary="Print the program and schema versions.",
        examples=["icctl version", "icctl version --verbose"],
    ),
    Method("db.check", Check, Checked, check, runs=Runs(whole=True, long="checking")),
    Command(
        "db check",
        Check,
        ask_check,
        summary="Check the whole database for damage.",
        examples=["icctl db check", "icctl db check --timeout=5m"],
    ),
    Verb(
        "db vacuum",
        Vacuum,
        Vacuumed,
        vacuum,
        runs=Runs(whole=True, long="vacuuming"),
        show=lambda done, _p: [f"{done.bytes_before} bytes before, {done.bytes_after} after"],
        summary="Rebuild the file to free disk space.",
        examples=["icctl db vacuum", "icctl db vacuum --timeout=5m"],
    ),
]
