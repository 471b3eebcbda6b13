"""Which event goes to which hook next, and how far each hook has come.

Invariants
    - a hook gets the events of its source in the order of the log, each once;
    - what is being delivered is noted before the hook starts, so that after a crash the same event
      is delivered again, and marked;
    - a hook that has no position yet starts with the next event: the past is not replayed;
    - events of the source `hook` go to no hook, so that a failure is not the cause of the next.

Callers run these inside a transaction; nothing here begins or commits one.
"""

from msgspec import Struct

NAMES = ("on-phase-advance", "on-dispatch-change", "on-discovery", "on-event")


class Delivery(Struct, frozen=True):
    """An event on its way to a hook; `event` is its JSON."""

    hook: str
    seq: int
    source: str
    type: str
    run_id: str
    event: str
    redelivery: bool = False
