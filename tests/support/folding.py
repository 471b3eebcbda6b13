"""What the log says about a run, to be compared with its row."""

from collections.abc import Iterable, Sequence

from icd.features.events.store import Event


def fold(chain: Sequence[str], log: Iterable[Event]) -> tuple[str, str]:
    """The status and the phase of a run, from its events alone."""
    status, phase = "active", chain[0]
    for event in log:
        assert event.from_state == phase, "a phase changed without its event"
        assert status == "active" or event.type == "rollback", "something happened after the end"
        if event.type in ("advance", "override", "rollback"):
            phase = event.to_state
            status = "completed" if phase == chain[-1] else "active"
        elif event.type in ("cancel", "abandon"):
            status = {"cancel": "cancelled", "abandon": "abandoned"}[event.type]
    return status, phase
