"""The side of the fuzzer that runs our code, in a process of its own, started by its name.

Watching our code takes seconds to prepare, so that is done once: each line on stdin asks for a
child that starts where this process is by then, and fuzzes; its exit status is told on stdout.

    {"kind": "argv", "log": FILE, "options": ["-seed=7", …, DIRECTORY…]}
"""

import json
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path

import atheris

from tests.torture.mutators import INTERESTING, swap_value, swap_word

# libFuzzer takes no longer words.
WORD_BYTES = 64
# How often the form of an input stays as it is, and something in it becomes another.
SWAPPED = 0.5

Swap = Callable[[random.Random, bytes], bytes]


def serve(dictionary: str) -> None:
    # What is loaded late is watched, too: also while it runs.
    with atheris.instrument_imports(include=["icd", "icctl"], enable_loader_override=False):
        from tests.torture import targets, vocabulary

        _write_dictionary(Path(dictionary), vocabulary.words())
        for line in sys.stdin.buffer:
            job = json.loads(line)
            child = os.fork()
            if not child:
                _send_output_to(job["log"])
                swap = swap_word if job["kind"] == "argv" else swap_value
                _fuzz(targets.TARGETS[job["kind"]], swap, job["options"])
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _send_output_to(log: str) -> None:
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(fd, 1)
    os.dup2(fd, 2)


def _fuzz(target: Callable[[bytes], None], swap: Swap, options: list[str]) -> None:
    """Does not return: libFuzzer ends the process."""

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        rng = random.Random(seed)
        data = swap(rng, data) if rng.random() < SWAPPED else atheris.Mutate(data, len(data))
        return data[:most]

    atheris.Setup(["fuzzed", *options], target, custom_mutator=mutate)
    atheris.Fuzz()


def _write_dictionary(file: Path, words: set[bytes]) -> None:
    chosen = sorted(word for word in words | set(INTERESTING) if 0 < len(word) <= WORD_BYTES)
    entries = ("".join(f"\\x{byte:02x}" for byte in word) for word in chosen)
    file.write_text("".join(f'"{entry}"\n' for entry in entries))


if __name__ == "__main__":
    serve(sys.argv[1])
