"""compat: the way over from legacy temporary files."""

from typing import Annotated

from msgspec import Meta, Struct

from icd.app import render
from icd.app.call import Context, Params
from icd.app.invocation import Ask, Caller, Local, Output, World, line
from icd.app.verb import Argument, Column, Command, Method, Table
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
)
from icd.features.compat import files, import_, store
from icd.features.compat.files import KEYS, Found, find, shown
from icd.features.compat.store import Side
from icd.values.wire import Result, iso_if

MOST_KEYS = 100  # in one status

# No database that could be asked: to the original, and so to scripts, an ordinary "no".
_UNUSABLE = (NoDatabase, BadPath, SchemaTooNew, NotOurs, Corrupt, PermissionRefused, Misconfigured)
# The first three columns are the original's, spacing included.
_HEADER = "KEY\t\t\tLEGACY\tDB\tFILES\tSTATE\tSENTINELS\tLEGACY_WRITE\tDB_WRITE"

# --- parameters -----------------------------------------------------------------------------------


class Status(Params):
    """Count the rows of some keys in the database."""

    keys: Annotated[list[str], Meta(max_length=MOST_KEYS, description="Keys, in any order.")]


class StatusForm(Struct):
    """Show, per key, the remaining legacy files and the rows in the database.

    Always exits 0; n/a marks what could not be read, and stderr says why.
    """


class Check(Params):
    """Print the number of scopes in which the database has a key, as state or as a sentinel.

    Exit 1 if there is none, or if there is no usable database.
    """

    rpc = "Count the scopes in which the database has a key, as state or as a sentinel."
    key: Annotated[str, Argument("KEY", "Key to look up.")]


# --- results --------------------------------------------------------------------------------------


class Known(Result):
    key: str
    scopes: int


class Line(Result, omit_defaults=False):
    """A key on both sides; null is what could not be looked at, or a write that never was."""

    key: str
    legacy: bool | None
    db: bool | None
    files: int | None
    state: int | None
    sentinels: int | None
    legacy_at: int | None
    db_at: int | None
    legacy_at_iso: str | None = None
    db_at_iso: str | None = None

    def __post_init__(self) -> None:
        self.legacy_at_iso = iso_if(self.legacy_at)
        self.db_at_iso = iso_if(self.db_at)


# --- what is done ---------------------------------------------------------------------------------


def status(ctx: Context, p: Status) -> list[Side]:
    return [store.side(ctx.conn, key, now_ms=ctx.now_ms) for key in p.keys]


def check(ctx: Context, p: Check) -> Known:
    return Known(p.key, store.scopes(ctx.conn, p.key, now_ms=ctx.now_ms))


# --- status and check -----------------------------------------------------------------------------


def ask_status(world: World, _f: StatusForm) -> Local:
    def run(ask: Caller) -> Output:
        complaints: list[IcError] = []
        found = sides = None
        try:
            found = find(world.env, world.cwd)
        except UnreadableInput as exc:
            complaints.append(exc)
        try:
            sides = ask("compat.status", Status(KEYS))
        except IcError as exc:
            complaints.append(exc)
        lines = _lines(found, sides)
        output = render.shown(world, lines, lambda: (_HEADER, *map(_row, lines)), SIDES)
        told = (line(world, "compat status", exc) for exc in complaints)
        output.stderr = b"".join(told)
        return output

    return Local(run)


def _lines(found: list[Found] | None, sides: list[Side] | None) -> list[Line]:
    """One line per key; None for a side that could not be looked at."""
    legacy = None if found is None else [file for file in found if not files.is_mirrored(file)]
    known = {side.key: side for side in sides or []}
    return [_line(key, legacy, known.get(key)) for key in KEYS]


def _line(key: str, found: list[Found] | None, side: Side | None) -> Line:
    times = None if found is None else [f.mtime_ms // 1000 for f in found if f.key == key]
    written = (
        [] if side is None else [at for at in (side.state_at, side.sentinels_at) if at is not None]
    )
    return Line(
        key=key,
        legacy=None if times is None else bool(times),
        db=None if side is None else bool(side.state or side.sentinels),
        files=None if times is None else len(times),
        state=None if side is None else side.state,
        sentinels=None if side is None else side.sentinels,
        legacy_at=max(times) if times else None,
        db_at=max(written, default=None),
    )


def _row(found: Line) -> str:
    yes = {None: "n/a", True: "yes", False: "no"}
    counts = (found.files, found.state, found.sentinels)
    return render.columns(
        f"{found.key:<20}",
        yes[found.legacy],
        yes[found.db],
        *("n/a" if count is None else count for count in counts),
        found.legacy_at_iso or ("n/a" if found.legacy is None else "-"),
        found.db_at_iso or ("n/a" if found.db is None else "-"),
    )


def ask_check(world: World, p: Check) -> Ask:
    def show(known: Known) -> Output:
        exit_code = 0 if known.scopes else 1
        if world.json:
            return render.to_json(known, exit_code)
        answer = f"{known.scopes} scope(s) in DB" if known.scopes else "not in DB"
        return render.text(f"{shown(p.key.encode())}: {answer}", exit_code=exit_code)

    def without(error: IcError) -> Output:
        told = line(world, "compat check", error)
        return Output(1 if isinstance(error, _UNUSABLE) else error.exit, b"", told)

    return Ask("compat.check", p, show, render_error=without)


def _known(is_there: bool | None) -> str:  # noqa: FBT001 -- the value of a column
    return {None: "unknown", True: "set", False: "none"}[is_there]


SIDES = Table(
    Column("KEY", "key", "id"),
    Column("LEGACY", lambda each: _known(each.legacy), "state"),
    Column("FILES", "files", "number"),
    Column("WRITTEN", "legacy_at", "age"),
    Column("DATABASE", lambda each: _known(each.db), "state"),
    Column("ROWS", "state", "number"),
    Column("SENTINELS", "sentinels", "number", spare=True),
    Column("WRITTEN", "db_at", "age", spare=True),
)

VERBS = [
    Method("compat.status", Status, list[Side], status),
    Method("compat.check", Check, Known, check),
    Command(
        "compat status",
        StatusForm,
        ask_status,
        human=SIDES,
        summary="Show which keys still use legacy files.",
        examples=["icctl compat status"],
    ),
    Command(
        "compat check",
        Check,
        ask_check,
        summary="Exit 0 if the database knows a key.",
        examples=['icctl compat check dispatch && echo "consumers of dispatch may switch"'],
    ),
    *import_.VERBS,
]
