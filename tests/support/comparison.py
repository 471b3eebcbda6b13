"""The comparison with what one would use instead: every figure is one of `docs/performance.md`.

`make docs` writes the table into README.md and docs/comparison.md; `tests/test_pages.py` fails when
they hold another one, so that no figure outlives the bench that measured it.
"""

from pathlib import Path

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "docs" / "performance.md"
PAGES = [ROOT / "README.md", ROOT / "docs" / "comparison.md"]
BEGIN = "<!-- made by `make docs` from docs/performance.md: do not edit -->"
END = "<!-- end -->"

_HEAD = "| | Hooks that race | When it is busy | What is left behind | It needs | A guard | A value | A lock |"
_ROWS = [
    (
        "| **temporary files** | two may both find no file | | every file, until something deletes it"
        " | nothing | {touch} in bash | | |"
    ),
    (
        "| **flock** | one holds the lock | waits, or fails at once | nothing: it ends with the process"
        " | nothing | | | {flock} in bash |"
    ),
    (
        "| **sqlite3** | one wins, if your SQL is right | `database is locked`, unless you set a timeout"
        " | every row, until you delete it | a schema of yours | {guard_sqlite} ({bash_sqlite} in bash)"
        " | {put_sqlite} | |"
    ),
    (
        "| **redis** | one wins (`SET NX`) | waits | nothing, if you give keys an expiry | a server, and a name per"
        " project | {guard_redis} ({bash_redis} in bash) | {put_redis} | |"
    ),
    (
        "| **the original `ic`** | one wins | exit 2 after 100 ms, often at once | sentinels go after a week, once-only ones too | nothing"
        " | not measured | not measured | not measured |"
    ),
    (
        "| **intercore** | exactly one is `allowed` | waits until your deadline, 5 s by default |"
        " claims for ever; rows expire, leases end, locks end with their process | nothing; a daemon makes it fast"
        " | {guard} ({bash} in bash; {direct} without the daemon) | {put} | {lock} in bash |"
    ),
]


def medians() -> dict[tuple[str, str], tuple[str, str]]:
    """By what was measured, and against what: the two medians."""
    lines = BENCH.read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "|" in line]
    return {(row[0], row[3]): (row[1], row[4]) for row in rows if len(row) == 10}


def figures() -> dict[str, str]:
    found = medians()
    library, touch = found["guard: bash: library", "bash: touch-file, find -mmin"]
    guard, guard_sqlite = found["guard: icctl", "sqlite3"]
    put, put_sqlite = found["write a value: icctl", "sqlite3"]
    lock, flock = found["lock and unlock: bash: icctl", "bash: flock"]
    return {
        "guard": guard,
        "guard_sqlite": guard_sqlite,
        "guard_redis": found["guard: icctl", "redis-cli"][1],
        "bash": library,
        "bash_sqlite": found["guard: bash: library", "bash: sqlite3"][1],
        "bash_redis": found["guard: bash: library", "bash: redis-cli"][1],
        "touch": touch,
        "direct": found["icctl-python sentinel check, direct", "python -I -S -c pass"][0],
        "put": put,
        "put_sqlite": put_sqlite,
        "put_redis": found["write a value: icctl", "redis-cli"][1],
        "lock": lock,
        "flock": flock,
    }


def table() -> str:
    ruler = "|---" * (_HEAD.count("|") - 1) + "|"
    return "\n".join([_HEAD, ruler, *(row.format(**figures()) for row in _ROWS)])


def page(text: str) -> str:
    """The page with today's table in it."""
    before, rest = text.split(BEGIN)
    _old, after = rest.split(END)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")
