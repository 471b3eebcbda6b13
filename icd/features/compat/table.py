"""The table of `compat status`: every key, in files and in the database."""

from icd.app import render
from icd.app.invocation import Output
from icd.features.compat.legacy.finding import Found
from icd.features.compat.legacy.patterns import KEYS
from icd.features.compat.legacy.reading import is_mirrored
from icd.features.compat.methods import Side
from icd.values.wire import Result, iso

# The first three columns are the original's, spacing included.
_HEADER = "KEY\t\t\tLEGACY\tDB\tFILES\tSTATE\tSENTINELS\tLEGACY_WRITE\tDB_WRITE"


class Line(Result):
    """A key on both sides; null is what could not be looked at, or a write that never was."""

    key: str
    legacy: bool | None
    db: bool | None
    files: int | None
    state: int | None
    sentinels: int | None
    legacy_at: int | None
    legacy_at_iso: str | None
    db_at: int | None
    db_at_iso: str | None


def compare(found: list[Found] | None, sides: list[Side] | None) -> list[Line]:
    """One line per key; None for a side that could not be looked at."""
    files = None if found is None else [file for file in found if not is_mirrored(file)]
    known = {side.key: side for side in sides or []}
    return [_line(key, files, known.get(key)) for key in KEYS]


def table(lines: list[Line]) -> Output:
    return render.text(_HEADER, *(_row(line) for line in lines))


def _line(key: str, found: list[Found] | None, side: Side | None) -> Line:
    times = None if found is None else [f.mtime_ms // 1000 for f in found if f.pattern.key == key]
    legacy_at = max(times) if times else None
    db_at = None if side is None else _later(side.state_at, side.sentinels_at)
    return Line(
        key=key,
        legacy=None if times is None else bool(times),
        db=None if side is None else bool(side.state or side.sentinels),
        files=None if times is None else len(times),
        state=None if side is None else side.state,
        sentinels=None if side is None else side.sentinels,
        legacy_at=legacy_at,
        legacy_at_iso=None if legacy_at is None else iso(legacy_at),
        db_at=db_at,
        db_at_iso=None if db_at is None else iso(db_at),
    )


def _later(*moments: int | None) -> int | None:
    return max((moment for moment in moments if moment is not None), default=None)


def _row(line: Line) -> str:
    return render.columns(
        f"{line.key:<20}",
        _yes(line.legacy),
        _yes(line.db),
        *("n/a" if count is None else count for count in _counts(line)),
        line.legacy_at_iso or ("n/a" if line.legacy is None else "-"),
        line.db_at_iso or ("n/a" if line.db is None else "-"),
    )


def _counts(line: Line) -> tuple[int | None, int | None, int | None]:
    return line.files, line.state, line.sentinels


def _yes(claim: bool | None) -> str:  # noqa: FBT001 -- the claim itself
    return "n/a" if claim is None else "yes" if claim else "no"
