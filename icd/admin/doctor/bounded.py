"""A look at files that may never answer.

A process that asks a hung mount cannot be interrupted, and a thread in it would keep the process
from ending.  So a child takes every look: it writes down what it finds as it goes, and is left
behind when its time is over.
"""

import json
import os
import select
import signal
import time
import traceback
from collections.abc import Callable, Iterator

import msgspec

from icd.admin.doctor.context import Finding

# What is about to be looked at, or what was found.
Step = str | Finding


class Section(msgspec.Struct):
    """What came of it.  `stuck`: what the child was looking at when its time was over."""

    findings: list[Finding] = []
    stuck: str | None = None
    bug: str | None = None


def look(steps: Callable[[], Iterator[Step]], deadline: float) -> Section:
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ours)
        _be_the_child(steps, theirs)
    os.close(theirs)
    try:
        written = _read(ours, deadline)
    finally:
        os.close(ours)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, os.WNOHANG)  # one that cannot be killed is init's
    return _understood(written)


def _be_the_child(steps: Callable[[], Iterator[Step]], out: int) -> None:
    try:
        # The reader of our output must not wait for a child that hangs.
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        os.close(null)
        for step in steps():
            _write(out, {"step" if isinstance(step, str) else "found": step})
        _write(out, {"done": True})
    except BaseException:  # noqa: BLE001 -- the parent tells it
        _write(out, {"bug": traceback.format_exc()})
    finally:
        os._exit(0)


def _write(out: int, line: dict[str, object]) -> None:
    # Paths may hold any bytes, which this JSON can carry.
    data = json.dumps(msgspec.to_builtins(line)).encode() + b"\n"
    while data:
        data = data[os.write(out, data) :]


def _read(fd: int, deadline: float) -> bytes:
    parts = []
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    while poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        part = os.read(fd, 65536)
        if not part:
            break
        parts.append(part)
    return b"".join(parts)


def _understood(written: bytes) -> Section:
    found = Section(stuck="where to look")
    for line in written.splitlines(keepends=True):
        if not line.endswith(b"\n"):
            break
        told = json.loads(line)
        if "step" in told:
            found.stuck = told["step"]
        elif "found" in told:
            found.findings.append(msgspec.convert(told["found"], Finding))
        else:
            found.stuck = None
            found.bug = told.get("bug")
    return found
