"""What `compat import` and `compat cleanup` do in the caller's own process: look, ask, act.

Files are read and judged in portions, so that neither memory nor a transaction grows with /tmp.
"""

from collections.abc import Iterator

from msgspec import Raw, Struct, structs

from icd.app.invocation import Caller
from icd.features.compat import methods
from icd.features.compat.legacy import removal
from icd.features.compat.legacy.finding import Found, shown
from icd.features.compat.legacy.reading import Entry, Refused, read
from icd.features.compat.store import WRITTEN, Verdict
from icd.values.wire import Result

PORTION_BYTES = 8 * 1024 * 1024

_REASONS: dict[Verdict, str] = {
    "same": "already imported",
    "superseded": "the database has other data, at least as new",
    "expired": "a cache past its time",
    "early": "its time lies in the future",
}


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


class _Judged(Struct, frozen=True):
    """A file that could be read, and what the database says to it."""

    entry: Entry
    verdict: Verdict


Outcome = tuple[list[Taken], list[Passed]]


def bring_in(ask: Caller, found: list[Found], *, dry_run: bool) -> Outcome:
    taken: list[Taken] = []
    passed: list[Passed] = []
    rows: set[tuple[str, str, str]] = set()
    for file in _judge(ask, "compat.compare" if dry_run else "compat.import", found):
        if isinstance(file, Refused):
            passed.append(_passed(file.found, file.reason))
        elif file.verdict not in WRITTEN:
            passed.append(_passed(file.entry.found, _REASONS[file.verdict]))
        elif (row := _row(file.entry)) in rows:  # a dry run did not write the newer file's row
            passed.append(_passed(file.entry.found, _REASONS["superseded"]))
        else:
            rows.add(row)
            taken.append(_taken(file.entry))
    return sorted(taken, key=_order), sorted(passed, key=_order)


def clean_up(ask: Caller, found: list[Found], *, apply: bool, superseded: bool) -> Outcome:
    """Remove what the database knows as well; with `superseded`, also what it knows better."""
    taken: list[Taken] = []
    passed: list[Passed] = []
    # All questions come first: after a removal nothing may fail that would keep it from the report.
    judged = [_without_payload(file) for file in _judge(ask, "compat.compare", found)]
    for file in judged:
        if isinstance(file, Refused):
            passed.append(_passed(file.found, file.reason))
            continue
        reason = _reason_to_stay(file, superseded=superseded)
        if reason is None and apply:
            reason = removal.remove(file.entry)
        if reason is None:
            taken.append(_taken(file.entry))
        else:
            passed.append(_passed(file.entry.found, reason))
    return sorted(taken, key=_order), sorted(passed, key=_order)


def _without_payload(file: _Judged | Refused) -> _Judged | Refused:
    """Whoever keeps all files in mind cannot keep all that they say."""
    if isinstance(file, Refused) or file.entry.payload is None:
        return file
    return _Judged(structs.replace(file.entry, payload=""), file.verdict)


def _reason_to_stay(file: _Judged, *, superseded: bool) -> str | None:
    if file.verdict in WRITTEN:
        return "not imported yet"
    if file.verdict != "same" and not (superseded and file.verdict == "superseded"):
        return _REASONS[file.verdict]
    if file.entry.forgotten:
        return f"a guard that holds {file.entry.forgotten} bytes, which were not imported"
    return None


def _judge(ask: Caller, method: str, found: list[Found]) -> Iterator[_Judged | Refused]:
    portion: list[Entry] = []
    size = 0
    for each in found:
        file = read(each)
        if isinstance(file, Refused):
            yield file
            continue
        portion.append(file)
        size += len(file.payload or "")
        if len(portion) == methods.MANY or size > PORTION_BYTES:
            yield from _ask(ask, method, portion)
            portion, size = [], 0
    yield from _ask(ask, method, portion)


def _ask(ask: Caller, method: str, portion: list[Entry]) -> Iterator[_Judged]:
    """Also without a file: that there is no database is worth knowing."""
    documents = [file for file in portion if file.payload is not None]
    guards = [file for file in portion if file.payload is None]
    kind = methods.Import if method == "compat.import" else methods.Compare
    params = kind(documents=[_document(f) for f in documents], guards=[_guard(f) for f in guards])
    verdicts: methods.Verdicts = ask(method, params)
    answered = [*verdicts.documents, *verdicts.guards]
    for file, verdict in zip([*documents, *guards], answered, strict=True):
        yield _Judged(file, verdict)


def _document(file: Entry) -> methods.Document:
    pattern = file.found.pattern
    payload = Raw((file.payload or "").encode())
    return methods.Document(pattern.key, file.scope_id, payload, file.mtime_ms, pattern.ttl_ms)


def _guard(file: Entry) -> methods.Guard:
    pattern = file.found.pattern
    return methods.Guard(pattern.key, file.scope_id, file.mtime_ms, pattern.interval_s or 0)


def _row(file: Entry) -> tuple[str, str, str]:
    return _table(file), file.found.pattern.key, file.scope_id


def _table(file: Entry) -> str:
    return "sentinels" if file.payload is None else "state"


def _taken(file: Entry) -> Taken:
    return Taken(file.found.pattern.key, file.scope_id, shown(file.found.path), _table(file))


def _passed(found: Found, reason: str) -> Passed:
    return Passed(found.pattern.key, shown(found.path), reason)


def _order(line: Taken | Passed) -> tuple[str, str]:
    return line.key, line.path
