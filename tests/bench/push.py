"""From a commit to those who watch, against a bare round trip; and what a thousand idle ones cost."""

import contextlib
import json
import resource
import socket
import time
from collections.abc import Iterator
from typing import BinaryIO

from tests.bench import setting as place
from tests.bench.table import Table
from tests.bench.throughput import Echo

EVENTS = 2500
PAUSE_SECONDS = 0.001  # longer than a round trip: it is asked what one event takes, not how many
IDLE = 1000
CALLS = 3000


def run(table: Table) -> None:
    _raise_descriptor_limit()
    with place.project() as setting, place.daemon(setting), Echo(setting) as echo:
        bare, pushed = _latencies(setting, echo)
    with (
        place.project() as calm, place.daemon(calm), place.project() as busy, place.daemon(busy)
    ):  # fmt: skip
        alone, watched = _beside_idle_watchers(calm, busy)
    table.ratio(
        "commit to subscriber / bare round trip", pushed, bare, unit="µs", most=5, by="p99",
        meaning="From the reply of a write until a watcher has its event; "
        "the promise is about the slowest, so the ratio is that of the p99.",
    )  # fmt: skip
    table.ratio(
        f"state.set beside {IDLE:,} idle watchers / alone", watched, alone, unit="µs",
        most=1.2,  # nothing that can be told from noise
        meaning="Whoever watches something else costs nothing: two daemons, called in turn.",
    )  # fmt: skip


def _latencies(setting: place.Setting, echo: str) -> tuple[list[float], list[float]]:
    """Microseconds from the reply to a write until a watcher has its event; interleaved with an echo.

    The reply is the first that anybody hears of the commit, and it is sent before the log is read.
    """
    bare, pushed = [], []
    request = _request("events.record", db=setting.path, source="bench", type="t")
    with (
        peer(echo) as (other, echoed),
        peer(setting.socket) as (writer, replies),
        peer(setting.socket) as (watcher, news),
    ):
        watcher.sendall(_request("events.watch", db=setting.path))
        news.readline()
        for _ in range(EVENTS):
            time.sleep(PAUSE_SECONDS)
            began = time.perf_counter()
            other.sendall(request)
            echoed.readline()
            bare.append((time.perf_counter() - began) * 1e6)
            time.sleep(PAUSE_SECONDS)
            writer.sendall(request)
            replies.readline()
            began = time.perf_counter()
            news.readline()
            pushed.append((time.perf_counter() - began) * 1e6)
    return bare, pushed


def _beside_idle_watchers(
    calm: place.Setting, busy: place.Setting
) -> tuple[list[float], list[float]]:
    """Microseconds of calls to a daemon without watchers, and in turn to one that has many."""
    with contextlib.ExitStack() as stack:
        for number in range(IDLE // 2):
            for request in (
                _request("state.watch", db=busy.path, key="idle", scope_id=f"{number}"),
                _request("events.watch", db=busy.path, run_id=f"{number}"),
            ):
                watcher, news = stack.enter_context(peer(busy.socket))
                watcher.sendall(request)
                news.readline()
        ways = []
        for setting in (calm, busy):
            sock, replies = stack.enter_context(peer(setting.socket))
            request = _request("state.set", db=setting.path, key="bench", scope_id="s1", payload=1)
            ways.append((sock, replies, request, []))
        for _ in range(CALLS):
            for sock, replies, request, times in ways:
                began = time.perf_counter()
                sock.sendall(request)
                replies.readline()
                times.append((time.perf_counter() - began) * 1e6)
    return ways[0][3], ways[1][3]


@contextlib.contextmanager
def peer(path: str) -> Iterator[tuple[socket.socket, BinaryIO]]:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(path)
        with sock.makefile("rb") as lines:
            yield sock, lines


def _request(method: str, **params: object) -> bytes:
    call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return json.dumps(call).encode() + b"\n"


def _raise_descriptor_limit() -> None:
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
