"""libFuzzer, by way of atheris: inputs that reach new branches of our code are kept, and changed.

It works in slices of a few seconds, a kind of input in each.  What was found to be new is in the
run's own directory, so that the next slice of the same kind goes on from there.
"""

import contextlib
import importlib.util
import json
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import BinaryIO, Self

from tests.torture.code import ROOT
from tests.torture.suite import Broken, Run

DATA = ROOT / "tests" / "data"
INPUTS = ROOT / "tests" / "torture" / "hostile_inputs"
# In tests/torture/hostile_inputs each has a directory; of some there is more.
KINDS = (
    "frames", "lines", "argv", "replies", "toml", "payloads", "cursors", "words", "documents",
    "patterns", "left", "taken-in",
)  # fmt: skip
MORE = {"frames": DATA / "frames", "replies": DATA / "replies"}
# A single input that takes this long hangs, even where others use the machine, too.
HANG_SECONDS = 30
# Several times what it needs; an input that is believed when it says how long it is needs more.
MEMORY_MIB = 1024
# Until it is ready, or after a slice: far more than it takes.
LATE_SECONDS = 120
MISSING = (
    "atheris is not installed (there is none for this machine, or this Python): "
    "the decoders are tried with the inputs of tests/data only"
)

_EXECUTED = re.compile(r"^stat::number_of_executed_units:\s+(\d+)", re.MULTILINE)
_STORY = re.compile(r"=== Uncaught Python exception: ===\n(.*?)\n==\d+==", re.DOTALL)


def is_there() -> bool:
    return importlib.util.find_spec("atheris") is not None


def places(kind: str) -> list[Path]:
    found = (INPUTS / kind, MORE.get(kind))
    return [place for place in found if place is not None and place.exists()]


def replay(run: Run, kind: str) -> None:
    """Where there is no fuzzer: what others have found."""
    files = [str(file) for place in places(kind) for file in sorted(place.iterdir())]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "tests.torture.targets", kind, *files],
        env={**_env(run), "TMPDIR": str(run.directory)},
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise Broken(f"{kind}: {done.stderr.decode(errors='replace')}")
    run.figures["inputs decoded"] += len(files)


def _env(run: Run) -> dict[str, str]:
    """The code that is tried may be a copy, without tests."""
    return {**run.code.env, "PYTHONPATH": f"{run.code.root}:{ROOT}"}


class Fuzzer:
    def __init__(self, run: Run) -> None:
        self._run = run
        self._directory = run.directory / "fuzzer"
        self._directory.mkdir(parents=True)
        self._stderr = self._directory / "stderr"
        # The targets write a file for almost every input: to memory, where there is such a place.
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self._scratch = tempfile.mkdtemp(prefix="fuzzer-", dir=memory)

    def __enter__(self) -> Self:
        with self._stderr.open("wb") as stderr:
            self._start(stderr)
        return self

    def _start(self, stderr: BinaryIO) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tests.torture.fuzzed", self._directory / "dictionary"],
            env={**_env(self._run), "TMPDIR": self._scratch},
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
        )

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):  # with whatever it has started
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def fuzz(self, kind: str, seconds: int, runs: int = -1) -> int:
        """One slice; how many inputs were tried.  What one of them has broken is raised.

        With `runs`, it ends after so many: then the same seed tries the same inputs on any machine.
        """
        found = self._directory / kind
        found.mkdir(exist_ok=True)
        log = self._directory / f"{kind}.log"
        options = [
            f"-max_total_time={seconds}",
            f"-runs={runs}",
            f"-seed={self._run.rng.randrange(1, 2**31)}",
            f"-timeout={HANG_SECONDS}",
            f"-rss_limit_mb={MEMORY_MIB}",
            f"-dict={self._directory / 'dictionary'}",
            f"-artifact_prefix={self._directory}/broken-{kind}-",
            "-print_final_stats=1",
            *map(str, (found, *places(kind))),
        ]
        status = self._ask({"kind": kind, "log": str(log), "options": options}, seconds)
        told = log.read_text(errors="replace")
        if status:
            raise Broken(self._story(kind, status, told))
        executed = _EXECUTED.search(told)
        assert executed, told
        self._run.figures["inputs decoded"] += int(executed[1])
        return int(executed[1])

    def _ask(self, job: dict[str, object], seconds: int) -> int:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(job).encode() + b"\n")
        stdin.flush()
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            if not selector.select(seconds + LATE_SECONDS):
                raise Broken(f"the fuzzer does not come back from {job}")
        answer = stdout.readline()
        assert answer, f"the fuzzer ended: {self._stderr.read_text()[-5000:]}"
        return int(answer)

    def _story(self, kind: str, status: int, told: str) -> str:
        files = sorted(self._directory.glob(f"broken-{kind}-*"))
        traceback = _STORY.search(told)
        return "\n".join(
            [
                f"{kind}: exit status {status} of the fuzzer at",
                *(f"  {file.read_bytes()[:1000]!r}" for file in files),
                traceback[1] if traceback else told[-5000:],
                *(f"again with: python -m tests.torture.targets {kind} {file}" for file in files),
            ]
        )
