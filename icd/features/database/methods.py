"""db.*: the database itself."""

from icd import __version__
from icd.app.call import Context, Params, Whole
from icd.app.verb import Method, Runs
from icd.db import check as examination
from icd.db import health as fitness
from icd.db import migrate
from icd.db import vacuum as rebuilding
from icd.db.original import adopt as taking_over
from icd.db.original.tables import Left
from icd.values.wire import Result


class Init(Params):
    pass


class Adopt(Params):
    pass


class Health(Params):
    thorough: bool = False


class Schema(Params):
    pass


class Check(Params):
    pass


class Vacuum(Params):
    pass


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


def init(ctx: Context, _p: Init) -> Initialized:
    """By now the host has created and migrated it; this says where."""
    return Initialized(path=ctx.path, schema=migrate.version(ctx.conn))


def adopt(whole: Whole, _p: Adopt) -> Adopted:
    database = whole.database
    found = taking_over.adopt(database, now_ms=whole.now_ms, deadline=whole.deadline)
    schema = migrate.version(database.connection())
    if found is None:
        return Adopted(database.path, schema, None, None, {}, [], [])
    return Adopted(
        path=database.path,
        schema=schema,
        original=found.schema,
        kept=found.kept,
        taken=found.taken,
        left=found.left,
        still_open=found.still_open,
    )


def health(ctx: Context, p: Health) -> Healthy:
    fitness.examine(ctx.conn, ctx.path, thorough=p.thorough)
    return Healthy(healthy=True, path=ctx.path, schema=migrate.version(ctx.conn))


def schema(ctx: Context, _p: Schema) -> SchemaVersion:
    return SchemaVersion(path=ctx.path, schema=migrate.version(ctx.conn), program=__version__)


def check(whole: Whole, _p: Check) -> Checked:
    database = whole.database
    conn = database.connection()
    schema = migrate.version(conn)
    found = examination.findings(conn, deadline=whole.deadline)
    if found:
        database.close()  # a daemon looks again before it goes on with it
    return Checked(database.path, schema, not found, found)


def vacuum(whole: Whole, _p: Vacuum) -> Vacuumed:
    database = whole.database
    sizes = rebuilding.vacuum(database.connection(), database.path, deadline=whole.deadline)
    return Vacuumed(database.path, *sizes)


METHODS = [
    Method("db.init", Init, Initialized, init, runs=Runs(creates=True)),
    Method("db.adopt", Adopt, Adopted, adopt, runs=Runs(whole=True, local=True)),
    Method("db.health", Health, Healthy, health),
    Method("db.schema", Schema, SchemaVersion, schema),
    Method("db.check", Check, Checked, check, runs=Runs(whole=True)),
    Method("db.vacuum", Vacuum, Vacuumed, vacuum, runs=Runs(whole=True)),
]
