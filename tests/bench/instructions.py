"""How many instructions a call of the native client takes: a figure that no busy machine changes.

Callgrind counts every instruction of `icctl sentinel check`, answered by a real daemon with the
same words each time.  What counts is what runs in our own object: the C library and the linker
differ between systems, and what they do depends on the environment.  So the program is built
like the installed one, but linked dynamically, and with symbols; the compiler decides what is
left, so a committed number holds for that compiler on that kind of processor only.

`tests/bench/instructions.json` has the number that a test compares with.  After a change that is
meant to cost something, or with another compiler in CI, count anew and commit it:

    python -m tests.bench.instructions --update
"""

import json
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from msgspec import Struct

from icctl.build import FLAGS, SOURCES
from icd import __version__
from tests.bench.table import Table
from tests.support.processes import Daemon

ROOT = Path(__file__).parents[2]
COMMITTED = ROOT / "tests" / "bench" / "instructions.json"
LIMIT = 1.10
RUNS = 5
CHECK = ["sentinel", "check", "count", "s1", "--interval=0"]
NEEDED = ("valgrind", "cc")


class Count(Struct, frozen=True):
    own: int
    total: int


def missing() -> str:
    """What is not installed, as a reason not to count; empty if all is there."""
    absent = [name for name in NEEDED if shutil.which(name) is None]
    return f"not installed: {', '.join(absent)}" if absent else ""


def surroundings() -> dict[str, str]:
    """What the number depends on."""
    told = subprocess.run(["cc", "-dumpversion"], capture_output=True, text=True, check=True)
    name = subprocess.run(["cc", "--version"], capture_output=True, text=True, check=True)
    kind = "clang" if "clang" in name.stdout else "gcc"
    return {
        "compiler": f"{kind} {told.stdout.partition('.')[0].strip()}",
        "machine": platform.machine(),
    }


def count(runs: int = RUNS) -> list[Count]:
    with tempfile.TemporaryDirectory(prefix="icount-", dir="/tmp") as directory:
        root = Path(directory)
        program = _build(root)
        daemon = Daemon()
        try:
            daemon.start()
            env = {"PATH": "/usr/bin:/bin", "HOME": "/", "INTERCORE_SOCKET": daemon.socket}
            project = root / "project"
            (project / ".git").mkdir(parents=True)
            daemon.call("db.init", db=str(project / ".clavain" / "intercore.db"))
            _counted(program, project, env)  # the first is allowed; all that count are throttled
            return [_counted(program, project, env) for _ in range(runs)]
        finally:
            daemon.close()


def _build(root: Path) -> Path:
    program = root / "icctl"
    flags = [flag for flag in FLAGS if flag != "-s"]
    version = f'-DINTERCORE_VERSION="{__version__}"'
    command = ["cc", *flags, "-g", version, "-pie", *SOURCES, "-o", str(program)]
    subprocess.run(command, cwd=ROOT, check=True)
    return program


def _counted(program: Path, project: Path, env: dict[str, str]) -> Count:
    out = project / "callgrind.out"
    tool = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--quiet"]
    plain = ["--compress-strings=no", "--compress-pos=no"]
    done = subprocess.run(
        [*tool, *plain, program, *CHECK], cwd=project, env=env, capture_output=True, check=False
    )
    if done.stdout not in (b"allowed\n", b"throttled\n"):
        raise ValueError(f"not counted: {done}")
    return parse(out.read_text(), str(program))


def parse(profile: str, program: str) -> Count:
    """The cost of the lines of one object, and of all, without what they called."""
    own, total, here, is_call = 0, 0, "", False
    for line in profile.splitlines():
        if line.startswith("ob="):
            here = line[3:]
        elif line.startswith("calls="):
            is_call = True
        elif line[:1].isdigit():
            cost = 0 if is_call else int(line.split()[1])
            own, total, is_call = own + cost * (here == program), total + cost, False
    return Count(own, total)


def run(table: Table) -> None:
    what = "icctl sentinel check, instructions of our own code / committed"
    reason = missing()
    if reason:
        table.note(what, f"not measured: {reason}")
        return
    committed, here = json.loads(COMMITTED.read_text()), surroundings()
    counts = count()
    own, total = [c.own for c in counts], [c.total for c in counts]
    if {name: committed[name] for name in here} == here:
        table.ratio(
            what, min(own), committed["instructions"], unit="instructions", most=LIMIT,
            meaning="Counted by callgrind, the least of five runs: no time, so no noise.",
        )  # fmt: skip
    else:
        table.note(what, f"{min(own):,}; not compared: the number is of another compiler")
    table.note("the same, spread of five runs", f"{min(own):,} to {max(own):,} instructions")
    table.note("the same, with libc and linker", f"{min(total):,} to {max(total):,} instructions")


def main() -> None:
    counts = count()
    found = {**surroundings(), "instructions": min(c.own for c in counts)}
    print(json.dumps(found), f"spread {min(c.own for c in counts)}-{max(c.own for c in counts)},",
          f"total {min(c.total for c in counts)}-{max(c.total for c in counts)}")  # fmt: skip
    if "--update" in sys.argv:
        COMMITTED.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
