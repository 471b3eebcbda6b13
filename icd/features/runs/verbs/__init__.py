"""The verbs of runs, in files by what they are about; rules and SQL are one package above.

`VERBS` in runs.py is the list of all verbs of `run`, in the order of the help, and takes in the
lists of its neighbours; `run agent` and `run artifact` have lists of their own.  Most verbs are one
method.  Those that touch files or processes of the caller do so in its own process, before or after
the call: the digest of an artifact, the agents that an advance starts, the processes that a
rollback ends.

Here are the parameters that several verbs have: which run, which project, and why.
"""

import os
from typing import Annotated

from msgspec import Meta

from icd.app.call import Context
from icd.app.verb import Argument, Option
from icd.db import paths
from icd.errors import BadPath
from icd.values import payloads

RunId = Annotated[str, Argument("RUN", "Id of the run.")]
Reason = Annotated[str, Meta(max_length=payloads.STRING_BYTES)]
Project = Annotated[
    str | None,
    Meta(description="Project directory (default: `cwd`, else the project of the database)."),
    Option("--project", "Project directory (default: the current directory).", "DIR"),
]


def check_project(cwd: str | None, given: str | None) -> None:
    """Refuse a path that would be seen from the directory of this process."""
    if given is not None and not os.path.isabs(os.path.join(cwd or "", given)):
        raise BadPath(f"the project must be an absolute path where no cwd is given, not {given!r}")
    if "\0" in (given or ""):
        raise BadPath("the project's path must not contain NUL")


def project_of(ctx: Context, cwd: str | None, given: str | None) -> str:
    """The identity of the project of a directory, seen from `cwd`, as it is stored.

    Without either it is the project of the database.
    """
    home = os.path.dirname(os.path.dirname(ctx.path))
    place = os.path.join(cwd or home, given or "")
    if "\0" in place:
        raise BadPath("the project's path contains a NUL")
    return paths.project_identity(place).encode("utf-8", "backslashreplace").decode()


def projects_around(ctx: Context, cwd: str | None) -> tuple[str, str]:
    """The project that owns the database, and the caller's: a worktree has one of its own."""
    directory = os.path.dirname(ctx.path)
    owner = os.path.dirname(directory) if os.path.basename(directory) == ".clavain" else directory
    return project_of(ctx, owner, None), project_of(ctx, cwd or owner, None)
