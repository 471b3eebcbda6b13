"""dump.*, export, import: every row as JSON lines, in a file that the caller names.

A line is read or written at a time, so a large database needs no large memory.
"""

import os
import sqlite3
from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Any, BinaryIO

import msgspec

from icd.app import line_files, render
from icd.app.call import Context, Params
from icd.app.invocation import Caller, Local, Output, World
from icd.app.verb import Argument, Command, Method, Runs, Writes
from icd.db import permissions
from icd.errors import IcError, UnreadableInput, from_os
from icd.features.database.export import End, decoder, export, rows
from icd.features.database.import_ import Import, check_header
from icd.values.wire import Result

_UNFIT = "use a complete file of 'icctl export'; nothing was imported"

File = Annotated[
    str,
    msgspec.Meta(description="File of JSON lines, as an absolute path."),
    Argument("FILE", "File of JSON lines; - is stdin or stdout."),
    permissions.check_absolute,
]


class ToFile(Params):
    """Export every row of every table to FILE, as JSON lines; - is stdout.

    FILE must not exist yet.
    On a terminal, stderr shows how far it is.
    """

    rpc = "Export every row of every table to a new file, as JSON lines."
    file: File


class FromFile(Params):
    """Import the rows of an exported FILE; - is stdin.

    Of two versions of a row the later wins.
    The import is all or nothing, and importing again changes nothing.
    On a terminal, stderr shows how far it is.
    """

    rpc = (
        "Import the rows of an exported file.\n"
        "Of two versions of a row the later wins.\n"
        "The import is all or nothing, and importing again changes nothing."
    )
    file: File


class Exported(Result):
    path: str
    file: str
    rows: int


class Imported(Result):
    """`skipped`: rows that were there, as late or later, or that had expired."""

    path: str
    file: str
    imported: int
    skipped: int


# --- what is done ---------------------------------------------------------------------------------


def write(ctx: Context, p: ToFile) -> Exported:
    permissions.refuse_own_names(p.file, ctx.path)
    descriptor = permissions.create(p.file)
    try:
        with open(descriptor, "wb") as file:
            count = _write(ctx, file)
            file.flush()
            os.fsync(file.fileno())
    except BaseException as exc:
        os.unlink(p.file)
        if isinstance(exc, OSError):
            raise from_os(exc, f"write {p.file}") from exc
        raise
    return Exported(ctx.path, p.file, count - 2)  # the first and the last are no rows


def _write(ctx: Context, file: BinaryIO) -> int:
    total = rows(ctx.conn) if ctx.progress is not None else 0
    encoder, number = msgspec.json.Encoder(), 0
    for number, line in enumerate(export(ctx.conn), 1):
        file.write(encoder.encode(line) + b"\n")
        line_files.tell(ctx, number, total)
    return number


def read(ctx: Context, p: FromFile) -> Imported:
    if ctx.recent is not None:
        ctx.recent.clear()
    file, counts = Import(ctx.conn, now_ms=ctx.now_ms), Counter[bool | None]()
    for number, line in _lines(ctx, p.file):
        try:
            if number == 1:
                check_header(line)
            else:
                counts[file.take(line)] += 1
        except IcError as exc:
            raise type(exc)(f"{p.file}:{number}: {exc.message}", hint=exc.hint or _UNFIT) from exc
        except sqlite3.IntegrityError as exc:
            raise UnreadableInput(f"{p.file}:{number}: {exc}", hint=_UNFIT) from exc
    return Imported(ctx.path, p.file, counts[True], counts[False])


def _lines(ctx: Context, path: str) -> Iterator[tuple[int, Any]]:
    """The lines up to the last, which must say that it is the last."""
    number, line, decode = 0, None, decoder().decode
    for number, text in line_files.read(ctx, path, hint=_UNFIT):
        if isinstance(line, End):
            raise UnreadableInput(f"{path}:{number}: unexpected content after the end", hint=_UNFIT)
        try:
            line = decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            raise UnreadableInput(f"{path}:{number}: {exc}", hint=_UNFIT) from exc
        if not isinstance(line, End):
            yield number, line
    if not isinstance(line, End):
        raise UnreadableInput(f"{path} is truncated after line {number}", hint=_UNFIT)


# --- what is typed --------------------------------------------------------------------------------


def ask_export(world: World, p: ToFile) -> Local:
    target = world.path(p.file)

    def run(ask: Caller) -> Output:
        if p.file == line_files.PIPE:
            with line_files.place() as place:
                ask("dump.export", ToFile(file=place))
                line_files.print_out(place)
            return Output(0)
        done = ask("dump.export", ToFile(file=target))
        return render.to_json(done) if world.json else render.text(f"exported {done.rows} rows")

    return Local(run)


def ask_import(world: World, p: FromFile) -> Local:
    source = world.path(p.file)

    def run(ask: Caller) -> Output:
        if p.file == line_files.PIPE:
            with line_files.filled() as place:
                done = ask("dump.import", FromFile(file=place))
            done.file = line_files.PIPE
        else:
            done = ask("dump.import", FromFile(file=source))
        if world.json:
            return render.to_json(done)
        return render.text(f"imported {done.imported} rows, skipped {done.skipped}")

    return Local(run)


VERBS = [
    Method("dump.export", ToFile, Exported, write, runs=Runs(local=True, long="exporting")),
    # A second attempt changes nothing, so there is no effect to keep.
    Method(
        "dump.import",
        FromFile,
        Imported,
        read,
        writes=Writes(keeps_effects=False),
        runs=Runs(local=True, long="importing"),
    ),
    Command(
        "export",
        ToFile,
        ask_export,
        summary="Export all rows as JSON lines.",
        examples=["icctl export state.jsonl", "icctl export - | gzip > state.jsonl.gz"],
    ),
    Command(
        "import",
        FromFile,
        ask_import,
        summary="Import an export.",
        examples=["icctl import state.jsonl", "gunzip < state.jsonl.gz | icctl import -"],
    ),
]
