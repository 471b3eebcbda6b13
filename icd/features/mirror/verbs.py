"""What the daemon asks of a database for itself: for its mirror, and for those who watch.

Not in the registry: no caller may ask it.
"""

from typing import Annotated

from msgspec import Meta

from icd.app.call import Context, Params
from icd.app.verb import Method
from icd.features.state import store as state
from icd.features.state.store import Row

Page = tuple[list[tuple[str, int]], str | None]

# Read in one call: a version takes a few bytes, while a row may hold a megabyte.
VERSIONS_AT_ONCE = 1000
ROWS_AT_ONCE = 64


class Rows(Params):
    """Read rows of state; None stands for a row that is not there."""

    names: Annotated[list[tuple[str, str]], Meta(description="Each by key and scope.")]


class Versions(Params):
    """Read a page of the scopes of a key, with versions, and where the next page begins."""

    key: Annotated[str, Meta(description="Whose rows.")]
    after: Annotated[str | None, Meta(description="The last scope of the page before.")]
    since: Annotated[int, Meta(description="Leave out rows that were last written before.")]


def rows(ctx: Context, p: Rows) -> list[Row | None]:
    return [state.get(ctx.conn, key, scope_id, now_ms=ctx.now_ms) for key, scope_id in p.names]


def versions(ctx: Context, p: Versions) -> Page:
    return state.versions(
        ctx.conn, p.key, after=p.after, since=p.since, limit=VERSIONS_AT_ONCE, now_ms=ctx.now_ms
    )


def look(_ctx: Context, _p: Params) -> None:
    """Every call notices what others wrote: this one does nothing else."""


LOOK = Method("watch.look", Params, None, look)
ROWS = Method("mirror.rows", Rows, list[Row | None], rows)
VERSIONS = Method("mirror.versions", Versions, Page, versions)
