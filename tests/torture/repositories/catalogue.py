"""Every repository by its name: each primitive alone, and several of them together.

A name and a seed say all of what is in a repository.  `composed` makes further names without an
end: several primitives of different kinds, one after the other, in the same clone.
"""

import contextlib
import os
import random
import sqlite3

from tests.torture.repositories import (
    contents,
    journals,
    logs,
    pages,
    places,
    schemas,
    settings,
)
from tests.torture.repositories.clone import Clone, Primitive, begin

KINDS: dict[str, dict[str, Primitive]] = {
    "journals": journals.PRIMITIVES,
    "logs": logs.PRIMITIVES,
    "schemas": schemas.PRIMITIVES,
    "pages": pages.PRIMITIVES,
    "places": places.PRIMITIVES,
    "settings": settings.PRIMITIVES,
    "contents": contents.PRIMITIVES,
}
PRIMITIVES: dict[str, Primitive] = {
    name: primitive for kind in KINDS.values() for name, primitive in kind.items()
}
AND = " and "
# In this order the later ones leave standing what the earlier ones did.
ORDER = ["contents", "schemas", "settings", "pages", "journals", "logs", "places"]
TOGETHER = 24  # names of several primitives in the short form


def every(seed: int) -> list[str]:
    """The names of the short form: all primitives, and some of them together."""
    rng = random.Random(seed)
    found = list(PRIMITIVES)
    while len(found) < len(PRIMITIVES) + TOGETHER:
        name = composed(rng)
        if name not in found:
            found.append(name)
    return found


def composed(rng: random.Random) -> str:
    """The name of two or three primitives of different kinds."""
    kinds = sorted(rng.sample(ORDER, rng.choice([2, 2, 3])), key=ORDER.index)
    return AND.join(rng.choice(list(KINDS[kind])) for kind in kinds)


def kind_of(name: str) -> str:
    first = name.split(AND, maxsplit=1)[0]
    return next(kind for kind, found in KINDS.items() if first in found)


def make(name: str, clone: Clone) -> None:
    """Write the repository.  Of several primitives, one may find nothing left to spoil."""
    umask = os.umask(0o077)
    try:
        begin(clone)
        parts = name.split(AND)
        if len(parts) == 1:
            PRIMITIVES[name](clone)
            return
        for part in parts:
            with contextlib.suppress(OSError, sqlite3.Error):
                PRIMITIVES[part](clone)
    finally:
        os.umask(umask)
