"""Which project a caller means."""

import os

from icd.app.call import Context
from icd.db import paths
from icd.errors import BadPath


def around(ctx: Context, cwd: str | None) -> tuple[str, str]:
    """The project that owns the database, and the caller's: a worktree has one of its own."""
    directory = os.path.dirname(ctx.path)
    owner = os.path.dirname(directory) if os.path.basename(directory) == ".clavain" else directory
    return meant(ctx, owner, None), meant(ctx, cwd or owner, None)


def meant(ctx: Context, cwd: str | None, directory: str | None) -> str:
    """The identity of the project of a directory, seen from `cwd`, as it is stored.

    Without either it is the project of the database; nothing is seen from where this process is.
    """
    home = os.path.dirname(os.path.dirname(ctx.path))
    place = os.path.join(cwd or home, directory or "")
    if "\0" in place:
        raise BadPath("the project's path contains a NUL")
    return paths.project_identity(place).encode("utf-8", "backslashreplace").decode()
