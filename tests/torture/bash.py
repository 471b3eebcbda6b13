"""One bash with the library, that calls whatever it is told with whatever arguments."""

import contextlib
import random
import selectors
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Self

from tests.support.processes import PATIENCE, Daemon
from tests.torture.code import CLIENT, Code
from tests.torture.suite import Broken

# Reads: how many words, the words, each ended by NUL.  Says: the status.  Reads bytes: of characters
# that are not complete, bash would take the NUL after them for a part.
LOOP = r"""
set -uo pipefail
source "$1"
while LC_ALL=C IFS= read -r -d '' count; do
    words=()
    for ((i = 0; i < count; i++)); do LC_ALL=C IFS= read -r -d '' word; words+=("$word"); done
    status=0
    "${words[@]}" >out 2>err || status=$?
    printf '%s\n' "$status"
done
"""
STATUSES = (0, 1, 2, 3)
# What bash says of itself when a script is wrong.
WRONG = (
    b"syntax error",
    b"unbound variable",
    b"bad substitution",
    b"command not found",
    b"Traceback",
)
# How the files begin in which the sanitizers of the native client say what they found.
REPORT = "sanitizer"

Name = Callable[[], bytes]


class Bash:
    """`program` is the client that it calls; else it is the one in Python."""

    def __init__(
        self, code: Code, project: Path, daemon: Daemon, program: Path | None = None
    ) -> None:
        self._library = code.root / "lib-intercore.sh"
        self._project = project
        self._env = {
            **code.env,
            "PYTHON": sys.executable,
            "HOME": str(project),
            "INTERCORE_BIN": str(program or _python(project / "icctl")),
            "INTERCORE_SOCKET": daemon.socket,
            "INTERCORE_TIMEOUT": f"{PATIENCE:.0f}s",
            "INTERCORE_LOCK_DIR": str(project / "locks"),
            # A helper has no stderr.
            "ASAN_OPTIONS": f"log_path={project}/{REPORT}",
        }
        self.last: list[bytes] = []

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            ["/bin/bash", "-c", LOOP, "bash", str(self._library)],
            cwd=self._project,
            env=self._env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        return self

    def __exit__(self, *_: object) -> None:
        """Its helper ends with it."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()

    @staticmethod
    def made(rng: random.Random, name: Name, payload: bytes) -> tuple[bytes, ...]:
        """Some call."""
        return rng.choice(CALLS)(name, payload)

    def call(self, *words: bytes) -> int:
        """The status of a call, which must have nothing to say about the library itself."""
        status = self._status(words)
        told = (self._project / "err").read_bytes()
        if status not in STATUSES or any(word in told for word in WRONG):
            raise Broken(f"{words!r}: status {status}, {told.decode(errors='replace')}")
        return status

    def _status(self, words: tuple[bytes, ...]) -> int:
        self.last = list(words)
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(b"".join(word + b"\0" for word in (str(len(words)).encode(), *words)))
        stdin.flush()
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            if not selector.select(2 * PATIENCE):
                raise Broken(f"the library does not come back from {words!r}")
        answer = stdout.readline()
        if not answer:
            raise Broken(f"bash ended at {words!r}: {self._process.communicate()[1]!r}")
        return int(answer)


def _python(program: Path) -> Path:
    program.write_text(f'#!/bin/sh\nexec "$PYTHON" -c "{CLIENT}" "$@"\n')
    program.chmod(0o755)
    return program


CALLS: list[Callable[[Name, bytes], tuple[bytes, ...]]] = [
    lambda name, payload: (b"intercore_state_set", name(), name(), payload),
    lambda name, _: (b"intercore_state_set", b"k", name(), b"[1]"),
    lambda name, _: (b"intercore_state_get", name(), name()),
    lambda name, _: (b"intercore_state_get", b"-v", name(), b"k", name()),
    lambda name, _: (b"intercore_state_incr", b"n", name(), name()),
    lambda name, _: (b"intercore_sentinel_check", name(), name(), b"60"),
    lambda name, _: (b"intercore_sentinel_check", b"n", b"s", name()),
    lambda name, _: (b"intercore_sentinel_check_many", name(), name()),
    lambda name, _: (b"intercore_events_cursor_set", name(), name()),
    lambda name, payload: (b"intercore_events_cursor_set", b"c", payload),
    lambda name, _: (b"intercore_events_cursor_get", name()),
    lambda name, _: (b"intercore_lease_acquire", name(), name(), name()),
    lambda name, _: (b"intercore_lease_release", name(), name(), name()),
    lambda name, _: (b"intercore_run_phase", name()),
    lambda name, _: (b"intercore_run_advance", name(), name()),
]
