"""The installed command: what a hook pays for one call, through either door."""

import subprocess

from tests.bench import setting as place
from tests.bench.table import Table

RUNS = 150
CHECK = ["sentinel", "check", "bench", "s1", "--interval=1"]

# Several calls of one shell: what each costs, in microseconds, the least of them.
HELPED = r"""
owner=$BASHPID
read -r pid dir <<<"$(icctl --helper "$owner")"
least=
for ((i = 0; i < 500; i++)); do
    began=${EPOCHREALTIME/./}
    {
        printf 'ic1 6\0d%s\0' "$PWD" >&8
        printf 'a%s\0' sentinel check bench s1 --interval=1 >&8
        IFS= read -r -d '' status <&9; IFS= read -r -d '' out <&9; IFS= read -r -d '' err <&9
    } 8<>"$dir/in" 9<>"$dir/out"
    took=$(( ${EPOCHREALTIME/./} - began ))
    [[ -n $least && $least -le $took ]] || least=$took
done
echo "$least"
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
            times = interleaved(commands, setting, RUNS)
            _prune(table, setting)
            helped = _helped(setting)
        direct = interleaved({n: commands[n] for n in ("bare", "python")}, setting, RUNS)
    _report_native(table, times, helped)
    _report(table, times, direct)


def _helped(setting: place.Setting) -> float:
    """Milliseconds."""
    done = subprocess.run(
        ["bash", "-c", HELPED], env=setting.env, cwd=setting.root, capture_output=True, check=True
    )
    return int(done.stdout) / 1000


def _report_native(table: Table, times: dict[str, list[float]], helped: float) -> None:
    check = min(times["check"])
    if not (place.BIN / "icctl").read_bytes().startswith(b"\x7fELF"):
        table.note("icctl is the Python client here", "no C compiler was there to build the other")
        return
    table.ratio(
        "icctl sentinel check / /bin/true",
        check,
        min(times["true"]),
        unit="ms",
        most=3,
        meaning="The native client, against a program that does nothing; least of 150 runs.",
    )
    if "redis" in times:
        table.ratio(
            "icctl sentinel check / redis-cli get",
            check,
            min(times["redis"]),
            unit="ms",
            most=0.5,
            meaning="Against the client of a server that people find fast; least of 150 runs.",
        )
    else:
        table.note("icctl sentinel check / redis-cli get", "not measured: no redis installed")
    table.ratio(
        "a call through the helper / 1 ms",
        helped,
        1,
        unit="ms",
        most=0.5,
        meaning="A shell with several calls keeps one connection; least of 500 calls.",
    )


def interleaved(
    commands: dict[str, list[str]], setting: place.Setting, runs: int
) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, command in commands.items():
            times[name].append(place.quiet(command, setting.env, setting.root))
    return times


def _report(table: Table, times: dict[str, list[float]], direct: dict[str, list[float]]) -> None:
    bare = min(times["bare"])
    table.ratio(
        "icctl-python sentinel check, daemon / python -I -S -c pass",
        min(times["python"]),
        bare,
        unit="ms",
        most=1.6,
        meaning="The Python client, against an interpreter that starts and ends; least of 150 runs.",
    )
    table.ratio(
        "icctl-python sentinel check, direct / python -I -S -c pass",
        min(direct["python"]),
        min(direct["bare"]),
        unit="ms",
        most=8,
        meaning="Without a daemon, the client opens the database itself; least of 150 runs.",
    )
    for name, verb in {"check": "sentinel check", "get": "state get", "set": "state set"}.items():
        what = f"icctl {verb}, daemon, 10,000 rows, 1,000 sentinels"
        table.calls(what, times[name], unit="ms", more=" (budget of the PRD: 50 ms)")
    table.calls("icctl-python sentinel check, daemon", times["python"], unit="ms")
    table.calls("icctl-python sentinel check, direct", direct["python"], unit="ms")


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
