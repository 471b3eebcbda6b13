"""`icctl init --adopt`

It runs in the caller's own process: that may look at who has the original open, takes as long as
the database is large, and delays nobody whom the daemon serves.
"""

from icd.app import render
from icd.app.invocation import Caller, Local, Output, World
from icd.db.original.tables import Left
from icd.features.database import methods


def adopt(world: World) -> Local:
    def run(ask: Caller) -> Output:
        found: methods.Adopted = ask("db.adopt", methods.Adopt())
        if world.json:
            return render.to_json(found)
        return render.text(*_lines(found, world.cwd))

    return Local(run)


def _lines(found: methods.Adopted, cwd: str) -> list[str]:
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
        return "rows that cannot be counted"
    return "1 row" if count == 1 else f"{count} rows"
