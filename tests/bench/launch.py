"""The installed command: what a hook pays for one call, through either door."""

import subprocess

from icd.values.processes import Writer
from tests.bench import setting as place
from tests.bench.table import Table

RUNS = 150
CHECK = ["sentinel", "check", "bench", "s1", "--interval=1"]

SPAWNS = 40
PRUNES = 10
STARTS = 20
EXPIRED = 1_000

# Several calls of one shell, and a process for each in turn: microseconds of every pair.
HELPED = r"""
owner=$BASHPID
read -r pid dir <<<"$(icctl --helper "$owner")"
for ((i = 0; i < 500; i++)); do
    began=${EPOCHREALTIME/./}
    {
        printf 'ic1 6\0d%s\0' "$PWD" >&8
        printf 'a%s\0' sentinel check bench s1 --interval=1 >&8
        IFS= read -r -d '' status <&9; IFS= read -r -d '' out <&9; IFS= read -r -d '' err <&9
    } 8<>"$dir/in" 9<>"$dir/out"
    between=${EPOCHREALTIME/./}
    icctl sentinel check bench s1 --interval=1 >/dev/null
    ended=${EPOCHREALTIME/./}
    echo "$((between - began)) $((ended - between))"
done
"""


def run(table: Table) -> None:
    with place.project() as setting:
        commands = {
            "bare": ["python", "-I", "-S", "-c", "pass"],
            "check": ["icctl", *CHECK],
            "python": ["icctl-python", *CHECK],
            "get": ["icctl", "state", "get", "bench", "s1"],
            "set": ["icctl", "state", "set", "bench", "s1", "--value={}"],
        }
        commands = {name: [str(place.BIN / c[0]), *c[1:]] for name, c in commands.items()}
        commands["true"] = ["/bin/true"]
        with place.daemon(setting), place.redis() as redis:
            if redis:
                commands["redis"] = [*redis, "get", "bench"]
            times = place.interleaved(commands, setting, RUNS)
            pruned = _pruned(setting)
            spawned = _spawned(setting, commands["bare"])
            if place.is_native():
                times["helped"], times["started"] = _helped(setting)
        direct = place.interleaved({n: commands[n] for n in ("bare", "python")}, setting, RUNS)
        starts = _starts(setting, commands["bare"], commands["check"])
    _report_native(table, times)
    _report_python(table, times, direct)
    _report_spawns(table, spawned)
    table.ratio(
        "a daemon's start, to its first answer / python -I -S -c pass",
        starts["daemon"], starts["bare"], unit="ms", most=20,
        meaning="From `icd serve` until `icctl sentinel check` has its reply.",
    )  # fmt: skip
    table.ratio(
        f"icctl state prune of {EXPIRED:,} expired rows / 100 ms", pruned, 100, unit="ms", most=1,
        meaning="The budget of the PRD.",
    )  # fmt: skip


def _starts(setting: place.Setting, bare: list[str], check: list[str]) -> place.Times:
    times: place.Times = {"bare": [], "daemon": []}
    for _ in range(STARTS):
        times["bare"].append(place.quiet(bare, setting.env, setting.root))
        began = place.time.perf_counter()
        with place.daemon(setting):
            place.quiet(check, setting.env, setting.root)
            times["daemon"].append((place.time.perf_counter() - began) * 1000)
    return times


def _helped(setting: place.Setting) -> tuple[list[float], list[float]]:
    """Milliseconds of calls through a helper, and of processes that the same shell starts."""
    done = subprocess.run(
        ["bash", "-c", HELPED], env=setting.env, cwd=setting.root, capture_output=True, check=True
    )
    pairs = [line.split() for line in done.stdout.splitlines()]
    return [int(helped) / 1000 for helped, _ in pairs], [int(own) / 1000 for _, own in pairs]


def _report_native(table: Table, times: place.Times) -> None:
    if not place.is_native():
        table.note("icctl is the Python client here", "no C compiler was there to build the other")
        return
    table.ratio(
        "icctl sentinel check / /bin/true", times["check"], times["true"], unit="ms", most=3,
        meaning="The native client, against a program that does nothing. "
        "The PRD allows 50 ms for a call on 10,000 rows and 1,000 sentinels, as here.",
    )  # fmt: skip
    table.ratio("icctl state get / /bin/true", times["get"], times["true"], unit="ms")
    table.ratio("icctl state set / /bin/true", times["set"], times["true"], unit="ms")
    if "redis" in times:
        table.ratio(
            "icctl sentinel check / redis-cli get", times["check"], times["redis"], unit="ms",
            most=0.5, meaning="Against the client of a server that people find fast.",
        )  # fmt: skip
    else:
        table.note("icctl sentinel check / redis-cli get", "not measured: no redis installed")
    table.ratio(
        "a call through the helper / 1 ms", times["helped"], 1, unit="ms", most=0.5,
        meaning="A shell with several calls keeps one connection.",
    )  # fmt: skip
    table.ratio(
        "a call through the helper / icctl from the same shell",
        times["helped"], times["started"], unit="ms",
    )  # fmt: skip


def _report_python(table: Table, times: place.Times, direct: place.Times) -> None:
    table.ratio(
        "icctl-python sentinel check, daemon / python -I -S -c pass",
        times["python"], times["bare"], unit="ms", most=1.6,
        meaning="The Python client, against an interpreter that starts and ends.",
    )  # fmt: skip
    table.ratio(
        "icctl-python sentinel check, direct / python -I -S -c pass",
        direct["python"], direct["bare"], unit="ms", most=6,
        meaning="Without a daemon, the client opens the database itself.",
    )  # fmt: skip


def _spawned(setting: place.Setting, bare: list[str]) -> place.Times:
    """In turn, each once the runner before it has recorded its end: it would take part in it."""
    icctl = str(place.BIN / "icctl")
    output = ["--output", str(setting.root / "spawned.md")]
    names = ("bare", "spawn", "doctor")
    times: place.Times = {name: [] for name in names}
    for _ in range(SPAWNS):
        times["bare"].append(place.quiet(bare, setting.env, setting.root))
        times["doctor"].append(place.quiet([icctl, "doctor"], setting.env, setting.root))
        began = place.time.perf_counter()
        spawn = [icctl, "dispatch", "spawn", *output, "--", "true"]
        done = subprocess.run(
            spawn, env=setting.env, cwd=setting.root, capture_output=True, check=True
        )
        times["spawn"].append((place.time.perf_counter() - began) * 1000)
        place.quiet(
            [icctl, "dispatch", "wait", done.stdout.decode().strip()], setting.env, setting.root
        )
    return times


def _report_spawns(table: Table, times: place.Times) -> None:
    if place.is_native():
        table.ratio(
            "icctl dispatch spawn -- true / python -I -S -c pass", times["spawn"], times["bare"],
            unit="ms", most=4,
            meaning="Until an agent runs, in its caller's world, and its start is recorded: "
            "its runner is such an interpreter.",
        )  # fmt: skip
    table.ratio(
        "icctl doctor / python -I -S -c pass", times["doctor"], times["bare"], unit="ms",
        meaning="It looks at the daemon from outside, so it is a process of its own.",
    )  # fmt: skip


def _pruned(setting: place.Setting) -> list[float]:
    """Milliseconds, each time with as many rows to forget."""
    command = [str(place.BIN / "icctl"), "state", "prune"]
    times = []
    for _ in range(PRUNES):
        _expire(setting)
        times.append(place.quiet(command, setting.env, setting.root))
    return times


def _expire(setting: place.Setting) -> None:
    database = setting.open()
    with database.hold(place.time.monotonic() + 5):
        conn = database.connection()
        conn.execute("BEGIN IMMEDIATE")
        now_ms = place.time.time_ns() // 1_000_000
        for i in range(EXPIRED):
            place.state.set(
                conn, "old", f"s{i}", "1",
                ttl_ms=1, writer=Writer(), now_ms=now_ms - 10_000,
            )  # fmt: skip
        conn.execute("COMMIT")
        database.close()
