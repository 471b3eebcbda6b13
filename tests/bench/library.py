"""The library for bash: what a whole hook script costs."""

from tests.bench import setting as place
from tests.bench.table import Table

RUNS = 100
SOURCE = f"source {place.ROOT / 'lib-intercore.sh'}"
CHECK = "intercore_sentinel_check bench s1 1"


def run(table: Table) -> None:
    scripts = {
        "bare": ":",
        "source": SOURCE,
        "one": f"{SOURCE}; {CHECK}",
        "five": f"{SOURCE}; {CHECK}; {CHECK}; {CHECK}; {CHECK}; {CHECK}",
    }
    commands = {name: ["bash", "-c", script] for name, script in scripts.items()}
    with place.project() as setting, place.daemon(setting):
        times = place.interleaved(commands, setting, RUNS)
    read = [source - bare for source, bare in zip(times["source"], times["bare"], strict=True)]
    table.ratio(
        "bash: source, one check / bash -c :", times["one"], times["bare"], unit="ms",
        most=3.4 if place.is_native() else 0, meaning="A whole hook with one guard.",
    )  # fmt: skip
    table.ratio(
        "bash: sourcing the library / bash -c :", read, times["bare"], unit="ms", most=1,
        meaning="What reading the library adds to a shell: the difference of each pair of runs.",
    )  # fmt: skip
    table.ratio(
        "bash: five checks / one check", times["five"], times["one"], unit="ms", most=2,
        meaning="A shell starts a helper once, and its calls share it.",
    )  # fmt: skip
