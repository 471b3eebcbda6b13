"""How cost grows: with rows, clients, databases, the size of a payload, and events.

Each is a plot: medians of calls over the socket, beside a floor that grows with the same thing, a
bare anyio echo of the same bytes.  Calls and echoes take turns.
"""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from statistics import median

from tests.bench import scale
from tests.bench import setting as place
from tests.bench.databases import resident_kib
from tests.bench.plots import Plot, Point, Series
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
CLIENT_SECONDS = 1.0
TAILED = 10
BUFFERED_BYTES = 64 * 1024
# Each promise is about the ends of a line: the most that the whole way may cost.
FLAT = 1.5

Lines = dict[str, list[Point]]


def run(table: Table) -> None:
    _rows_and_events(table)
    _clients(table)
    _databases(table)
    _payloads(table)


def _rows_and_events(table: Table) -> None:
    rows: Lines = {"state.get": [], "state.set": [], "sentinel.check": [], "echo": []}
    events: Lines = {"events.tail": [], "echo": []}
    for size in ROWS:
        with place.project(rows=0, guards=0) as setting:
            scale.grow(setting, size)
            with place.daemon(setting), Echo(setting) as echo:
                times = _turns(setting, echo, _requests(setting, size))
        for name, line in rows.items():
            line.append((size, times[name]))
        if size in EVENTS:
            for name, line in events.items():
                line.append((size, times[name]))
    _draw(table, "rows", "A call, by rows of state, sentinels and events", "rows", rows)
    _draw(
        table, "events", f"{TAILED} events after a cursor, by events", "events in the log", events
    )
    for name in ("state.get", "state.set", "sentinel.check"):
        _ends(table, f"{name}, {ROWS[-1]:,} rows / {ROWS[0]} rows", rows[name])
    _ends(table, f"events.tail, {EVENTS[-1]:,} events / {EVENTS[0]:,}", events["events.tail"])


def _requests(setting: place.Setting, rows: int) -> dict[str, Callable[[int], bytes]]:
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


def _turns(
    setting: place.Setting,
    echo: str,
    requests: dict[str, Callable[[int], bytes]],
    calls: int = CALLS,
) -> dict[str, float]:
    """Microseconds, medians: each request in turn, and an echo of the first of them."""
    first = next(iter(requests.values()))
    with peer(setting.socket) as (sock, replies), peer(echo) as (other, echoed):
        ways = {name: (sock, replies, made) for name, made in requests.items()}
        ways["echo"] = (other, echoed, first)
        times: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(calls):
            for name, (to, lines, made) in ways.items():
                request = made(number)
                began = time.perf_counter()
                with _sending(to, request):
                    reply = lines.readline()
                times[name].append((time.perf_counter() - began) * 1e6)
                assert b'"error"' not in reply[:200], reply[:200]
    return {name: median(taken) for name, taken in times.items()}


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
    lines: Lines = {"sentinel.check": [], "echo": []}
    with place.project() as setting, place.daemon(setting), Echo(setting) as echo:
        request = _requests(setting, 100)["sentinel.check"](1)
        for count in CLIENTS:
            for name, path in (("sentinel.check", setting.socket), ("echo", echo)):
                rate = closed_loop(path, request, connections=count, seconds=CLIENT_SECONDS)
                lines[name].append((count, rate))
    _draw(table, "clients", "Calls a second, by clients that wait for each reply", "clients", lines,
          y="calls a second")  # fmt: skip
    one, many = lines["sentinel.check"][0][1], lines["sentinel.check"][-1][1]
    table.ratio(
        f"sentinel.check, calls a second of {CLIENTS[-1]} clients / of one",
        many / 1000, one / 1000, unit="k", least=1,
        meaning="More clients share commits: all of them together get no less done than one.",
    )  # fmt: skip


def _databases(table: Table) -> None:
    lines: Lines = {"state.set": [], "echo": []}
    memory: list[Point] = []
    with contextlib.ExitStack() as stack:
        projects = [
            stack.enter_context(place.project(rows=100, guards=10)) for _ in range(DATABASES[-1])
        ]
        host = projects[0]
        daemon = stack.enter_context(place.daemon(host))
        echo = stack.enter_context(Echo(host))
        for count in DATABASES:
            for project in projects[:count]:
                call(host, "state.get", db=project.path, key="bench", scope_id="s1")
            used = _in_turn(projects[:count])
            times = _turns(host, echo, {"state.set": used})
            for name, line in lines.items():
                line.append((count, times[name]))
            memory.append((count, resident_kib(daemon.pid) / 1024))
    _draw(table, "databases", "A call, by databases that are called in turn", "databases", lines)
    table.plot(
        Plot(name="memory", title="Memory of the daemon, by open databases", x="databases",
             y="MiB, proportional share", series=[Series("icd", memory)], log_y=False)
    )  # fmt: skip
    what = f"state.set, {DATABASES[-1]} databases in turn / one"
    _ends(table, what, lines["state.set"], most=3, more=" Each database has a thread of its own.")


def _in_turn(projects: list[place.Setting]) -> Callable[[int], bytes]:
    def request(number: int) -> bytes:
        setting = projects[number % len(projects)]
        return _line(setting, "state.set", key="bench", scope_id="s1", payload={"i": number})

    return request


def _payloads(table: Table) -> None:
    lines: Lines = {"state.set": [], "state.get": [], "echo": []}
    with place.project() as setting, place.daemon(setting), Echo(setting) as echo:
        for size in PAYLOADS:
            calls = CALLS if size < PAYLOADS[-2] else LARGE_CALLS
            value = _payload(size)
            line = _line(setting, "state.set", key="bench", scope_id="big", payload=value)
            asked = _line(setting, "state.get", key="bench", scope_id="big")
            requests = {"state.set": lambda _, r=line: r, "state.get": lambda _, r=asked: r}
            times = _turns(setting, echo, requests, calls)
            for name, drawn in lines.items():
                drawn.append((size, times[name]))
    _draw(table, "payload", "A call, by the size of its payload", "bytes", lines)
    wrote, floor = lines["state.set"][-1][1], lines["echo"][-1][1]
    table.ratio(
        "state.set of 1 MiB / echo of it", wrote / 1000, floor / 1000, unit="ms",
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


def _ends(table: Table, what: str, line: list[Point], most: float = FLAT, more: str = "") -> None:
    table.ratio(
        what, line[-1][1], line[0][1], unit="us", most=most,
        meaning=f"The right end of its line in the plot and the left, medians.{more}",
    )  # fmt: skip


def _draw(
    table: Table, name: str, title: str, x: str, lines: Lines, *, y: str = "microseconds, median"
) -> None:
    series = [
        Series("floor: bare echo" if label == "echo" else label, points, label == "echo")
        for label, points in lines.items()
    ]
    table.plot(Plot(name=name, title=title, x=x, y=y, series=series))


def _line(setting: place.Setting, method: str, **params: object) -> bytes:
    call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"db": setting.path, **params}}
    return json.dumps(call, separators=(",", ":")).encode() + b"\n"
