"""The Python client: the verbs of intercore as typed methods.

    from icctl.api import Client

    with Client() as client:
        if client.sentinel.check("scan", "nightly", interval="1h").allowed:
            client.state.set("scan", "nightly", {"status": "running"}, ttl="10m")

`Client` blocks, and threads may share it; `AsyncClient` is for anyio, with asyncio or trio.  Both
keep one connection to the user's own daemon, and one more for each stream.  Without a daemon they
run the same code in this process, as `icctl` does.

The methods, their parameters and their results are those of the protocol (icctl/api/made is made
from the rows of the verbs); `from icctl.api import results` has the results by name.
"""

from typing import TYPE_CHECKING, Any

from icctl.api.blocking import Client
from icctl.api.errors import Error, NoDatabase, Refused, UnknownOutcome
from icctl.api.requests import Duration, Json, Mode, Reply

if TYPE_CHECKING:
    from icctl.api.awaiting import AsyncClient
    from icctl.api.made import results

__all__ = [
    "AsyncClient",
    "Client",
    "Duration",
    "Error",
    "Json",
    "Mode",
    "NoDatabase",
    "Refused",
    "Reply",
    "UnknownOutcome",
    "results",
]


def __getattr__(name: str) -> Any:
    """Load anyio, and the results of all nouns, only for those who want them."""
    if name == "AsyncClient":
        from icctl.api.awaiting import AsyncClient

        return AsyncClient
    if name == "results":
        from icctl.api.made import results

        return results
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
