"""Many databases in one daemon: what each costs while nobody uses it, and while all are used."""

import json
import select
import shutil
import socket
import time
from collections import deque
from contextlib import ExitStack
from pathlib import Path

from tests.bench import setting as place
from tests.bench.statusline import call
from tests.bench.table import Table

COUNT = 100
# Those that were just used are looked at more often; this long after, all are at rest.
SETTLE_SECONDS = 75.0
# Each is looked at once in this time.
WATCH_SECONDS = 60.0
ROWS = 200
# All at once, each a thread and a connection of the daemon's.
MANY = 1000
PER_SECOND = 1000
CONNECTIONS = 32
ROUNDS = 3
ROUND_SECONDS = 3.0


def run(table: Table) -> None:
    _spread(table)
    _idle(table)


def _spread(table: Table) -> None:
    with place.project(rows=ROWS, guards=ROWS) as host, place.daemon(host):
        requests = [_request(path) for path in _copies(host)]
        for request in requests:  # opened, one after the other
            _paced(host.socket, [request], 1, PER_SECOND)
        one: list[float] = []
        all_: list[float] = []
        calls = int(ROUND_SECONDS * PER_SECOND)
        for _ in range(ROUNDS):
            one += _paced(host.socket, requests[:1], calls, PER_SECOND)
            all_ += _paced(host.socket, requests, calls, PER_SECOND)
    table.ratio(
        f"sentinel.check, {PER_SECOND:,} a second over {MANY:,} projects / over one",
        all_,
        one,
        unit="ms",
        most=2,
        by="p99",
        meaning="From the moment at which a call is due to its reply; all projects are open.",
    )


def _copies(host: place.Setting) -> list[str]:
    """Projects like that of the host, made of its files."""
    source = Path(host.path).parent
    found = []
    for number in range(MANY):
        root = host.root / "many" / str(number)
        (root / ".git").mkdir(parents=True)
        shutil.copytree(source, root / source.name)
        found.append(str(root / source.name / "intercore.db"))
    return found


def _request(path: str) -> bytes:
    params = {"db": path, "name": "bench", "scope_id": "s1", "interval": 3600}
    request = {"jsonrpc": "2.0", "id": 1, "method": "sentinel.check", "params": params}
    return json.dumps(request).encode() + b"\n"


def _paced(path: str, requests: list[bytes], calls: int, per_second: float) -> list[float]:
    """Milliseconds of calls that come at their moments, whether others are answered or not."""
    sockets = [socket.socket(socket.AF_UNIX) for _ in range(min(CONNECTIONS, calls))]
    for sock in sockets:
        sock.connect(path)
    due: dict[socket.socket, deque[float]] = {sock: deque() for sock in sockets}
    took: list[float] = []
    sent = 0
    began = time.perf_counter()
    while len(took) < calls:
        at = began + sent / per_second
        pause = at - time.perf_counter() if sent < calls else 1.0
        if pause <= 0:
            sock = sockets[sent % len(sockets)]
            due[sock].append(at)
            sock.sendall(requests[sent % len(requests)])
            sent += 1
        # Not epoll, whose patience is counted in milliseconds.
        for sock in select.select(sockets, [], [], max(0.0, pause))[0]:
            replies = sock.recv(1 << 16).count(b"\n")
            now = time.perf_counter()
            took += [(now - due[sock].popleft()) * 1000 for _ in range(replies)]
    for sock in sockets:
        sock.close()
    return took


def _idle(table: Table) -> None:
    with ExitStack() as stack:
        projects = [
            stack.enter_context(place.project(rows=ROWS, guards=ROWS)) for _ in range(COUNT)
        ]
        host = projects[0]
        daemon = stack.enter_context(place.daemon(host))
        call(host, "state.get", db=host.path, key="bench", scope_id="s1")
        before = resident_kib(daemon.pid)
        for project in projects[1:]:
            call(host, "state.set", db=project.path, key="bead", scope_id="s1", payload={"i": 1})
        time.sleep(SETTLE_SECONDS)
        after = resident_kib(daemon.pid)
        used = place.cpu_seconds(daemon.pid)
        time.sleep(WATCH_SECONDS)
        used = place.cpu_seconds(daemon.pid) - used
        assert len(call(host, "icd.status")["databases"]) == COUNT
    each = (after - before) / (COUNT - 1) / 1024
    table.ratio(
        "memory of an idle open database / 1 MiB",
        each,
        1,
        unit="MiB",
        most=2,
        meaning="The proportional share of 99 databases more, divided by 99.",
    )
    table.ratio(
        f"CPU of a daemon with {COUNT} idle databases / 1 % of a core",
        used / WATCH_SECONDS * 100,
        1,
        unit="%",
        most=0.05,
        meaning="Processor time in a minute, a minute after the last call.",
    )


def resident_kib(pid: int) -> int:
    """What would be free without it, as far as the kernel can tell: its proportional share."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    raise LookupError("Pss")
