"""The statusline against the cheapest call there is, and how far a mirrored file lags behind."""

import json
import socket
import threading
import time
from pathlib import Path
from typing import Any

from tests.bench import setting as place
from tests.bench.table import Table
from tests.support import mirrors

RUNS = 150
WRITES = 10_000
MIRRORED = 5
ROWS = {
    "dispatch": {"name": "fix the tests", "activity": "testing", "pid": 1, "turns": 3},
    "bead": {"id": "ic-12", "phase": "executing", "reason": "", "ts": 1},
    "lane": {"lane": "core"},
    "coordination": {"layer": "x", "icon": "*", "text": "2 files", "priority": 1},
    "pressure": {"level": "yellow", "pressure": 45, "est_tokens": 90_000},
    "budget": {"pct_consumed": 37, "total_tokens": 120_000},
}


def run(table: Table) -> None:
    with place.project() as setting, place.daemon(setting):
        mirrors.want(setting.root)
        mirrors.accept(setting.root, setting.root)
        for key, payload in ROWS.items():
            _set(setting, [(key, "s1", payload)])
        times = place.interleaved(_commands(), setting, RUNS)
        mirrored = [_mirror(setting, turn * WRITES) for turn in range(MIRRORED)]
    table.ratio(
        "icctl statusline / icctl ping", times["line"], times["ping"], unit="ms", most=1.5,
        meaning="All that a statusline shows, against the cheapest call.",
    )  # fmt: skip
    table.ratio(
        "icctl statusline --from=claude / icctl ping", times["agent"], times["ping"], unit="ms", most=1.6,
        meaning="The same as one coloured line, with the agent's JSON from stdin.",
    )  # fmt: skip
    table.ratio(
        f"a mirrored row, after {WRITES:,} writes at full speed / 200 ms",
        [lag for lag, _ in mirrored], 200, unit="ms", most=1,
        meaning="From the last reply until its value is in the file.",
    )  # fmt: skip
    written = max(count for _, count in mirrored)
    table.note(f"writes to disk for {WRITES:,} of a mirrored row", f"{written} at most")


def _commands() -> dict[str, list[str]]:
    icctl = str(place.BIN / "icctl")
    return {
        "ping": [icctl, "ping"],
        "line": [icctl, "statusline", "--session", "s1", "--format=sh"],
        "agent": [icctl, "statusline", "--session", "s1", "--from=claude"],
    }


def _mirror(setting: place.Setting, first: int) -> tuple[float, int]:
    """Milliseconds from the last reply until its value can be read, and the files written."""
    before = call(setting, "icd.status")["mirror"]["written"]
    last = first + WRITES - 1
    _set(setting, [("bead", "bench", {"n": number}) for number in range(first, last + 1)])
    replied = time.monotonic()
    file = setting.root / ".interband" / "interphase" / "bead" / "bench.json"
    while _value(file) != last:
        assert time.monotonic() < replied + 10, "the last value never came"
        time.sleep(0.001)
    lag = (time.monotonic() - replied) * 1000
    return lag, call(setting, "icd.status")["mirror"]["written"] - before


def _value(file: Path) -> int | None:
    try:
        found: int = json.loads(file.read_bytes())["payload"]["n"]
    except FileNotFoundError:
        return None
    return found


def _set(setting: place.Setting, rows: list[tuple[str, str, object]]) -> None:
    requests = [
        _request("state.set", db=setting.path, key=key, scope_id=scope, payload=payload)
        for key, scope, payload in rows
    ]
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(setting.socket)
        sender = threading.Thread(target=sock.sendall, args=(b"".join(requests),))
        sender.start()
        waiting = len(requests)
        while waiting:
            waiting -= sock.recv(1 << 18).count(b"\n")
        sender.join()


def call(setting: place.Setting, method: str, **params: object) -> Any:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(setting.socket)
        sock.sendall(_request(method, **params))
        return json.loads(sock.makefile().readline())["result"]


def _request(method: str, **params: object) -> bytes:
    call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return json.dumps(call).encode() + b"\n"
