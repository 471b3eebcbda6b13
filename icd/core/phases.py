"""The phases of a run: a chain of names, of which the last is final.

Pure functions; nothing here knows a database.
"""

from collections.abc import Collection

import msgspec

from icd.core.runs import Run

DEFAULT = (
    "brainstorm",
    "brainstorm-reviewed",
    "strategized",
    "planned",
    "executing",
    "review",
    "polish",
    "reflect",
    "done",
)


def chain(run: Run) -> tuple[str, ...]:
    """The run's own phases, or those of everybody."""
    if run.phases is None:
        return DEFAULT
    return msgspec.json.decode(run.phases, type=tuple[str, ...])


def ahead(chain: tuple[str, ...], phase: str, skipped: Collection[str]) -> str | None:
    """The next phase that is not skipped; the last one never is."""
    rest = chain[chain.index(phase) + 1 :]
    return next((name for name in rest if name not in skipped or name == chain[-1]), None)


def between(chain: tuple[str, ...], a: str, b: str) -> list[str]:
    """The phases after `a`, through `b`."""
    return list(chain[chain.index(a) + 1 : chain.index(b) + 1])
