"""A call of the Python client, against the same request on a bare socket, and against an echo."""

import time
from collections.abc import Callable
from pathlib import Path

import anyio

from icctl.api import AsyncClient, Client
from tests.bench import setting as place
from tests.bench.push import peer
from tests.bench.table import Table
from tests.bench.throughput import Echo

CALLS = 3000
WARM_UP = 200
TASKS = 1000
ROUNDS = 10


def run(table: Table) -> None:
    with place.project() as setting, place.daemon(setting), Echo(setting) as echo:
        client, bare, echoed = one_by_one(setting.root, setting.socket, echo)
        together, alone = anyio.run(_many, setting)
    table.ratio(
        "Client, sentinel.check / the same request on a socket",
        client, bare, unit="µs", most=3,
        meaning="What the client adds: parameters to JSON, a lock, a deadline, a typed result.",
    )  # fmt: skip
    table.ratio(
        "Client, sentinel.check / bare round trip", client, echoed, unit="µs",
        meaning="The whole call, the commit's share included, against a server that does nothing.",
    )  # fmt: skip
    table.ratio(
        f"AsyncClient, a call of {TASKS:,} at once / one after the other",
        together, alone, unit="µs", most=1,
        meaning="On one connection: what waits together is sent and carried out together.",
    )  # fmt: skip


def one_by_one(
    project: Path, socket: str, echo: str, calls: int = CALLS
) -> tuple[list[float], list[float], list[float]]:
    """Microseconds of a call, of its request and reply without a client, and of an echo, in turn."""
    with (
        Client(project, socket=socket, mode="daemon", timeout=60) as client,
        peer(socket) as (sock, replies),
        peer(echo) as (other, echoes),
    ):
        call = client.prepare(
            "sentinel.check", {"name": "bench", "scope_id": "s1", "interval": 3600}
        )
        asked = call.line(b"1", 5.0)

        def raw() -> None:
            sock.sendall(asked)
            replies.readline()

        def bare() -> None:
            other.sendall(asked)
            echoes.readline()

        def ours() -> None:
            client.sentinel.check("bench", "s1", interval=3600)

        ways: list[tuple[Callable[[], None], list[float]]] = [(ours, []), (raw, []), (bare, [])]
        for number in range(WARM_UP + calls):
            for way, times in ways:
                began = time.perf_counter()
                way()
                if number >= WARM_UP:
                    times.append((time.perf_counter() - began) * 1e6)
    return ways[0][1], ways[1][1], ways[2][1]


async def _many(setting: place.Setting) -> tuple[list[float], list[float]]:
    """Microseconds of a call, among many at once and one after the other."""
    together, alone = [], []
    async with AsyncClient(setting.root, socket=setting.socket, mode="daemon") as client:

        async def ask() -> None:
            await client.sentinel.check("bench", "s1", interval=3600, timeout=60)

        await ask()
        for _ in range(ROUNDS):
            began = time.perf_counter()
            async with anyio.create_task_group() as tasks:
                for _ in range(TASKS):
                    tasks.start_soon(ask)
            together.append((time.perf_counter() - began) * 1e6 / TASKS)
            began = time.perf_counter()
            for _ in range(TASKS // 10):
                await ask()
            alone.append((time.perf_counter() - began) * 1e6 / (TASKS // 10))
    return together, alone
