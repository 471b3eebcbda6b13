"""dispatch.due: the agents of a run that nobody has started yet."""

from icd.core import auto_spawns
from icd.core.auto_spawns import Due
from icd.rpc.method import Context, Method, Params


class AskDue(Params):
    run_id: str


def due(ctx: Context, p: AskDue) -> list[Due]:
    return auto_spawns.due(ctx.conn, p.run_id)


DUE = Method("dispatch.due", AskDue, list[Due], due)
