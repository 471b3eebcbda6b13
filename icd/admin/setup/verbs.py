"""setup: make a coding agent start the daemon, show the status line, and know the MCP server.

All of it happens in the caller's own process: the files are the caller's.
"""

from typing import Annotated, Literal

from msgspec import Struct

from icd.app.invocation import Local, Output, World
from icd.app.verb import Argument, Command, Option


class Setup(Struct):
    """Set up a coding agent: write our entries into its own configuration, and nothing else.

    They start the daemon when a session begins ('icctl service ensure') and, in Claude Code
    without a status line, show ours; --mcp also registers 'icctl mcp'.
    The rest of a file stays as it is, byte for byte, and a copy of it is kept.
    A second run changes nothing; --remove leaves the file as it was.

    Without an agent's name, it looks which agents are on this machine: on a terminal it asks for
    each, otherwise it prints what to type.
    """

    agent: Annotated[
        Literal["claude", "codex", "gemini", "cursor"] | None,
        Argument("claude|codex|gemini|cursor", "Agent to set up; default: ask for those found."),
    ] = None
    check: Annotated[bool, Option("--check", "Change nothing; exit 1 if an entry is missing.")] = (
        False
    )
    remove: Annotated[bool, Option("--remove", "Remove our entries again.")] = False
    user: Annotated[
        bool, Option("--user", "Change your own configuration, for all projects (the default).")
    ] = False
    project: Annotated[
        bool, Option("--project", "Change the configuration of this project, which others share.")
    ] = False
    mcp: Annotated[bool, Option("--mcp", "Register 'icctl mcp' as an MCP server, too.")] = False
    dry_run: Annotated[
        bool, Option("--dry-run", "Print the changes as a diff, and write nothing.")
    ] = False


def setup(world: World, f: Setup) -> Output:
    from icd.admin.setup import carry_out  # a daemon knows the row, and never does this

    return carry_out.setup(world, f)


VERBS = [
    Command(
        "setup",
        Setup,
        lambda world, f: Local(lambda _ask: setup(world, f), is_about_project=False),
        summary="Set up a coding agent's hooks and MCP server.",
        examples=[
            "icctl setup",
            "icctl setup claude --dry-run",
            "icctl setup claude --mcp",
            "icctl setup codex --check",
            "icctl setup cursor --project --remove",
        ],
    ),
]
