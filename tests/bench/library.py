"""The library for bash: what a whole hook script costs."""

from tests.bench import setting as place
from tests.bench.launch import interleaved
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
        times = interleaved(commands, setting, RUNS)
    least = {name: min(taken) for name, taken in times.items()}
    native = (place.BIN / "icctl").read_bytes().startswith(b"\x7fELF")
    table.ratio(
        "bash: source, one check / bash -c :",
        least["one"],
        least["bare"],
        unit="ms",
        most=3.8 if native else 0,
        meaning="A whole hook with one guard; least of 100 runs.",
    )
    table.ratio(
        "bash: sourcing the library / bash -c :",
        least["source"] - least["bare"],
        least["bare"],
        unit="ms",
        most=1,
        meaning="What reading the library adds to a shell; least of 100 runs.",
    )
    table.ratio(
        "bash: five checks / one check",
        least["five"],
        least["one"],
        unit="ms",
        most=2,
        meaning="A shell starts a helper once, and its calls share it; least of 100 runs.",
    )
