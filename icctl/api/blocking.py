"""`Client`: blocks, keeps one connection, and may be shared by threads.

Promises
    - one call, or one pipeline, is on the connection at a time: threads take turns;
    - a call is sent again, under the same request id, whenever its outcome is unknown, until its
      time is up; it runs in this process only if no daemon is there (as in icctl/client.py);
    - a connection on which a reply may still arrive is not used again: after a timeout or an
      interrupt the next call makes a new one;
    - a forked child makes a connection of its own.
"""

import os
import select
import threading
import time
from collections.abc import Mapping
from itertools import groupby
from socket import socket
from typing import Any, Self

import msgspec

from icctl.api import daemon, here
from icctl.api.daemon import Lost, Unread, left
from icctl.api.errors import Error, from_error
from icctl.api.followers import Consumer, Stream
from icctl.api.made import blocking as made
from icctl.api.options import PAUSE_SECONDS, PIECE_BYTES, Collected, Options, tell_absence
from icctl.api.requests import (
    Duration,
    Reply,
    Response,
    decode_response,
    undone,
)
from icctl.client import NOT_EXECUTED, Absent, Expired
from icd.errors import IcError


class Connection:
    """Lines on a socket.  Lost is raised when it has ended, Expired when the time is up.

    The socket never blocks: a timeout of Python's would cost as many system calls as the call.
    """

    def __init__(self, sock: socket) -> None:
        sock.settimeout(0.0)
        self.sock = sock
        self._requests = 0
        self._unread = b""
        self._unsent = memoryview(b"")
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)

    def exchange(self, calls: list[Reply[Any]], deadline: float) -> None:
        """Send the calls, and read their replies, which come in the same order."""
        remaining = left(deadline)
        was_unknown = calls[-1].is_unknown
        lines = []
        for call in calls:
            self._requests += 1
            call.id, call.is_unknown = self._requests, True
            lines.append(call.line(b"%d" % call.id, remaining))
        try:
            self.send(b"".join(lines))
            for call in calls:
                call.take(self._reply(call, deadline))
        except Unread:
            calls[-1].is_unknown = was_unknown
            raise

    def _reply(self, call: Reply[Any], deadline: float) -> Response:
        response = self.read(deadline)
        if response.id != call.id:
            raise ValueError("a reply to another request")
        return response

    def send(self, data: bytes) -> None:
        """Send what fits, and the rest while we read: the daemon writes before it reads on."""
        self._unsent = memoryview(data)
        self._push()
        if self._unsent:
            self._poll.modify(self.sock, select.POLLIN | select.POLLOUT)

    def _push(self) -> None:
        try:
            self._unsent = self._unsent[self.sock.send(self._unsent) :]
        except BlockingIOError:
            pass
        except OSError as exc:
            raise _ended(exc) from None

    def read(self, deadline: float | None) -> Response:
        """The next line; without a deadline, however long it takes."""
        parts = [self._unread]
        while b"\n" not in parts[-1]:
            if not self._poll.poll(None if deadline is None else left(deadline) * 1000):
                raise Expired
            if self._unsent:
                self._push()
                if not self._unsent:
                    self._poll.modify(self.sock, select.POLLIN)
            parts.append(self._receive())
        line, _, self._unread = b"".join(parts).partition(b"\n")
        return decode_response(line)

    def _receive(self) -> bytes:
        try:
            data = self.sock.recv(PIECE_BYTES)
        except BlockingIOError:
            return b""
        except OSError as exc:
            raise _ended(exc) from None
        if not data:
            raise Lost
        return data

    def close(self) -> None:
        self.sock.close()


def _ended(exc: OSError) -> Lost:
    return Unread() if exc.errno in NOT_EXECUTED else Lost()


class Client(Options, made.Nouns):
    """The verbs of a project's database, by noun: `client.state.set(...)`.

    `project`: a directory of the project (default: the current one).
    `db`: its database file, if not the nearest one from there upwards.
    `timeout`: of a call, if not given with the call (default: 5 s, as `icctl` has it).
    `session`: recorded with writes (default: as `icctl`, $INTERCORE_SESSION first).
    `mode`: auto, daemon (never without one) or direct (never with one); default $INTERCORE_MODE.
    `socket`: of the daemon (default: $INTERCORE_SOCKET, or the user's own).
    """

    def _begin(self) -> None:
        self._connection: Connection | None = None
        self._start_over()
        made.Nouns.__init__(self, self)

    def _start_over(self) -> None:
        """In a forked child: the connection is its parent's, and so is the thread in its turn."""
        self._pid = os.getpid()
        self._turn = threading.Lock()
        self._drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection.  A later call opens another one."""
        if self._pid != os.getpid():
            self._start_over()
        with self._turn:
            self._drop()

    def pipeline(self, *, timeout: Duration | None = None) -> "Pipeline":
        """Collect calls, and send them together at the end of the block."""
        return Pipeline(self, timeout)

    # --- for the nouns ---

    def ask(
        self,
        name: str,
        params: Mapping[str, Any],
        timeout: Duration | None = None,
        request_id: str | None = None,
    ) -> Any:
        call: Reply[Any] = self.prepare(name, params, request_id)
        self.carry_out([call], timeout)
        return call.result()

    def watch(self, name: str, params: Mapping[str, Any]) -> Stream[Any]:
        return Stream(self, name, params)

    def consume(self, params: Mapping[str, Any]) -> Consumer:
        return Consumer(self, params)

    # --- carrying out ---

    def carry_out(self, calls: list[Reply[Any]], timeout: Duration | None) -> None:
        """Have all calls done, each with a result or an error of its own."""
        if not calls:
            return
        limit = self.limit(calls, timeout)
        deadline = time.monotonic() + limit
        if self._pid != os.getpid():
            self._start_over()
        if self._turn.acquire(timeout=limit):
            try:
                for is_local, group in groupby(calls, lambda call: call.runs_here):
                    self._insist([*group], deadline, here_only=is_local)
            finally:
                self._turn.release()
        for call in calls:
            if not call.is_done:
                call.expire(limit)

    def _insist(self, calls: list[Reply[Any]], deadline: float, *, here_only: bool) -> None:
        """Ask until there is an answer or no time; see `icctl.client.insist`."""
        if here_only:
            return here.run(calls, self.target, deadline)
        absent = False
        while calls:
            try:
                self._exchange(calls, deadline)
            except Lost:
                pass
            except Absent:
                if self.mode != "daemon":
                    return here.run(calls, self.target, deadline)
                absent = True
            except Expired:
                if absent:
                    tell_absence(calls)
                return None
            calls = undone(calls)
            if calls and deadline <= time.monotonic():
                return tell_absence(calls) if absent else None
            if calls:
                time.sleep(PAUSE_SECONDS)
        return None

    def _exchange(self, calls: list[Reply[Any]], deadline: float) -> None:
        """One attempt; a connection on which something is left to come is given up."""
        done = False
        try:
            if self._connection is None:
                self._connection = self.connect(deadline)
            self._connection.exchange(calls, deadline)
            done = True
        except (msgspec.DecodeError, ValueError):
            for call in calls:
                if not call.is_done:
                    call.misread()
        except Error as exc:
            for call in calls:
                call.fail(exc)
        finally:
            if not done:
                self._drop()

    def connect(self, deadline: float) -> Connection:
        if self.mode == "direct":
            raise Absent
        while True:
            try:
                return Connection(daemon.connect(self._socket, deadline))
            except BlockingIOError:  # the backlog is full: the daemon is alive, and busy
                left(deadline)
                time.sleep(PAUSE_SECONDS)
            except IcError as exc:
                raise from_error(exc) from None

    def _drop(self) -> None:
        found, self._connection = self._connection, None
        if found is not None:
            found.close()


class Pipeline(Collected):
    """Calls that are sent together when the block ends; each has a result or an error of its own.

    They are carried out in order, and those that share a transaction still fail alone.
    """

    def __init__(self, client: Client, timeout: Duration | None) -> None:
        self._client = client
        super().__init__(client, timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_exc: object) -> None:
        if kind is None:
            self._client.carry_out(self._taken(), self._timeout)
