"""db.*: the database itself."""

from icd import __version__
from icd.db import health as fitness
from icd.db import migrate
from icd.rpc.method import Context, Method, Params
from icd.rpc.results import Result


class Init(Params):
    pass


class Health(Params):
    thorough: bool = False


class Schema(Params):
    pass


class Initialized(Result):
    path: str
    schema: int


class Healthy(Result):
    healthy: bool
    path: str
    schema: int


class SchemaVersion(Result):
    path: str
    schema: int
    program: str


def init(ctx: Context, _p: Init) -> Initialized:
    """By now the host has created and migrated it; this says where."""
    return Initialized(path=ctx.path, schema=migrate.version(ctx.conn))


def health(ctx: Context, p: Health) -> Healthy:
    fitness.examine(ctx.conn, ctx.path, thorough=p.thorough)
    return Healthy(healthy=True, path=ctx.path, schema=migrate.version(ctx.conn))


def schema(ctx: Context, _p: Schema) -> SchemaVersion:
    return SchemaVersion(path=ctx.path, schema=migrate.version(ctx.conn), program=__version__)


METHODS = [
    Method("db.init", Init, Initialized, init, creates=True),
    Method("db.health", Health, Healthy, health),
    Method("db.schema", Schema, SchemaVersion, schema),
]
