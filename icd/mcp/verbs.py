"""mcp: a server of tools for an agent, on stdin and stdout.

It runs in the caller's own process, and goes on until stdin ends.
"""

import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated

from msgspec import Struct

from icd.app.invocation import Local, Output, World
from icd.app.verb import Command, Option
from icd.db.paths import Where
from icd.errors import BadPath, McpNotInstalled
from icd.mcp import offer

if TYPE_CHECKING:
    from icctl.api import AsyncClient


class Mcp(Struct):
    """Serve the methods as tools of the Model Context Protocol, on stdin and stdout.

    An agent starts it, and ends it by closing stdin.
    The project is the first root of the client that has a database, else the current directory;
    --db and --project set it.
    Tools that delete, end or start something are not offered unless --allow names them.
    """

    project: Annotated[
        str | None, Option("--project", "Project directory (default: the client's root).", "DIR")
    ] = None
    allow: Annotated[
        str,
        Option("--allow", "Offer these tools, too: methods, nouns or all, with commas.", "NAMES"),
    ] = ""


def ask_mcp(world: World, f: Mcp) -> Local:
    allowed = offer.read_allowed(f.allow)
    project = f.project and os.path.normpath(os.path.join(world.cwd, f.project))

    def run(_ask: object) -> Output:
        if project is not None and not os.path.isdir(project):
            raise BadPath(f"there is no directory {project}", hint="check --project")
        _require_sdk()
        from icd.mcp.project import Project
        from icd.mcp.server import serve
        from icd.mcp.tools import describe

        tools = [describe(row) for row in offer.offered(allowed)]
        serve(tools, partial(_client, world), Project(world.where, project))
        return Output(0)

    return Local(run)


def _client(world: World, where: Where) -> "AsyncClient":
    from icctl.api import AsyncClient

    return AsyncClient(where.cwd, db=where.explicit, mode="direct" if world.no_daemon else None)


def _require_sdk() -> None:
    """Load it, wherever Python finds packages: a command is started without looking everywhere."""
    if sys.flags.no_site:
        import site

        site.main()
    try:
        import mcp.server.lowlevel  # noqa: F401
    except ImportError as exc:
        raise McpNotInstalled("the server needs the package mcp, which is not installed") from exc


VERBS = [
    Command(
        "mcp",
        Mcp,
        ask_mcp,
        summary="Serve tools for an agent (MCP).",
        examples=["icctl mcp", "icctl mcp --allow=state.delete,run"],
    ),
]
