"""Calls of a process that stays: through the daemon when it is there, else in this process.

The rules are those of a command (icctl/client.py): one deadline covers everything; it runs here
only if no daemon is there, or if it is proven that none executed it; a lost reply is asked for
again under the same request id.

Payloads may hold numbers beyond 64 bits, so what callers give and get passes through `json`.
"""

import json
import os
import time
from _socket import socket
from typing import Any

import msgspec

from icctl import client, direct, messages
from icd.app import registry
from icd.app.call import DEFAULT_DEADLINE_MS, Call
from icd.app.verb import Method
from icd.db import lock, permissions
from icd.db.paths import Where
from icd.errors import (
    TABLE,
    BadPath,
    DeadlineExceeded,
    IcError,
    InvalidParams,
    Misconfigured,
    NoDaemon,
    OtherOwner,
    UnknownOutcome,
)
from icd.values.processes import Writer

PROGRAM = "icctl"
PAUSE = 0.005  # before the daemon is asked again
_KINDS = {kind.code: kind for kind in TABLE}


class Calls:
    """`direct`: never ask a daemon.  It has no state, so threads may share it."""

    def __init__(self, *, direct: bool = False, session: str | None = None) -> None:
        mode = client.chosen_mode([])
        self._direct = direct or mode == b"direct"
        self._alone = mode == b"daemon" and not direct
        self._session = session

    def __call__(self, method: str, arguments: dict[str, Any], where: Where) -> Any:
        """The result as plain values; what goes wrong is raised as an IcError."""
        request = _Request(method, arguments, where, self._session)
        if self._direct:
            return request.run_here()
        unknown = absent = False
        while True:
            try:
                return self._ask(request)
            except client.Lost:
                unknown = True
            except client.Absent:
                if not self._alone:
                    return request.run_here()
                absent = True
            except client.Expired as exc:
                raise _late(request, unknown=unknown or exc.args[0], absent=absent) from None
            except client.GiveUp as exc:
                raise _given_up(*exc.args) from None
            time.sleep(PAUSE)

    def connect(self) -> socket | None:
        """A connection to the daemon, for a stream; None if there is none."""
        if self._direct:
            return None
        try:
            return client.connect(time.monotonic() + DEFAULT_DEADLINE_MS / 1000, PROGRAM)
        except (client.Absent, client.Expired, client.GiveUp):
            return None

    def _ask(self, request: "_Request") -> Any:
        sock, sent = client.connect(request.deadline, PROGRAM), False
        try:
            sock.settimeout(client.left(request.deadline, sent=sent))
            try:
                sock.sendall(request.line())
                sent = True
            except TimeoutError:
                raise client.Expired(client.NOT_SENT) from None
            except OSError as exc:  # it may have said why before it hung up
                if exc.errno not in client.NOT_EXECUTED:
                    raise
            return _answer(_read(sock, request.deadline, sent=sent))
        finally:
            sock.close()


class _Request:
    def __init__(
        self, method: str, arguments: dict[str, Any], where: Where, session: str | None
    ) -> None:
        row = registry.find(method)
        assert row is not None, f"{method} is not in the table of methods"
        self.row: Method[Any, Any] = row
        self.where = where
        self.deadline = time.monotonic() + row_limit_ms(row) / 1000
        try:
            self.arguments = json.dumps(arguments, allow_nan=False).encode()
            self.params = msgspec.json.decode(self.arguments, type=row.params)
        except (ValueError, RecursionError) as exc:
            raise InvalidParams(f"{row.name}: {exc}") from None
        if row.check is not None:
            row.check(self.params)
        self.params.request_id = os.urandom(12).hex() if row.writes else None
        self.params.session = session

    def remaining(self) -> float:
        return self.deadline - time.monotonic()

    def line(self) -> bytes:
        """As JSON-RPC; the daemon is told to be done a little before we stop listening."""
        remaining = max(self.remaining(), 0.0)
        margin = min(client.MARGIN, remaining / 10)
        params = msgspec.json.decode(self.arguments, type=dict[str, msgspec.Raw])
        said = {
            "cwd": self.where.cwd,
            "db": self.where.explicit,
            "session": self.params.session,
            "request_id": self.params.request_id,
            "deadline_ms": max(1, int((remaining - margin) * 1000)),
        }
        given: dict[str, Any] = params | {k: v for k, v in said.items() if v is not None}
        request = {"jsonrpc": "2.0", "id": 1, "method": self.row.name, "params": given}
        try:
            return msgspec.json.encode(request) + b"\n"
        except UnicodeEncodeError:
            raise BadPath(f"{self.where.cwd!r} is not valid UTF-8") from None

    def run_here(self) -> Any:
        if os.geteuid() == 0:
            _refuse_strangers(self.where)
        call = Call(
            method=self.row,
            params=self.params,
            where=self.where,
            writer=Writer(os.getpid(), self.params.session),
            deadline=max(self.deadline, time.monotonic() + 0.05),
        )
        # Not under a timer: this may be any thread, and signals are the main thread's.
        answer = direct.answer(call, os.environ.get("HOME"), wait=lock.poll)
        if answer.error is not None:
            raise answer.error
        return json.loads(msgspec.json.encode(answer.result))


def row_limit_ms(row: Method[Any, Any]) -> int:
    """Comparing takes longer, as for the command."""
    return client.SEARCH_MS if row.runs.apart else DEFAULT_DEADLINE_MS


def _refuse_strangers(where: Where) -> None:
    """A command of root's becomes the owner of the project; a process that stays cannot."""
    directory = permissions.directory_of(where)
    uid = permissions.controller(directory)
    if uid != 0:
        hint = f"start this server as user {uid}"
        raise OtherOwner(
            f"{directory} belongs to user {uid}, and this process is root's", hint=hint
        )


def _read(sock: socket, deadline: float, *, sent: bool) -> bytes:
    """One line; the daemon limits its length."""
    parts: list[bytes] = []
    while not (parts and parts[-1].endswith(b"\n")):
        try:
            sock.settimeout(client.left(deadline, sent=sent))
            part = sock.recv(1 << 16)
        except TimeoutError:
            raise client.Expired(sent) from None
        except OSError as exc:
            if exc.errno not in client.NOT_EXECUTED:
                raise
            part = b""
        if not part:
            raise (client.Lost if sent else client.Absent) from None
        parts.append(part)
    return b"".join(parts)


def _answer(line: bytes) -> Any:
    try:
        reply = json.loads(line)
        if "error" not in reply:
            return reply["result"]
        error = reply["error"]
        kind, message, data = _KINDS.get(error["code"]), error["message"], dict(error["data"])
    except (LookupError, TypeError, ValueError, RecursionError):
        raise client.GiveUp("nonsense") from None
    hint = data.pop("hint", "")
    facts = {name: data[name] for name in data if name not in {"name", "exit", "retryable"}}
    if kind is None:  # of a newer daemon
        kind = type("newer", (IcError,), {"name": data.get("name", "error")})
    raise kind(message, hint=hint, **facts)


def _late(request: _Request, *, unknown: bool, absent: bool) -> IcError:
    if absent and not unknown:
        return _given_up("no daemon")
    limit = row_limit_ms(request.row) / 1000
    told = f"the daemon did not answer within {limit:g} s"
    if unknown and request.row.writes:
        return UnknownOutcome(told)
    return DeadlineExceeded(told, hint="nothing was changed; retry")


def _given_up(name: str, *details: Any) -> IcError:
    """What a command would say about its client, as an error."""
    happened, hint = messages.told(name, *details)
    kind = {"mode": Misconfigured, "nonsense": UnknownOutcome}.get(name, NoDaemon)
    return kind(happened, hint=hint)
