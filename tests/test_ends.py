"""Every call ends, in both hosts: whatever it reads, and however it is asked."""

import json
import select
import sqlite3
import struct
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from icctl import direct
from icd import files
from icd.db.database import CAREFUL_BYTES
from tests.support.processes import Daemon, icctl, read_line, running
from tests.torture.code import broken

DIRECT = {"INTERCORE_MODE": "direct"}
TIMEOUT = 0.5
# A loaded machine is late, and the daemon looks at the same rows for itself; else they take for ever.
LATE = 15.0
# The tree of the log: so many levels, on each of which one page names the same child this often.
LEVELS, CHILDREN = 8, 200
NOTHING = ("events", "tail", "--all", "--type=never")
INTERIOR = 5  # the kind of a page
PAGES_AT = 28  # where the header says how many there are


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running() as found:
        yield found


@pytest.fixture
def endless(initialized: Path) -> Path:
    """Our schema to the letter, and a log of one event that no statement comes to the end of.

    The file is too large for the daemon to look at all of its pages first.
    """
    path = initialized / ".clavain" / "intercore.db"
    icctl("events", "record", "--source=s", "--type=t", cwd=initialized, env=DIRECT)
    with closing(sqlite3.connect(path)) as conn:
        (root,) = conn.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'events'"
        ).fetchone()
        (size,) = conn.execute("PRAGMA page_size").fetchone()
    content = path.read_bytes()
    leaf = content[(root - 1) * size : root * size]
    first = len(content) // size + 1
    pages = [root, *range(first, first + LEVELS)]
    with path.open("r+b") as file:
        for page, child in pairwise(pages):
            file.seek((page - 1) * size)
            file.write(interior(child, size))
        file.seek((pages[-1] - 1) * size)
        file.write(leaf)
        file.truncate(CAREFUL_BYTES + size)
        file.seek(PAGES_AT)
        file.write(struct.pack(">I", CAREFUL_BYTES // size + 1))
    return initialized


def interior(child: int, size: int) -> bytes:
    cell = struct.pack(">IB", child, 1)
    start = size - len(cell) * CHILDREN
    head = struct.pack(">BHHHBI", INTERIOR, 0, CHILDREN, start, 0, child)
    places = struct.pack(f">{CHILDREN}H", *range(start, size, len(cell)))
    return (head + places).ljust(start, b"\0") + cell * CHILDREN


def rss(daemon: Daemon) -> int:
    status = Path(f"/proc/{daemon.pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


@pytest.mark.parametrize("host", ["daemon", "direct"])
def test_a_read_that_does_not_end_is_ended(daemon: Daemon, endless: Path, host: str) -> None:
    env = DIRECT if host == "direct" else {"INTERCORE_SOCKET": daemon.socket}
    icctl("version", cwd=endless, env=env)  # what is loaded for the first time takes longer

    began = time.monotonic()
    done = icctl(*NOTHING, f"--timeout={TIMEOUT:g}s", cwd=endless, env=env)
    took = time.monotonic() - began

    assert done.returncode == 2
    assert b"unknown_outcome" not in done.stderr
    assert b"deadline" in done.stderr
    assert b"nothing was changed" in done.stderr
    assert took < TIMEOUT + LATE
    assert rss(daemon) < 200_000_000


def test_neighbours_of_what_does_not_end_are_served_and_a_reload_is_not_refused(
    endless: Path, initialized: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    asked = {"cwd": str(endless), "deadline_ms": 2000}
    count = {"cwd": str(endless), "deadline_ms": 60_000, "key": "k", "scope_id": "s"}
    lines = [
        ("events.tail", asked | {"type": "never"}),
        ("state.incr", count),
        ("state.incr", count),
    ]
    with running() as daemon, daemon.connect() as sock:
        daemon.call("db.init", cwd=str(other))
        for number, (method, params) in enumerate(lines):
            request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            sock.sendall(json.dumps(request).encode() + b"\n")

        began = time.monotonic()
        daemon.call("state.incr", cwd=str(other), key="k", scope_id="s")
        before, _, _ = select.select([sock], [], [], 0)  # what was answered before the neighbour
        replies: list[Any] = []
        buffered = b""
        while len(replies) < len(lines):
            buffered += read_line(sock)
            replies = [json.loads(line) for line in buffered.splitlines()]
        took = time.monotonic() - began
        reloaded = icctl(
            "service", "reload", "--timeout=60s",
            cwd=initialized, env={"INTERCORE_SOCKET": daemon.socket},
        )  # fmt: skip

    by_id = {reply["id"]: reply for reply in replies}
    assert by_id[0]["error"]["data"]["name"] == "deadline_exceeded"
    assert [by_id[number]["result"]["value"] for number in (1, 2)] == [1, 2]
    assert took < asked["deadline_ms"] / 1000 + LATE
    assert before == []
    assert reloaded.returncode == 0, reloaded.stderr


def test_what_is_large_and_not_read_at_once_is_not_refused(
    daemon: Daemon, initialized: Path
) -> None:
    """A legitimate table, far larger than an answer may be."""
    payload = json.dumps(["x" * 100_000] * 10)
    with closing(sqlite3.connect(initialized / ".clavain" / "intercore.db")) as conn:
        daemon.call("state.set", cwd=str(initialized), key="k", scope_id="0", payload=[])
        names = [row[1] for row in conn.execute("PRAGMA table_info(state)")]
        rest = ", ".join(name for name in names if name not in {"scope_id", "payload"})
        conn.execute(
            f"INSERT INTO state (scope_id, payload, {rest})"
            " WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 40)"
            f" SELECT i, ?, {rest} FROM n, state WHERE scope_id = '0'",
            (payload,),
        )
        conn.commit()

    for number, host in enumerate((DIRECT, {"INTERCORE_SOCKET": daemon.socket})):
        done = icctl("state", "list", "k", cwd=initialized, env=host)
        assert done.stdout.count(b"\n") == 41
        done = icctl("export", f"dump-{number}.jsonl", cwd=initialized, env=host)
        assert done.returncode == 0, done.stderr
    assert rss(daemon) < 200_000_000


def test_the_log_of_a_client_is_put_aside_when_it_has_grown(
    initialized: Path, tmp_path: Path
) -> None:
    code = broken(
        tmp_path, "icd/features/state/store.py", "_GET, (key, scope_id, now_ms))", "_GET, ())"
    )
    log = initialized / direct.LOG
    log.parent.mkdir(parents=True)
    log.write_text("x" * files.LOG_BYTES)

    for _ in range(2):
        done = code.icctl("state", "get", "k", "s", cwd=initialized, env=DIRECT)

    aside = log.with_name("icctl.log.1")
    assert b"reference" in done.stderr
    assert aside.stat().st_size > files.LOG_BYTES
    assert 0 < log.stat().st_size < 100_000
