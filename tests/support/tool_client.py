"""A client of the official SDK, and `icctl mcp` as its server."""

import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import CallToolResult, ListRootsResult, Root

from tests.support import forking
from tests.support.forked import forker
from tests.support.processes import BIN, CLEAN, PATIENCE, running

# The handshake that agents have had for years, and the protocol without one.
ERAS = ("legacy", "auto")
HOSTS = ("daemon", "direct")


@contextmanager
def hosted(host: str) -> Iterator[dict[str, str]]:
    """The environment in which calls go through a daemon, or find none."""
    if host == "direct":
        yield {"INTERCORE_SOCKET": "/nowhere/icd.sock"}
        return
    with running() as daemon:
        yield {"INTERCORE_SOCKET": daemon.socket, "INTERCORE_MODE": "daemon"}


@asynccontextmanager
async def connected(
    project: Path,
    *words: str,
    env: dict[str, str],
    era: str = "auto",
    roots: list[str] | None = None,
    list_roots: Any = None,
    **options: Any,
) -> AsyncIterator[Client]:
    async def told(_context: object) -> ListRootsResult:
        return ListRootsResult(roots=[Root(uri=uri) for uri in roots or []])

    # To load the SDK for each costs a second; test_process.py has servers that are started.
    ask = ["-E", "-P", "-S", forking.__file__, "--ask", forker("mcp").socket]
    server = StdioServerParameters(
        command=sys.executable,
        args=[*ask, str(BIN / "icctl-python"), "mcp", *words],
        cwd=project,
        env={**CLEAN, "HOME": str(project), **env},
    )
    with open(os.devnull, "w", encoding="utf-8") as nowhere:  # noqa: ASYNC230
        async with Client(
            stdio_client(server, errlog=nowhere),
            mode=era,
            read_timeout_seconds=PATIENCE,
            list_roots_callback=list_roots or (None if roots is None else told),
            **options,
        ) as client:
            yield client


def result(answer: CallToolResult) -> Any:
    """What a tool has answered; an error is an AssertionError."""
    assert not answer.is_error, answer.structured_content
    found = answer.structured_content
    return found["result"] if list(found) == ["result"] else found


def error(answer: CallToolResult) -> dict[str, Any]:
    assert answer.is_error, answer.structured_content
    found: dict[str, Any] = answer.structured_content
    return found
