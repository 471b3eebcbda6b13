"""How cost grows: with rows, clients, databases, the size of a payload, and events.

Each is a plot: medians of calls over the socket, beside a floor that grows with the same thing, a
bare anyio echo of the same bytes.  All points of a line take turns, each with a daemon of its own.
"""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import BinaryIO, NamedTuple

from tests.bench import scale
from tests.bench import setting as place
from tests.bench.databases import resident_kib
from tests.bench.plots import Plot, Series
from tests.bench.push import peer
from tests.bench.statusline import call
from tests.bench.table import Table
from tests.bench.throughput import Echo, closed_loop

ROWS = (100, 1_000, 10_000, 100_000, 1_000_000)
EVENTS = ROWS[1:]
CLIENTS = (1, 2, 4, 8, 16, 32, 64)
DATABASES = (1, 3, 10, 30, 100)
PAYLOADS = (10, 100, 1_000, 10_000, 100_000, 1024 * 1024)
CALLS = 400
LARGE_CALLS = 40  # of a payload of 100 kB and more
CLIENT_SECONDS = 0.4
CLIENT_ROUNDS = 3
TAILED = 10
BUFFERED_BYTES = 64 * 1024
# Each promise is about the ends of a line: the most that the whole way may cost.
FLAT = 1.5
DATABASES_MOST = 3  # each has a thread of its own
MICROSECONDS = "microseconds, median"

# Every repetition, by method and by how much there was of what grows.
Times = dict[tuple[str, int], list[float]]
Request = Callable[[int], bytes]


class Way(NamedTuple):
    """Where a request goes, and what the n-th of them is."""

    socket: str
    request: Request


def run(table: Table) -> None:
    _rows_and_events(table)
    _clients(table)
    _databases(table)
    _payloads(table)


def _rows_and_events(table: Table) -> None:
    ways: dict[tuple[str, int], Way] = {}
    with contextlib.ExitStack() as stack:
        for size in ROWS:
            setting = stack.enter_context(place.project(rows=0, guards=0))
            scale.grow(setting, size)
            stack.enter_context(place.daemon(setting))
            echo = stack.enter_context(Echo(setting))
            requests = _requests(setting, size)
            ways |= {(name, size): Way(setting.socket, made) for name, made in requests.items()}
            ways["echo", size] = Way(echo, requests["state.get"])
        times = _turns(ways)
    asked = ("state.get", "state.set", "sentinel.check")
    table.plot(
        Plot(name="rows", title="A call, by rows of state, sentinels and events",
             x="rows", y=MICROSECONDS, series=_lines(times, ROWS, *asked))
    )  # fmt: skip
    table.plot(
        Plot(name="events", title=f"{TAILED} events after a cursor, by events",
             x="events in the log", y=MICROSECONDS, series=_lines(times, EVENTS, "events.tail"))
    )  # fmt: skip
    for name in asked:
        what = f"{name}, {ROWS[-1]:,} rows / {ROWS[0]} rows"
        _ends(table, what, times[name, ROWS[-1]], times[name, ROWS[0]])
    what = f"events.tail, {EVENTS[-1]:,} events / {EVENTS[0]:,} events"
    _ends(table, what, times["events.tail", EVENTS[-1]], times["events.tail", EVENTS[0]])


def _requests(setting: place.Setting, rows: int) -> dict[str, Request]:
    def scope(number: int) -> str:
        return f"s{number * 7919 % min(rows, 100):07}"

    return {
        "state.get": lambda n: _line(setting, "state.get", key="bench", scope_id=scope(n)),
        "state.set": lambda n: _line(
            setting, "state.set", key="bench", scope_id=scope(n), payload={"i": n}
        ),
        "sentinel.check": lambda n: _line(
            setting, "sentinel.check", name="bench", scope_id=scope(n), interval=3600
        ),
        "events.tail": lambda n: _line(
            setting, "events.tail", since=rows // 2 + n % 50 - 25, limit=TAILED
        ),
    }


def _turns(ways: dict[tuple[str, int], Way], calls: int = CALLS) -> Times:
    """Microseconds of every call; each way in turn."""
    times: Times = {key: [] for key in ways}
    with contextlib.ExitStack() as stack:
        peers = {
            path: stack.enter_context(peer(path)) for path in {w.socket for w in ways.values()}
        }
        for number in range(calls):
            for key, way in ways.items():
                times[key].append(_timed(peers[way.socket], way.request(number)))
    return times


def _timed(to: tuple[socket.socket, BinaryIO], request: bytes) -> float:
    sock, lines = to
    began = time.perf_counter()
    with _sending(sock, request):
        reply = lines.readline()
    took = (time.perf_counter() - began) * 1e6
    assert b'"error"' not in reply[:200], reply[:200]
    return took


@contextlib.contextmanager
def _sending(sock: socket.socket, request: bytes) -> Iterator[None]:
    """What is too large for the buffers is sent beside: an echo wants its reply to be read."""
    if len(request) <= BUFFERED_BYTES:
        sock.sendall(request)
        yield
        return
    sender = threading.Thread(target=sock.sendall, args=(request,))
    sender.start()
    yield
    sender.join()


def _clients(table: Table) -> None:
    rates: Times = {}
    with place.project() as setting, place.daemon(setting), Echo(setting) as echo:
        request = _requests(setting, 100)["sentinel.check"](1)
        for _ in range(CLIENT_ROUNDS):
            for count in CLIENTS:
                for name, path in (("sentinel.check", setting.socket), ("echo", echo)):
                    rate = closed_loop(path, request, connections=count, seconds=CLIENT_SECONDS)
                    rates.setdefault((name, count), []).append(rate / 1000)
    table.plot(
        Plot(name="clients", title="Calls a second, by clients that wait for each reply",
             x="clients", y="thousands of calls a second, median",
             series=_lines(rates, CLIENTS, "sentinel.check"))
    )  # fmt: skip
    table.ratio(
        f"sentinel.check, calls a second of {CLIENTS[-1]} clients / of one",
        rates["sentinel.check", CLIENTS[-1]], rates["sentinel.check", CLIENTS[0]],
        unit="k/s", least=1,
        meaning="More clients share commits: all of them together get no less done than one.",
    )  # fmt: skip


def _databases(table: Table) -> None:
    ways: dict[tuple[str, int], Way] = {}
    daemons = {}
    with contextlib.ExitStack() as stack:
        for count in DATABASES:
            projects = [
                stack.enter_context(place.project(rows=100, guards=10)) for _ in range(count)
            ]
            host = projects[0]
            daemons[count] = stack.enter_context(place.daemon(host))
            for project in projects:
                call(host, "state.get", db=project.path, key="bench", scope_id="s1")
            ways["state.set", count] = Way(host.socket, _in_turn(projects))
            echo = stack.enter_context(Echo(host))
            ways["echo", count] = Way(echo, _in_turn(projects))
        times = _turns(ways)
        memory = [(n, resident_kib(daemon.pid) / 1024) for n, daemon in daemons.items()]
    table.plot(
        Plot(name="databases", title="A call, by databases that are called in turn",
             x="databases", y=MICROSECONDS, series=_lines(times, DATABASES, "state.set"))
    )  # fmt: skip
    table.plot(
        Plot(name="memory", title="Memory of the daemon, by open databases", x="databases",
             y="MiB, proportional share", series=[Series("icd", memory)],
             log_x=False, log_y=False)
    )  # fmt: skip
    what = f"state.set, {DATABASES[-1]} databases in turn / one"
    last, first = (times["state.set", DATABASES[i]] for i in (-1, 0))
    _ends(table, what, last, first, most=DATABASES_MOST)


def _in_turn(projects: list[place.Setting]) -> Request:
    def request(number: int) -> bytes:
        setting = projects[number % len(projects)]
        return _line(setting, "state.set", key="bench", scope_id="s1", payload={"i": number})

    return request


def _payloads(table: Table) -> None:
    times: Times = {}
    with place.project() as setting, place.daemon(setting), Echo(setting) as echo:
        for size in PAYLOADS:
            value = _payload(size)
            line = _line(setting, "state.set", key="bench", scope_id="big", payload=value)
            asked = _line(setting, "state.get", key="bench", scope_id="big")
            ways = {
                ("state.set", size): Way(setting.socket, lambda _, r=line: r),
                ("state.get", size): Way(setting.socket, lambda _, r=asked: r),
                ("echo", size): Way(echo, lambda _, r=line: r),
            }
            times |= _turns(ways, CALLS if size < PAYLOADS[-2] else LARGE_CALLS)
    table.plot(
        Plot(name="payload", title="A call, by the size of its payload",
             x="bytes", y=MICROSECONDS, series=_lines(times, PAYLOADS, "state.set", "state.get"))
    )  # fmt: skip
    wrote, floor = (
        [took / 1000 for took in times[name, PAYLOADS[-1]]] for name in ("state.set", "echo")
    )
    table.ratio(
        "state.set of 1 MiB / echo of it", wrote, floor, unit="ms",
        meaning="The payload is parsed, judged, stored and logged, where an echo only sends it "
        "there and back.",
    )  # fmt: skip


def _payload(size: int) -> list[str] | str:
    """JSON of about so many bytes: one text, or several, since a text has a limit of its own."""
    piece = 50_000
    if size <= piece:
        return "x" * (size - 2)
    pieces = ["x" * piece] * (size // piece)
    rest = size - len(json.dumps(pieces)) - 4
    return [*pieces, "x" * rest] if rest > 0 else pieces


def _ends(
    table: Table, what: str, last: list[float], first: list[float], *, most: float = FLAT
) -> None:
    table.ratio(
        what, last, first, unit="µs", most=most,
        meaning="The right end of its line in the plot and the left.",
    )  # fmt: skip


def _lines(times: Times, sizes: Sequence[int], *labels: str) -> list[Series]:
    """A line for each label, and one for the floor."""
    return [
        Series(
            "bare echo (floor)" if label == "echo" else label,
            [(size, median(times[label, size])) for size in sizes],
            label == "echo",
        )
        for label in (*labels, "echo")
    ]


def _line(setting: place.Setting, method: str, **params: object) -> bytes:
    call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"db": setting.path, **params}}
    return json.dumps(call, separators=(",", ":")).encode() + b"\n"
