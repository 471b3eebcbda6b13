"""compat import, compat cleanup: a client reads its files and removes them, and the database judges
what they say.

Files are read and judged in portions, so that neither memory nor a transaction grows with /tmp.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any

from msgspec import Meta, Raw, Struct, field, structs

from icd.app import render
from icd.app.call import Context, Params
from icd.app.invocation import Caller, Local, Output, World
from icd.app.verb import Argument, Command, Method, Option, Runs, Writes
from icd.errors import Usage
from icd.features.compat import files, store
from icd.features.compat.files import KEYS, Entry, Found, Refused, find
from icd.features.compat.store import WRITTEN, Document, Guard, Verdict
from icd.values import payloads
from icd.values.validation import check_key, check_name, check_scope
from icd.values.wire import Result

MANY = 500  # files in one call: other callers wait for a batch
PORTION_BYTES = 8 * 1024 * 1024

_REASONS: dict[Verdict, str] = {
    "same": "already imported",
    "superseded": "the database has other data that is as new or newer",
    "expired": "an expired cache",
    "early": "its time is in the future",
}

Key = Annotated[str | None, Argument("KEY", "Import or remove only the files of this key.")]


# --- parameters and results -----------------------------------------------------------------------


class Compare(Params):
    """Compare legacy files with the database, without writing."""

    documents: Annotated[
        list[Document], Meta(max_length=MANY, description="Files that contain JSON.")
    ] = field(default_factory=list)
    guards: Annotated[
        list[Guard],
        Meta(max_length=MANY, description="Guard files: their existence is the information."),
    ] = field(default_factory=list)


class Import(Compare):
    """Import legacy files, except where the database has newer rows."""


class ImportForm(Struct):
    """Import legacy files into the database: JSON as state, guards as sentinels.

    Rows keep the times of the files.
    Newer rows are never overwritten, and a second run imports nothing.
    Skipped files are listed with the reason.
    """

    key: Key = None
    dry_run: Annotated[
        bool, Option("--dry-run", "Show what would be imported, and change nothing.")
    ] = False


class CleanupForm(Struct):
    """Remove legacy files whose content is in the database; without --apply, list them.

    A file that changes meanwhile is kept.
    """

    key: Key = None
    apply: Annotated[bool, Option("--apply", "Remove the files; without it, list them.")] = False
    superseded: Annotated[
        bool, Option("--superseded", "Include files for which the database has newer data.")
    ] = False


class Verdicts(Result):
    """One verdict per file, in the order of the parameters."""

    documents: list[Verdict]
    guards: list[Verdict]


class Taken(Result):
    """A file that was imported or removed; `table` is state or sentinels."""

    key: str
    scope_id: str
    path: str
    table: str


class Passed(Result):
    """A file that was left as it is, and why."""

    key: str
    path: str
    reason: str


# --- what is done ---------------------------------------------------------------------------------


def compare(ctx: Context, p: Compare) -> Verdicts:
    return Verdicts(
        [store.judge_document(ctx.conn, file, now_ms=ctx.now_ms) for file in p.documents],
        [store.judge_guard(ctx.conn, file, now_ms=ctx.now_ms) for file in p.guards],
    )


def import_(ctx: Context, p: Import) -> Verdicts:
    if ctx.recent is not None:
        ctx.recent.clear()
    return Verdicts(
        [
            store.bring_document(ctx.conn, file, writer=ctx.writer, now_ms=ctx.now_ms)
            for file in p.documents
        ],
        [store.bring_guard(ctx.conn, file, now_ms=ctx.now_ms) for file in p.guards],
    )


def _check_files(p: Compare) -> None:
    """Judge names and payloads outside the lock."""
    for guard in p.guards:
        check_name(guard.name)
        check_scope(guard.scope_id)
    for document in p.documents:
        check_key(document.key)
        check_scope(document.scope_id)
        payloads.check(bytes(document.payload))


# --- what is typed and shown ----------------------------------------------------------------------

Judged = tuple[Entry | Refused, Verdict | None]


def ask_import(world: World, f: ImportForm) -> Local:
    _refuse_other(f.key)

    def run(ask: Caller) -> Output:
        found = find(world.env, world.cwd, f.key)
        rows: set[tuple[str, str, str]] = set()

        def why_not(file: Entry, verdict: Verdict) -> str | None:
            row = file.table, file.found.key, file.scope_id
            if verdict not in WRITTEN:
                return _REASONS[verdict]
            if row in rows:  # a dry run did not write the newer file's row
                return _REASONS["superseded"]
            rows.add(row)
            return None

        kind = Compare if f.dry_run else Import
        taken, passed = _sorted(_judge(ask, kind, found), why_not)
        if world.json:
            return render.to_json({"dry_run": f.dry_run, "imported": taken, "skipped": passed})
        return _report("would import" if f.dry_run else "imported", taken, "skipped", passed)

    return Local(run)


def ask_cleanup(world: World, f: CleanupForm) -> Local:
    _refuse_other(f.key)

    def why_not(file: Entry, verdict: Verdict) -> str | None:
        if verdict in WRITTEN:
            return "not imported yet"
        if verdict != "same" and not (f.superseded and verdict == "superseded"):
            return _REASONS[verdict]
        if file.forgotten:
            return f"a guard file with {file.forgotten} bytes of content, which were not imported"
        return files.remove(file) if f.apply else None

    def run(ask: Caller) -> Output:
        found = find(world.env, world.cwd, f.key)
        # All questions come first: after a removal nothing may fail that would keep it from the
        # report.  Nor can what all files say be kept in mind.
        judged = [(_without_payload(file), said) for file, said in _judge(ask, Compare, found)]
        taken, passed = _sorted(judged, why_not)
        if world.json:
            return render.to_json({"applied": f.apply, "removed": taken, "left": passed})
        return _report("removed" if f.apply else "would remove", taken, "left", passed)

    return Local(run)


def _refuse_other(key: str | None) -> None:
    if key is not None and key not in KEYS:
        raise Usage(f"{key!r} is not a key of legacy files", hint=f"use one of {', '.join(KEYS)}")


def _without_payload(file: Entry | Refused) -> Entry | Refused:
    if isinstance(file, Refused) or file.payload is None:
        return file
    return structs.replace(file, payload="")


def _judge(ask: Caller, kind: type[Compare], found: list[Found]) -> Iterator[Judged]:
    """What the database says to each file that can be read."""
    portion: list[Entry] = []
    size = 0
    for each in found:
        file = files.read(each)
        if isinstance(file, Refused):
            yield file, None
            continue
        portion.append(file)
        size += len(file.payload or "")
        if len(portion) == MANY or size > PORTION_BYTES:
            yield from _ask(ask, kind, portion)
            portion, size = [], 0
    yield from _ask(ask, kind, portion)


def _ask(ask: Caller, kind: type[Compare], portion: list[Entry]) -> Iterator[Judged]:
    """Also without a file: that there is no database is worth knowing."""
    documents = [file for file in portion if file.payload is not None]
    guards = [file for file in portion if file.payload is None]
    params = kind(documents=[_document(f) for f in documents], guards=[_guard(f) for f in guards])
    said: Verdicts = ask("compat.import" if kind is Import else "compat.compare", params)
    yield from zip([*documents, *guards], [*said.documents, *said.guards], strict=True)


def _document(file: Entry) -> Document:
    pattern, payload = file.found.pattern, Raw((file.payload or "").encode())
    return Document(pattern.key, file.scope_id, payload, file.mtime_ms, pattern.ttl_ms)


def _guard(file: Entry) -> Guard:
    pattern = file.found.pattern
    return Guard(pattern.key, file.scope_id, file.mtime_ms, pattern.interval_s or 0)


def _sorted(
    judged: Iterable[Judged], why_not: Callable[[Entry, Any], str | None]
) -> tuple[list[Taken], list[Passed]]:
    """What is taken, and what is passed over because of the reason that `why_not` tells."""
    taken: list[Taken] = []
    passed: list[Passed] = []
    for file, verdict in judged:
        found = file.found
        reason = file.reason if isinstance(file, Refused) else why_not(file, verdict)
        if isinstance(file, Refused) or reason is not None:
            passed.append(Passed(found.key, found.shown, reason or ""))
        else:
            taken.append(Taken(found.key, file.scope_id, found.shown, file.table))
    return sorted(taken, key=_order), sorted(passed, key=_order)


def _order(file: Taken | Passed) -> tuple[str, str]:
    return file.key, file.path


def _report(done: str, taken: list[Taken], undone: str, passed: list[Passed]) -> Output:
    lines = [render.columns(done, file.key, file.path, file.table) for file in taken]
    lines += [render.columns(undone, file.key, file.path, file.reason) for file in passed]
    return render.text(*lines, f"{len(taken)} {done}, {len(passed)} {undone}")


VERBS = [
    Method("compat.compare", Compare, Verdicts, compare, check=_check_files),
    # A second attempt changes nothing, so there is no effect to keep.
    Method(
        "compat.import",
        Import,
        Verdicts,
        import_,
        check=_check_files,
        writes=Writes(keeps_effects=False),
        runs=Runs(long="importing"),
    ),
    Command(
        "compat import",
        ImportForm,
        ask_import,
        summary="Import legacy files.",
        examples=["icctl compat import --dry-run", "icctl compat import stop"],
    ),
    Command(
        "compat cleanup",
        CleanupForm,
        ask_cleanup,
        summary="Remove imported legacy files.",
        examples=["icctl compat cleanup", "icctl compat cleanup stop --apply"],
    ),
]
