"""What goes over the wire: results, times and numbers.

A store's rows are results, too.  Their fields are the columns, in the order in which they are
selected; fields with a default are derived from these, or added by the verb.
"""

import time
from functools import lru_cache
from typing import Annotated

import msgspec
from msgspec import Meta

from icd.db.rows import WrongValue

INT64 = 2**63
# A century: beyond it, arithmetic in milliseconds would no longer be safe.
CENTURY_MS = 100 * 366 * 24 * 3600 * 1000

Int64 = Annotated[int, Meta(ge=-INT64, le=INT64 - 1)]
Version = Annotated[int, Meta(ge=0, le=INT64 - 1)]
Milliseconds = Annotated[int, Meta(ge=0, le=CENTURY_MS)]


class Result(msgspec.Struct, omit_defaults=True, gc=False):
    """What a method answers: its fields are the JSON fields of the API and of `--json`.

    Optional fields appear only when they say something.
    """


@lru_cache(maxsize=256)
def iso(seconds: int) -> str:
    """Unix seconds as UTC in RFC 3339; most calls of a burst ask for the same second."""
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
    except (OverflowError, ValueError, OSError) as exc:
        raise WrongValue(f"a row of the database has the invalid time {seconds}") from exc


def iso_if(seconds: int | None) -> str | None:
    return None if seconds is None else iso(seconds)
