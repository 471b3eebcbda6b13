"""Which project a caller means."""

import os

from icd.db import paths
from icd.rpc.method import Context


def meant(ctx: Context, cwd: str | None, directory: str | None) -> str:
    """The identity of the project of a directory, seen from `cwd`.

    Without either it is the project of the database; nothing is seen from where this process is.
    """
    home = os.path.dirname(os.path.dirname(ctx.path))
    return paths.project_identity(os.path.join(cwd or home, directory or ""))
