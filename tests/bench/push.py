"""From a commit to those who watch, against a bare round trip; and what a thousand idle ones cost."""

import contextlib
import json
import resource
import socket
import statistics
import time
from collections.abc import Iterator
from typing import BinaryIO

from tests.bench import setting as place
from tests.bench.table import Table
from tests.bench.throughput import Echo

EVENTS = 500
PAUSE_SECONDS = 0.001  # longer than a round trip: it is asked what one event takes, not how many
IDLE = 1000
CALLS = 3000
ROUNDS = 5


def run(table: Table) -> None:
    _raise_descriptor_limit()
    with place.project() as setting, place.daemon(setting), Echo(setting) as echo:
        rounds = [_latencies(setting, echo) for _ in range(ROUNDS)]
        alone, watched = _beside_idle_watchers(setting)
    bare, pushed = (min(times, key=_p99) for times in zip(*rounds, strict=True))
    table.ratio(
        "commit to subscriber, p99 / bare round trip, p99",
        _p99(pushed) * 1e6,
        _p99(bare) * 1e6,
        unit="us",
        most=5,
        meaning="From the reply of a write until a watcher has its event; the best p99 of 5 rounds of 500.",
    )
    table.note(
        "the same, median",
        f"{statistics.median(pushed) * 1e6:.0f} us / {statistics.median(bare) * 1e6:.0f} us",
    )
    table.ratio(
        f"state.set beside {IDLE:,} idle watchers / alone",
        watched * 1e6,
        alone * 1e6,
        unit="us",
        most=1.2,  # nothing that can be told from noise
        meaning="Whoever watches something else costs nothing; best of 5 rounds of 3,000 calls.",
    )


def _latencies(setting: place.Setting, echo: str) -> tuple[list[float], list[float]]:
    """Seconds from the reply to a write until a watcher has its event; interleaved with an echo.

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
            bare.append(time.perf_counter() - began)
            time.sleep(PAUSE_SECONDS)
            writer.sendall(request)
            replies.readline()
            began = time.perf_counter()
            news.readline()
            pushed.append(time.perf_counter() - began)
    return bare, pushed


def _beside_idle_watchers(setting: place.Setting) -> tuple[float, float]:
    """Seconds per call, the best of several rounds: without watchers, and beside many."""
    alone, watched = float("inf"), float("inf")
    with contextlib.ExitStack() as stack:
        for _ in range(ROUNDS):
            alone = min(alone, _calls(setting))
        for number in range(IDLE // 2):
            for request in (
                _request("state.watch", db=setting.path, key="idle", scope_id=f"{number}"),
                _request("events.watch", db=setting.path, run_id=f"{number}"),
            ):
                watcher, news = stack.enter_context(peer(setting.socket))
                watcher.sendall(request)
                news.readline()
        for _ in range(ROUNDS):
            watched = min(watched, _calls(setting))
    return alone, watched


def _calls(setting: place.Setting) -> float:
    request = _request("state.set", db=setting.path, key="bench", scope_id="s1", payload=1)
    with peer(setting.socket) as (sock, replies):
        began = time.perf_counter()
        for _ in range(CALLS):
            sock.sendall(request)
            replies.readline()
        return (time.perf_counter() - began) / CALLS


def _p99(times: list[float]) -> float:
    return sorted(times)[len(times) * 99 // 100]


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
