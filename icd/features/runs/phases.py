"""The phases of a run: a chain of names that it goes through, of which the last is final.

A run has the default chain, or one of its own that was given when it was created.  It moves
along its chain and never leaves it: forward to the next phase that is not skipped, backward to any
phase behind it.  The last phase cannot be skipped, so every chain comes to an end.

Pure functions; nothing here knows a database.
"""

import re
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from icd.errors import InvalidChain, UnknownPhase
from icd.values.validation import shown

if TYPE_CHECKING:
    from icd.features.runs.store import Run

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

# Every advance looks at all of them, and no person could follow more.
MOST = 100
# A name stands in lines and in file names of prompts.
NAME_CHARACTERS = 100

_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_CONTEXT = "parse phase chain"


def chain(run: "Run") -> tuple[str, ...]:
    """The run's own phases, or the default ones."""
    if run.phases is None:
        return DEFAULT
    try:
        return _stored(run.phases)
    except InvalidChain as exc:
        raise UnknownPhase(f"the phases of run {run.id} are invalid: {exc.message}") from exc


def parse(text: str) -> tuple[str, ...]:
    """Phases as they were written: a JSON array of names."""
    try:
        names = msgspec.json.decode(text, type=list[str])
    except (msgspec.DecodeError, UnicodeError) as exc:
        raise InvalidChain(f"{_CONTEXT}: {exc}") from exc
    return check(names)


def check(names: Sequence[str]) -> tuple[str, ...]:
    if len(names) < 2:
        raise InvalidChain(f"{_CONTEXT}: need at least 2 phases, got {len(names)}")
    if len(names) > MOST:
        raise InvalidChain(f"{_CONTEXT}: at most {MOST} phases, got {len(names)}")
    for place, name in enumerate(names):
        if not _NAME.fullmatch(name):
            quoted = shown(name).replace("'", '"')
            raise InvalidChain(
                f"{_CONTEXT}: invalid phase name {quoted} (must match {_NAME.pattern})"
            )
        if len(name) > NAME_CHARACTERS:
            raise InvalidChain(
                f"{_CONTEXT}: phase {shown(name)} is longer than {NAME_CHARACTERS} characters"
            )
        if name in names[:place]:
            raise InvalidChain(f'{_CONTEXT}: duplicate phase "{name}"')
    return tuple(names)


def ahead(chain: tuple[str, ...], phase: str, skipped: Collection[str]) -> str | None:
    """The next phase that is not skipped; None after the last, which is never skipped."""
    rest = chain[place(chain, phase) + 1 :]
    return next((name for name in rest if name not in skipped or name == chain[-1]), None)


def between(chain: tuple[str, ...], a: str, b: str) -> list[str]:
    """The phases after `a`, through `b`."""
    return list(chain[place(chain, a) + 1 : place(chain, b) + 1])


def place(chain: tuple[str, ...], phase: str) -> int:
    if phase not in chain:
        raise UnknownPhase(f'phase "{phase}" is not in the chain {" → ".join(chain)}')
    return chain.index(phase)


@lru_cache(maxsize=64)
def _stored(text: str) -> tuple[str, ...]:
    return parse(text)
