"""A stranger's repository is cloned, and used as one uses any other: nothing outside of it changes.

For each repository of the catalogue, through a daemon and without one, as its owner and as root
in a directory of another user:

    - no file outside of its own `.clavain` changes, and none appears;
    - no program starts, and no process of the user's is signalled;
    - every call ends within its deadline plus a second;
    - the daemon stays below 200 MB, rests afterwards, and answers another project within 50 ms;
    - nothing is an internal error, every refusal has a name and a hint, and nothing that a terminal
      would obey is printed as it is.

What is found is collected: `python -m tests.torture.repositories_tried [NAME…]` tells all of it.
"""

import os
import sys

from tests.torture import commands_tried
from tests.torture.code import Code
from tests.torture.commands_tried import ALWAYS, MOVES, SIGNALS, WRITES
from tests.torture.repositories import catalogue
from tests.torture.suite import SHORT_SEED, Broken, Run
from tests.torture.trial import DEAR, WAYS, Finding, Trial, Way, of_root

# Of the short form: how many commands that read, and of how many repositories one is tried through
# both hosts, as root, and with processes of their own.
READS_EACH, BOTH, ROOTS, EACH = 2, 6, 8, 80
TOLD = 40  # findings at most
DEADLY, DEADLY_TOO = {"journals", "settings"}, "user's process"  # always through both hosts


def lines_for(number: int, name: str) -> list[list[str]]:
    """A handful for each repository: in turns, so that no command that reads is left out."""
    reads = [list(read.argv) for read in commands_tried.reads()]
    turn = [reads[(number * READS_EACH + i) % len(reads)] for i in range(READS_EACH)]
    usual = ALWAYS[number % len(ALWAYS)]
    written = WRITES[number % len(WRITES)]
    signals = SIGNALS if "dispatch" in name or "run that" in name else []
    chosen = [["statusline"], usual, *turn, *commands_tried.about(name)]
    first = number % len(chosen)  # what comes first meets the repository as it was made
    return [*chosen[first:], *chosen[:first], *MOVES, written, *signals]


def all_lines() -> list[list[str]]:
    reads = [list(read.argv) for read in commands_tried.reads()]
    return [*reads, *MOVES, *WRITES, *SIGNALS]


def ways(number: int, name: str) -> list[Way]:
    """Of the short form: one host or the other, as root now and then, and what is dear rarely."""
    is_root, is_deadly = os.geteuid() == 0, catalogue.kind_of(name) in DEADLY or DEADLY_TOO in name
    chosen = [*WAYS] if is_deadly or number % BOTH == 0 else [WAYS[number % 2]]
    if is_root and (DEADLY_TOO in name or number % ROOTS == 0):
        chosen += of_root([WAYS[number // ROOTS % 2]])
    return [*chosen, *(way for turn, way in enumerate(DEAR) if number % EACH == turn)]


def all_ways() -> list[Way]:
    chosen = [*WAYS, *DEAR]
    return [*chosen, *(of_root(chosen) if os.geteuid() == 0 else [])]


def raise_if(findings: list[Finding]) -> None:
    if findings:
        told = "\n".join(f"  {one}" for one in findings[:TOLD])
        raise Broken(f"{len(findings)} things that a stranger can do:\n{told}")


def run(run: Run, names: list[str] | None = None) -> None:
    """The short form once; then every command in every repository, new ones too, until it is over."""
    trial = Trial(run.code, run.seed)
    every = catalogue.every(run.seed)
    try:
        for name in every if names is None else names:
            number = every.index(name)
            for way in ways(number, name):
                trial.attempt(name, way, lines_for(number, name))
            run.figures["repositories"] += 1
        raise_if(trial.findings)
        while not run.is_over:
            name = catalogue.composed(run.rng)
            if run.rng.choice([True, False]):
                name = run.rng.choice(list(catalogue.PRIMITIVES))
            for way in all_ways():
                lines = all_lines()
                run.rng.shuffle(lines)
                raise_if(trial.attempt(name, way, lines))
            run.figures["repositories in full"] += 1
    finally:
        trial.close()


def _survey(names: list[str]) -> None:
    every = catalogue.every(SHORT_SEED)
    trial = Trial(Code(), SHORT_SEED)
    try:
        for name in names or every:
            number = every.index(name)
            for way in ways(number, name):
                for one in trial.attempt(name, way, lines_for(number, name)):
                    print(one, flush=True)
    finally:
        trial.close()


if __name__ == "__main__":
    _survey(sys.argv[1:])
