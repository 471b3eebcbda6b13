"""Searches through the daemon, against a bare product of that size, and what they cost others.

The storm is a process of its own, which asks for the next search as soon as one is answered.
"""

import base64
import contextlib
import json
import math
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from icd.core.arrays import np
from icd.core.vectors import store
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
from icd.core.arrays import np
rows = np.ones(({SMALL}, {DIMENSION}), np.float32)
while True:
    rows @ rows[0]
"""


def run(table: Table) -> None:
    with place.project(rows=10, guards=10) as setting, place.daemon(setting) as process:
        rows = _fill(setting, 0, SMALL)
        idle = _resident(process.pid)
        small, bare = _measure(setting, rows)
        calm, stormy, strange = _beside_a_storm(setting, rows)
        rows = np.concatenate([rows, _fill(setting, SMALL, LARGE)])
        large, bare_large = _measure(setting, rows)
        kept = _resident(process.pid) - idle
    table.ratio(
        f"search, {SMALL:,} x {DIMENSION} / bare product and top {LIMIT}",
        small * 1e3,
        bare * 1e3,
        unit="ms",
        most=3,
        meaning="The whole search over the socket, against the arithmetic alone; least of 40.",
    )
    table.ratio(
        f"search, {LARGE:,} x {DIMENSION} / ten times {SMALL:,}",
        large * 1e3,
        small * 1e3 * LARGE / SMALL,
        unit="ms",
        most=1.5,
        meaning="Ten times as many cost no more than ten times as much; least of 40.",
    )
    table.note("the bare product of that size", f"{bare_large * 1e3:.2f} ms")
    table.ratio(
        "icctl state get during a storm of searches, p99 / without",
        stormy.command * 1e3,
        calm.command * 1e3,
        unit="ms",
        most=2,
        meaning="Searches do not hold up other calls; the best p99 of 15 rounds of 400.",
    )
    table.ratio(
        "the same as a frame on an open socket",
        stormy.frame * 1e6,
        calm.frame * 1e6,
        unit="us",
    )
    table.note(
        "both beside a stranger that multiplies",
        f"{strange.command * 1e3:.2f} ms, {strange.frame * 1e6:.0f} us",
    )
    table.ratio(
        f"memory, {LARGE:,} x {DIMENSION} / the numbers alone",
        kept / MEBIBYTE,
        LARGE * DIMENSION * 4 / MEBIBYTE,
        unit="Mi",
        most=1.5,
        meaning="What the daemon keeps in memory for searches, once.",
    )


def _fill(setting: place.Setting, start: int, end: int) -> Any:
    """More discoveries, with random embeddings; the matrix of them."""
    rows = np.random.default_rng(start).standard_normal((end - start, DIMENSION), np.float32)
    database = setting.open()
    with database.hold(time.monotonic() + 60):
        conn = database.connection()
        conn.execute("BEGIN IMMEDIATE")
        for i, row in enumerate(rows, start):
            conn.execute(
                "INSERT INTO discoveries (id, source, source_id, title, summary, url, raw_metadata,"
                " relevance, decay, status, discovered_at, discovered_ms, version)"
                " VALUES (?1, 's', ?1, 't', '', '', '{}', 500000, 1000000, 'new', 1, 1, ?2)",
                (f"d{i:06}", i + 1),
            )
            store(conn, f"d{i:06}", "s", row.tobytes())
        conn.execute("UPDATE counters SET value = ? WHERE name = 'discoveries'", (end,))
        conn.execute("COMMIT")
        conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        database.close()
    database.lock.close()
    return rows


def _measure(setting: place.Setting, rows: Any) -> tuple[float, float]:
    """Seconds of a search and of the bare product, in turn; the best of several rounds."""
    search, bare = math.inf, math.inf
    rng = np.random.default_rng(9)
    with _peer(setting.socket) as (sock, replies):
        for round_ in range(ROUNDS + 1):
            query = rng.standard_normal(DIMENSION, np.float32)
            began = time.perf_counter()
            near = rows @ query
            best = np.argpartition(near, -LIMIT)[-LIMIT:]
            best = best[np.argsort(-near[best])]
            between = time.perf_counter()
            sock.sendall(_request(setting, query))
            reply = replies.readline()
            ended = time.perf_counter()
            _compare(json.loads(reply)["result"], rows, query)
            if round_:  # the first one fills the memory
                bare, search = min(bare, between - began), min(search, ended - between)
    return search, bare


def _compare(found: list[dict[str, Any]], rows: Any, query: Any) -> None:
    """The result is that of float64, in its order."""
    near = (rows @ query) / np.linalg.norm(rows, axis=1)
    some = np.argpartition(near, -4 * LIMIT)[-4 * LIMIT :]
    wide, exact = rows[some].astype(np.float64), query.astype(np.float64)
    cosines = (wide @ exact) / np.linalg.norm(wide, axis=1) / np.linalg.norm(exact)
    order = np.argsort(-cosines)[:LIMIT]
    assert [row["id"] for row in found] == [f"d{some[i]:06}" for i in order]
    assert np.allclose([row["similarity"] for row in found], cosines[order], rtol=0, atol=1e-14)


class _Storm(NamedTuple):
    """The p99, in seconds, of a hook's command and of a frame on an open socket."""

    command: float = math.inf
    frame: float = math.inf

    def best(self, other: "_Storm") -> "_Storm":
        return _Storm(min(self.command, other.command), min(self.frame, other.frame))


def _beside_a_storm(setting: place.Setting, rows: Any) -> tuple[_Storm, _Storm, _Storm]:
    """What another call costs without it, with it, and beside a process that computes as much.

    In turn, the best of several short rounds: the machine is shared, and so are its processors.
    """
    calm, stormy, strange = _Storm(), _Storm(), _Storm()
    for _ in range(CALM_ROUNDS):
        calm = calm.best(_others(setting))
        with _beside(STORM, setting.socket, stdin=_request(setting, rows[0])):
            stormy = stormy.best(_others(setting))
        with _beside(STRANGER):
            strange = strange.best(_others(setting))
    return calm, stormy, strange


def _others(setting: place.Setting) -> _Storm:
    command = ["icctl", "state", "get", "bench", "s1"]
    times = [place.quiet(command, setting.env, setting.root) / 1e3 for _ in range(COMMANDS)]
    return _Storm(_p99(times), _p99(_frames(setting)))


def _p99(times: list[float]) -> float:
    return sorted(times)[len(times) * 99 // 100]


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
            times.append(time.perf_counter() - began)
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
