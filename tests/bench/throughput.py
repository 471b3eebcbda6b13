"""Many calls over the socket, against the same SQL without one, and against a bare echo."""

import json
import multiprocessing
import select
import socket
import subprocess
import time
from collections.abc import Callable

import anyio

from icd.features.sentinels import store as sentinels
from tests.bench import setting as place
from tests.bench.table import Table

CALLS = 20_000
BURST = 256
CONNECTIONS = 32
SECONDS = 2.0
ROUNDS = 5


def run(table: Table) -> None:
    names = ("floor", "piped", "echo", "closed", "lean echo", "lean")
    rates: dict[str, list[float]] = {name: [] for name in names}
    with (
        place.project() as setting,
        place.daemon(setting),
        Echo(setting) as echo,
        Echo(setting, LEAN_ECHO) as lean,
    ):
        request = _request(setting, 0)
        for _ in range(ROUNDS):
            found = {
                "floor": _tight_loop(setting),
                "piped": _pipelined(setting),
                "echo": closed_loop(echo, request),
                "closed": closed_loop(setting.socket, request),
                "lean echo": closed_loop(lean, request, drive=_drive_lean),
                "lean": closed_loop(setting.socket, request, drive=_drive_lean),
            }
            for name, rate in found.items():
                rates[name].append(rate / 1000)
    table.ratio(
        "sentinel.check, pipelined / same SQL in one transaction",
        rates["piped"], rates["floor"], unit="k/s", least=0.5,
        meaning="Thousands of calls a second on one connection, against the statements alone.",
    )  # fmt: skip
    table.ratio(
        f"sentinel.check, {CONNECTIONS} connections / bare anyio echo",
        rates["closed"], rates["echo"], unit="k/s", least=0.30,
        meaning="Thousands of calls a second of clients that wait, against a server that does nothing.",
    )  # fmt: skip
    table.ratio(
        f"sentinel.check, {CONNECTIONS} connections, lean driver / bare asyncio echo",
        rates["lean"], rates["lean echo"], unit="k/s", least=0.35,
        meaning="The same without anyio on either side, so that it is the daemon that is measured.",
    )  # fmt: skip


def _tight_loop(setting: place.Setting) -> float:
    """Calls per second of the very statements, batched in transactions, in this process."""
    database = setting.open()
    with database.hold(time.monotonic() + 5):
        conn = database.connection()
        began = time.perf_counter()
        for start in range(0, CALLS, BURST):
            conn.execute("BEGIN IMMEDIATE")
            for i in range(start, start + BURST):
                now_ms = time.time_ns() // 1_000_000
                sentinels.check(conn, "bench", f"s{i % 1000}", interval_s=3600, now_ms=now_ms)
            conn.execute("COMMIT")
        took = time.perf_counter() - began
        database.close()
    return CALLS / took


def _request(setting: place.Setting, number: int) -> bytes:
    params = {
        "db": setting.path,
        "name": "bench",
        "scope_id": f"s{number % 1000}",
        "interval": 3600,
    }
    call = {"jsonrpc": "2.0", "id": number, "method": "sentinel.check", "params": params}
    return json.dumps(call).encode() + b"\n"


def _pipelined(setting: place.Setting) -> float:
    requests = [_request(setting, i) for i in range(CALLS)]
    bursts = [b"".join(requests[i : i + BURST]) for i in range(0, CALLS, BURST)]
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(setting.socket)
        began = time.perf_counter()
        sock.sendall(bursts[0])
        waiting = BURST
        for burst in bursts[1:]:
            sock.sendall(burst)
            waiting += len(burst.splitlines())
            waiting = _receive(sock, waiting, until=BURST)
        _receive(sock, waiting, until=0)
        return CALLS / (time.perf_counter() - began)


def _receive(sock: socket.socket, waiting: int, *, until: int) -> int:
    while waiting > until:
        waiting -= sock.recv(1 << 18).count(b"\n")
    return waiting


Counts = "multiprocessing.Queue[float]"


def _drive(path: str, request: bytes, connections: int, seconds: float, counts: Counts) -> None:
    counts.put(anyio.run(_converse, path, request, connections, seconds))


def _drive_lean(
    path: str, request: bytes, connections: int, seconds: float, counts: Counts
) -> None:
    """With the least that a client in Python can do: so the server is what takes the time."""
    ready = select.epoll()
    sockets = {}
    for _ in range(connections):
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(path)
        sock.send(request)
        sockets[sock.fileno()] = sock
        ready.register(sock.fileno(), select.EPOLLIN)
    done = 0
    began = now = time.perf_counter()
    while now - began < seconds:
        for fd, _ in ready.poll():
            sock = sockets[fd]
            if sock.recv(65536).endswith(b"\n"):
                sock.send(request)
                done += 1
        now = time.perf_counter()
    counts.put(done / (now - began))


def closed_loop(
    path: str,
    request: bytes,
    *,
    connections: int = CONNECTIONS,
    seconds: float = SECONDS,
    drive: Callable[[str, bytes, int, float, Counts], None] = _drive,
) -> float:
    """Each connection sends its next request when the reply is there, in a process of its own."""
    context = multiprocessing.get_context("fork")
    counts = context.Queue()
    client = context.Process(target=drive, args=(path, request, connections, seconds, counts))
    client.start()
    done = counts.get()
    client.join()
    return float(done)


async def _converse(path: str, request: bytes, connections: int, seconds: float) -> float:
    """One task per connection, as an anyio client is written; replies per second of all of them."""
    done = 0
    began = time.perf_counter()

    async def client() -> None:
        nonlocal done
        async with await anyio.connect_unix(path) as stream:
            while time.perf_counter() - began < seconds:
                await stream.send(request)
                while not (await stream.receive()).endswith(b"\n"):
                    pass
                done += 1

    async with anyio.create_task_group() as tasks:
        for _ in range(connections):
            tasks.start_soon(client)
    return done / (time.perf_counter() - began)


ECHO = """
import anyio, sys

async def serve(stream):
    async with stream:
        try:
            while True:
                await stream.send(await stream.receive())
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            pass

async def main():
    await (await anyio.create_unix_listener(sys.argv[1])).serve(serve)

anyio.run(main)
"""
LEAN_ECHO = """
import asyncio, sys

class Echo(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(data)

async def main():
    server = await asyncio.get_running_loop().create_unix_server(Echo, sys.argv[1])
    await server.serve_forever()

asyncio.run(main())
"""


class Echo:
    """A bare server that sends back what it gets, in its own process."""

    def __init__(self, setting: place.Setting, code: str = ECHO) -> None:
        self._code = code
        self._path = str(setting.root / "run" / f"echo{len(code)}.sock")

    def __enter__(self) -> str:
        command = [str(place.BIN / "python"), "-c", self._code, self._path]
        self._process = subprocess.Popen(command)
        place.wait_for(self._path)
        return self._path

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
