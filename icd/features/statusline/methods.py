"""statusline.*: what a statusline shows about one session, in one call."""

from icd.app.call import ANYTHING, Context, Params, Topic
from icd.app.verb import Method, Stream
from icd.features.runs import params
from icd.features.statusline import store as statusline
from icd.features.statusline.store import Statusline
from icd.values import validation as names
from icd.values.processes import is_alive


class Get(Params):
    """`session` of the common parameters is the caller's; this is the one that is shown."""

    session_id: str = ""
    agent: str | None = None
    project: str | None = None


def get(ctx: Context, p: Get) -> Statusline:
    return statusline.read(
        ctx.conn,
        p.session_id,
        agent=p.agent or None,
        project=lambda: params.project(ctx, p.cwd, p.project),
        is_alive=is_alive,
        now_ms=ctx.now_ms,
    )


def check_get(p: Get) -> None:
    names.check_scope(p.session_id)


def everything(_: Get) -> Topic:
    """Rows of state, and what happens to runs."""
    return ANYTHING


METHODS = [
    Method("statusline.get", Get, Statusline, get, check=check_get, stream=Stream(everything))
]
