"""What the nouns of a client are made of; those with verbs are in icctl/api/made."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from icctl.api.async_followers import AsyncConsumer
    from icctl.api.awaiting import AsyncClient
    from icctl.api.blocking import Client
    from icctl.api.followers import Consumer
    from icctl.api.requests import Reply


class Queue(Protocol):
    """A pipeline, of either client."""

    def queue(
        self, name: str, params: Mapping[str, Any], request_id: str | None = None
    ) -> "Reply[Any]": ...


class Blocking:
    def __init__(self, host: "Client") -> None:
        self._host = host


class Awaiting:
    def __init__(self, host: "AsyncClient") -> None:
        self._host = host


class Queued:
    def __init__(self, host: Queue) -> None:
        self._host = host


class BlockingEvents(Blocking):
    def subscribe(
        self,
        consumer: str,
        run_id: str = "",
        *,
        source: str | None = None,
        type: str | None = None,  # noqa: A002
        limit: int = 100,
    ) -> "Consumer":
        """Iterate over the events that a consumer has not acknowledged, and wait for more.

        An event is acknowledged once the next one is asked for; `limit` are read at once.
        """
        return self._host.consume(_wanted(consumer, run_id, source, type, limit))


class AwaitingEvents(Awaiting):
    def subscribe(
        self,
        consumer: str,
        run_id: str = "",
        *,
        source: str | None = None,
        type: str | None = None,  # noqa: A002
        limit: int = 100,
    ) -> "AsyncConsumer":
        """Iterate over the events that a consumer has not acknowledged, and wait for more.

        An event is acknowledged once the next one is asked for; `limit` are read at once.
        """
        return self._host.consume(_wanted(consumer, run_id, source, type, limit))


def _wanted(
    consumer: str, run_id: str, source: str | None, kind: str | None, limit: int
) -> dict[str, Any]:
    return {
        "consumer": consumer, "run_id": run_id, "source": source, "type": kind, "limit": limit,
    }  # fmt: skip
