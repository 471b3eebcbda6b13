"""The installed command: what a hook pays for one call."""

import statistics

from tests.bench import setting as place
from tests.bench.table import Table

RUNS = 60


def run(table: Table) -> None:
    with place.project() as setting:
        commands = {
            "bare": ["python", "-I", "-S", "-c", "pass"],
            "check": ["icctl", "sentinel", "check", "bench", "s1", "--interval=1"],
            "get": ["icctl", "state", "get", "bench", "s1"],
            "set": ["icctl", "state", "set", "bench", "s1", "--value={}"],
        }
        commands = {name: [str(place.BIN / c[0]), *c[1:]] for name, c in commands.items()}
        commands["true"] = ["/bin/true"]
        with place.daemon(setting):
            times = _interleaved(commands, setting, RUNS)
            _prune(table, setting)
        direct = _interleaved({n: commands[n] for n in ("bare", "check")}, setting, RUNS)
    _report(table, times, direct)


def _interleaved(
    commands: dict[str, list[str]], setting: place.Setting, runs: int
) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, command in commands.items():
            times[name].append(place.quiet(command, setting.env, setting.root))
    return times


def _report(table: Table, times: dict[str, list[float]], direct: dict[str, list[float]]) -> None:
    bare = min(times["bare"])
    table.note("/bin/true", f"{min(times['true']):.2f} ms")
    table.ratio(
        "icctl sentinel check, daemon / python -I -S -c pass",
        min(times["check"]),
        bare,
        unit="ms",
        most=1.6,
    )
    table.ratio(
        "icctl sentinel check, direct / python -I -S -c pass",
        min(direct["check"]),
        min(direct["bare"]),
        unit="ms",
        most=8,
    )
    for name, verb in {"check": "sentinel check", "get": "state get", "set": "state set"}.items():
        ordered = sorted(times[name])
        p50, p99 = statistics.median(ordered), ordered[int(len(ordered) * 0.99)]
        table.note(
            f"icctl {verb}, daemon, 10,000 rows, 1,000 sentinels",
            f"p50 {p50:.1f} ms, p99 {p99:.1f} ms (budget of the PRD: 50 ms)",
        )


def _prune(table: Table, setting: place.Setting) -> None:
    database = setting.open()
    with database.hold(place.time.monotonic() + 5):
        conn = database.connection()
        conn.execute("BEGIN IMMEDIATE")
        now_ms = place.time.time_ns() // 1_000_000
        for i in range(1000):
            place.state.set(
                conn, "old", f"s{i}", "1",
                ttl_ms=1, writer=place.state.Writer(), now_ms=now_ms - 10_000,
            )  # fmt: skip
        conn.execute("COMMIT")
        database.close()
    command = [str(place.BIN / "icctl"), "state", "prune"]
    took = place.quiet(command, setting.env, setting.root)
    table.note(
        "icctl state prune of 1,000 expired rows", f"{took:.1f} ms (budget of the PRD: 100 ms)"
    )
