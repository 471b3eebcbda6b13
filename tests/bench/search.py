"""Searches through the daemon, against a bare product of that size, and what they cost others.

The storm is a process of its own, which asks for the next search as soon as one is answered.
"""

import base64
import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from icd.features.discoveries.similarity import np
from icd.features.discoveries.vectors import store
from tests.bench import setting as place
from tests.bench.table import Table

DIMENSION = 1024
SMALL, LARGE = 10_000, 100_000
LIMIT = 10
ROUNDS = 40
CALLS = 400
COMMANDS = 100
CALM_ROUNDS = 12
MEBIBYTE = 1024 * 1024

Pair = tuple[list[float], list[float]]  # of searches, and of bare products

STORM = """
import socket, sys
path, line = sys.argv[1], sys.stdin.buffer.read()
with socket.socket(socket.AF_UNIX) as sock:
    sock.connect(path)
    lines = sock.makefile("rb")
    while True:
        sock.sendall(line)
        lines.readline()
"""

STRANGER = f"""
from icd.features.discoveries.similarity import np
rows = np.ones(({SMALL}, {DIMENSION}), np.float32)
while True:
    rows @ rows[0]
"""


def run(table: Table) -> None:
    with (
        place.project(rows=10, guards=10) as small, place.daemon(small),
        place.project(rows=10, guards=10) as large, place.daemon(large) as process,
    ):  # fmt: skip
        rows = _fill(small, SMALL)
        calm, stormy, strange = _beside_a_storm(small, rows)
        idle = _resident(process.pid)
        times = _measure({small: rows, large: _fill(large, LARGE)})
        kept = _resident(process.pid) - idle
    _report_searches(table, times[small], times[large])
    table.ratio(
        f"memory, {LARGE:,} x {DIMENSION} / the numbers alone",
        kept / MEBIBYTE, LARGE * DIMENSION * 4 / MEBIBYTE, unit="MiB", most=1.5,
        meaning="What the daemon keeps in memory for searches, once.",
    )  # fmt: skip
    _report_others(table, calm, stormy, strange)


def _report_searches(table: Table, small: Pair, large: Pair) -> None:
    (search, bare), (search_large, bare_large) = small, large
    table.ratio(
        f"search, {SMALL:,} x {DIMENSION} / bare product and top {LIMIT}",
        search, bare, unit="ms", most=3,
        meaning="The whole search over the socket, against the arithmetic alone.",
    )  # fmt: skip
    table.ratio(
        f"search, {LARGE:,} x {DIMENSION} / bare product and top {LIMIT}",
        search_large, bare_large, unit="ms",
    )  # fmt: skip
    table.ratio(
        f"search, {LARGE:,} x {DIMENSION} / ten times {SMALL:,}",
        search_large, [took * LARGE / SMALL for took in search], unit="ms", most=1.5,
        meaning="Ten times as many cost no more than ten times as much.",
    )  # fmt: skip


def _report_others(table: Table, calm: "_Others", stormy: "_Others", strange: "_Others") -> None:
    table.ratio(
        "icctl state get during a storm of searches / without",
        stormy.command, calm.command, unit="ms", most=2, by="p99",
        meaning="Searches do not hold up other calls: the promise is about the slowest, "
        "so the ratio is that of the p99.",
    )  # fmt: skip
    table.ratio(
        "icctl state get beside a stranger that multiplies / without",
        strange.command, calm.command, unit="ms", by="p99",
        meaning="What a process that computes as much costs, and has nothing to do with the daemon.",
    )  # fmt: skip
    for what, times in (("during a storm of searches", stormy), ("beside a stranger", strange)):
        table.ratio(
            f"a frame on an open socket {what} / without",
            times.frame, calm.frame, unit="µs", by="p99",
        )  # fmt: skip


def _fill(setting: place.Setting, count: int) -> Any:
    """Discoveries with random embeddings; the matrix of them."""
    rows = np.random.default_rng(count).standard_normal((count, DIMENSION), np.float32)
    database = setting.open()
    with database.hold(time.monotonic() + 60):
        conn = database.connection()
        conn.execute("BEGIN IMMEDIATE")
        for i, row in enumerate(rows):
            conn.execute(
                "INSERT INTO discoveries (id, source, source_id, title, summary, url, raw_metadata,"
                " relevance, decay, status, discovered_at, discovered_ms, version)"
                " VALUES (?1, 's', ?1, 't', '', '', '{}', 500000, 1000000, 'new', 1, 1, ?2)",
                (f"d{i:06}", i + 1),
            )
            store(conn, f"d{i:06}", "s", row.tobytes())
        conn.execute("UPDATE counters SET value = ? WHERE name = 'discoveries'", (count,))
        conn.execute("COMMIT")
        conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        database.close()
    database.lock.close()
    return rows


def _measure(of: dict[place.Setting, Any]) -> dict[place.Setting, Pair]:
    """Milliseconds of searches and of bare products, all of them in turn."""
    times: dict[place.Setting, Pair] = {s: ([], []) for s in of}
    rng = np.random.default_rng(9)
    with contextlib.ExitStack() as stack:
        peers = {setting: stack.enter_context(_peer(setting.socket)) for setting in of}
        for round_ in range(ROUNDS + 1):
            for setting, rows in of.items():
                query = rng.standard_normal(DIMENSION, np.float32)
                bare, search = _turn(peers[setting], rows, query, setting)
                if round_:  # the first one fills the memory
                    times[setting][0].append(search)
                    times[setting][1].append(bare)
    return times


def _turn(
    peer: tuple[socket.socket, BinaryIO], rows: Any, query: Any, setting: place.Setting
) -> tuple[float, float]:
    sock, replies = peer
    request = _request(setting, query)
    began = time.perf_counter()
    near = rows @ query
    best = np.argpartition(near, -LIMIT)[-LIMIT:]
    best = best[np.argsort(-near[best])]
    between = time.perf_counter()
    sock.sendall(request)
    reply = replies.readline()
    ended = time.perf_counter()
    _compare(json.loads(reply)["result"], rows, query)
    return (between - began) * 1e3, (ended - between) * 1e3


def _compare(found: list[dict[str, Any]], rows: Any, query: Any) -> None:
    """The result is that of float64, in its order."""
    near = (rows @ query) / np.linalg.norm(rows, axis=1)
    some = np.argpartition(near, -4 * LIMIT)[-4 * LIMIT :]
    wide, exact = rows[some].astype(np.float64), query.astype(np.float64)
    cosines = (wide @ exact) / np.linalg.norm(wide, axis=1) / np.linalg.norm(exact)
    order = np.argsort(-cosines)[:LIMIT]
    assert [row["id"] for row in found] == [f"d{some[i]:06}" for i in order]
    assert np.allclose([row["similarity"] for row in found], cosines[order], rtol=0, atol=1e-14)


class _Others(NamedTuple):
    """Every hook's command, in milliseconds, and every frame on an open socket, in microseconds."""

    command: list[float]
    frame: list[float]


def _beside_a_storm(setting: place.Setting, rows: Any) -> tuple[_Others, _Others, _Others]:
    """What another call costs without it, with it, and beside a process that computes as much.

    In turn, in short rounds: the machine is shared, and so are its processors.
    """
    calm, stormy, strange = (_Others([], []) for _ in range(3))
    for _ in range(CALM_ROUNDS):
        _measure_others(setting, calm)
        with _beside(STORM, setting.socket, stdin=_request(setting, rows[0])):
            _measure_others(setting, stormy)
        with _beside(STRANGER):
            _measure_others(setting, strange)
    return calm, stormy, strange


def _measure_others(setting: place.Setting, times: _Others) -> None:
    command = ["icctl", "state", "get", "bench", "s1"]
    times.command.extend(place.quiet(command, setting.env, setting.root) for _ in range(COMMANDS))
    times.frame.extend(_frames(setting))


@contextlib.contextmanager
def _beside(program: str, *arguments: str, stdin: bytes = b"") -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None
    process.stdin.write(stdin)
    process.stdin.close()
    try:
        time.sleep(0.5)  # until it is at full speed
        assert process.poll() is None
        yield
    finally:
        process.kill()
        process.wait()


def _frames(setting: place.Setting) -> list[float]:
    request = _line("state.get", db=setting.path, key="bench", scope_id="s1")
    times = []
    with _peer(setting.socket) as (sock, replies):
        for _ in range(CALLS):
            time.sleep(0.0002)  # a hook now and then
            began = time.perf_counter()
            sock.sendall(request)
            replies.readline()
            times.append((time.perf_counter() - began) * 1e6)
    return times


def _request(setting: place.Setting, query: Any) -> bytes:
    encoded = base64.b64encode(query.tobytes()).decode()
    return _line(
        "discovery.search", db=setting.path, embedding=encoded, limit=LIMIT, deadline_ms=60_000
    )


def _line(method: str, **params: object) -> bytes:
    call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return json.dumps(call).encode() + b"\n"


@contextlib.contextmanager
def _peer(path: str) -> Iterator[tuple[socket.socket, BinaryIO]]:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(path)
        with sock.makefile("rb") as lines:
            yield sock, lines


def _resident(pid: int) -> int:
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
