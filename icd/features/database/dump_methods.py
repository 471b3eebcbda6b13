"""dump.*: every row as JSON lines, in files that the caller names.

A line is read or written at a time, so a large database needs no large memory.
"""

import os
from collections.abc import Iterator
from typing import BinaryIO

import msgspec

from icd.app import lines
from icd.app.call import Context, Params
from icd.app.verb import Method, Runs, Writes
from icd.db.files import private as files
from icd.errors import IcError, UnreadableInput, from_os
from icd.features.database import dump as dumps
from icd.features.database.dump_lines import End, Line
from icd.values.wire import Result

_UNFIT = "name a complete file of 'icctl export'; nothing was imported"

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


class Export(Params):
    file: str


class Import(Params):
    file: str


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


def export(ctx: Context, p: Export) -> Exported:
    files.refuse_own_names(p.file, ctx.path)
    descriptor = files.create(p.file)
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
    total = dumps.rows(ctx.conn) if ctx.progress is not None else 0
    number = 0
    for number, line in enumerate(dumps.export(ctx.conn), 1):
        file.write(_encoder.encode(line) + b"\n")
        lines.tell(ctx, number, total)
    return number


def import_(ctx: Context, p: Import) -> Imported:
    if ctx.recent is not None:
        ctx.recent.clear()
    counts = {True: 0, False: 0, None: 0}
    brought: set[str] = set()
    for number, line in _lines(ctx, p.file):
        try:
            if number == 1:
                dumps.check_header(line)
            else:
                taken = dumps.take_in(ctx.conn, line, brought=brought, now_ms=ctx.now_ms)
                counts[taken] += 1
        except IcError as exc:
            raise type(exc)(f"{p.file}:{number}: {exc.message}", hint=exc.hint or _UNFIT) from exc
    return Imported(ctx.path, p.file, counts[True], counts[False])


def _lines(ctx: Context, path: str) -> Iterator[tuple[int, Line]]:
    """The lines up to the last, which must say that it is the last."""
    number, line = 0, None
    for number, text in lines.read(ctx, path, hint=_UNFIT):
        if isinstance(line, End):
            raise UnreadableInput(f"{path}:{number}: something follows the end", hint=_UNFIT)
        line = _decoded(path, number, text)
        if not isinstance(line, End):
            yield number, line
    if not isinstance(line, End):
        raise UnreadableInput(f"{path} is cut off after line {number}", hint=_UNFIT)


def _decoded(path: str, number: int, text: bytes) -> Line:
    try:
        return _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise UnreadableInput(f"{path}:{number}: {exc}", hint=_UNFIT) from exc


def check_file(p: Export | Import) -> None:
    files.check_absolute(p.file)


METHODS = [
    Method("dump.export", Export, Exported, export, check=check_file, runs=Runs(local=True)),
    # A second attempt changes nothing, so there is no effect to keep.
    Method(
        "dump.import",
        Import,
        Imported,
        import_,
        check=check_file,
        writes=Writes(keeps_effects=False),
        runs=Runs(local=True),
    ),
]
