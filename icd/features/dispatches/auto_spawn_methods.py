"""dispatch.due: the agents of a run that nobody has started yet."""

from icd.app.call import Context, Params
from icd.app.verb import Method
from icd.features.dispatches import auto_spawn as auto_spawns
from icd.features.dispatches.auto_spawn import Due


class AskDue(Params):
    run_id: str


def due(ctx: Context, p: AskDue) -> list[Due]:
    return auto_spawns.due(ctx.conn, p.run_id)


DUE = Method("dispatch.due", AskDue, list[Due], due)
