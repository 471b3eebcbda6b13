"""What the daemon asks of a database for itself: through the lane, like everybody else.

In the background: the database counts as idle all the same, and nobody's calls are counted.
"""

import time
from typing import Any

from icd.app.call import DEFAULT_DEADLINE_MS, Call, Params
from icd.app.verb import Method
from icd.db.paths import Where
from icd.values.processes import Writer


def inquiry(
    path: str,
    method: Method[Any, Any],
    params: Params,
    *,
    seconds: float = DEFAULT_DEADLINE_MS / 1000,
) -> Call:
    return Call(
        method=method,
        params=params,
        where=Where("", path),
        writer=Writer(),
        deadline=time.monotonic() + seconds,
        background=True,
    )
