"""What both clients have in common: how they are made, and what a pipeline collects."""

import os
from collections.abc import Mapping
from typing import Any, Protocol

from icctl.api import daemon
from icctl.api.errors import from_error
from icctl.api.made import queued
from icctl.api.requests import Duration, Mode, Reply, Target, limit_of, spec
from icd.errors import IcError, NoDaemon

PIECE_BYTES = 64 * 1024
PAUSE_SECONDS = 0.005


class Options:
    """What a client was told, and which calls it makes of that."""

    def __init__(
        self,
        project: str | os.PathLike[str] | None = None,
        *,
        db: str | os.PathLike[str] | None = None,
        session: str | None = None,
        timeout: Duration | None = None,
        mode: Mode | None = None,
        socket: str | os.PathLike[str] | None = None,
    ) -> None:
        self.target = Target(project, db, session)
        self._timeout = timeout
        self._socket = None if socket is None else os.fspath(socket)
        try:
            self.mode = daemon.mode(mode)
        except IcError as exc:
            raise from_error(exc) from None
        self._begin()

    def _begin(self) -> None:
        """Be a client of these options."""
        raise NotImplementedError

    def prepare(
        self, name: str, params: Mapping[str, Any], request_id: str | None = None
    ) -> Reply[Any]:
        return Reply(spec(name), params, self.target, request_id)

    def limit(self, calls: list[Reply[Any]], timeout: Duration | None) -> float:
        return limit_of(calls, self._timeout if timeout is None else timeout)


def tell_absence(calls: list[Reply[Any]]) -> None:
    """Only what no daemon can have executed is told that there was none."""
    for call in calls:
        if not (call.is_done or call.is_unknown):
            call.fail(NoDaemon("no daemon is running, and the mode is daemon"))


class Prepares(Protocol):
    def prepare(
        self, name: str, params: Mapping[str, Any], request_id: str | None = None
    ) -> Reply[Any]: ...


class Collected(queued.Nouns):
    """Calls that wait for the end of a block."""

    def __init__(self, client: Prepares, timeout: Duration | None) -> None:
        self._prepare = client.prepare
        self._timeout = timeout
        self._calls: list[Reply[Any]] = []
        super().__init__(self)

    def queue(
        self, name: str, params: Mapping[str, Any], request_id: str | None = None
    ) -> Reply[Any]:
        call = self._prepare(name, params, request_id)
        self._calls.append(call)
        return call

    def _taken(self) -> list[Reply[Any]]:
        taken, self._calls = self._calls, []
        return taken
