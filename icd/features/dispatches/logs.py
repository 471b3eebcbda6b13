"""dispatch logs: what an agent printed, and what it prints next.

Its file is named by a row, which may be a stranger's.  So it is read in the caller's own process,
only if the database is trusted, only if it is a plain file of the caller's, and nothing in it
commands a terminal.
"""

import os
import re
import stat
from collections.abc import Iterator
from typing import Annotated

from icd.app import render
from icd.app.invocation import Caller, Local, Output, World
from icd.app.types import Whole
from icd.app.verb import Command, Option
from icd.errors import IcError, UnreadableInput, Usage
from icd.features.dispatches.calls import Get
from icd.features.dispatches.launch import refuse_untrusted
from icd.features.dispatches.runner import output_files
from icd.features.dispatches.store import Dispatch
from icd.printable import printable

LINES = 100
LAST_LINES = 20  # among which the last that is not empty is looked for
READ_BYTES = 65_536
# Of one answer: a log may be large, and a line of it endless.
MOST_BYTES = 16 * 1024 * 1024
# How often a file is looked at, and how many such looks there are to one at the dispatch.
LOOK_SECONDS, LOOKS = 0.2, 5
# What an agent says to its own terminal: colours, titles, and the cursor.
_SEQUENCE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


class Logs(Get):
    """Print what the agent of a dispatch printed: the last lines of its output.

    The output of an agent that a script runs is in the file beside it, with the suffix .log; that
    is printed then.
    --follow prints what is added, until the dispatch ends.
    Colours and other sequences for a terminal are left out.
    """

    lines: Annotated[
        int, Option("--lines", f"Print the last N lines (default {LINES}).", "N", aliases=("-n",)),
        Whole(0, 1_000_000),
    ] = LINES  # fmt: skip
    follow: Annotated[
        bool, Option("--follow", "Print what is added, until the end.", aliases=("-f",))
    ] = False


def ask_logs(world: World, f: Logs) -> Local:
    if f.follow and world.json:
        raise Usage("--follow and --json are mutually exclusive")

    def run(ask: Caller) -> Output:
        found: Dispatch = ask("dispatch.get", Get(f.id))
        if not found.output_file:
            raise UnreadableInput(f"dispatch {f.id} has no output file")
        refuse_untrusted(world, f"the output of dispatch {f.id} was not read")
        log = _Log(found.output_file)
        last = log.last(f.lines)
        if world.json:
            shown = _shown(last).decode().split("\n")[:-1]
            return render.to_json({"id": f.id, "file": log.path, "lines": shown})
        output = Output(0, _shown(last))
        if f.follow:
            output.more = _following(ask, f.id, log)
        return output

    return Local(run)


def _following(ask: Caller, dispatch_id: str, log: "_Log") -> Iterator[bytes]:
    """What is added; the dispatch is asked before the file, so that nothing of its end is lost."""
    import select  # only what goes on pays for it

    poll = select.poll()
    poll.register(1, 0)
    looks, is_over = 0, False
    while True:
        if looks % LOOKS == 0:
            is_over = _is_over(ask, dispatch_id)
        looks += 1
        while added := log.added(is_last=is_over):
            yield _shown(added)
        if is_over or poll.poll(LOOK_SECONDS * 1000):  # or its reader has left
            return


def _is_over(ask: Caller, dispatch_id: str) -> bool:
    try:
        found: Dispatch = ask("dispatch.get", Get(dispatch_id))
    except IcError as exc:
        return not exc.retryable
    return found.is_over


class _Log:
    """A file that grows; that it is not there yet is no mistake."""

    def __init__(self, output: str) -> None:
        log = f"{output}.log"  # of a script
        self.path = log if os.path.lexists(log) else output
        self._at = 0
        self._inode = 0

    def last(self, lines: int) -> bytes:
        """The end of it, and from now on what follows."""
        with _Opened(self.path) as fd:
            if fd < 0:
                return b""
            there = os.fstat(fd)
            self._at, self._inode = there.st_size, there.st_ino
            return _end(fd, there.st_size, lines)

    def added(self, *, is_last: bool) -> bytes:
        """Whole lines that were added, and at last the rest.

        A file that was emptied or replaced is read from its beginning.
        """
        with _Opened(self.path) as fd:
            if fd < 0:
                return b""
            there = os.fstat(fd)
            if there.st_ino != self._inode or there.st_size < self._at:
                self._at, self._inode = 0, there.st_ino
            data = os.pread(fd, READ_BYTES, self._at)
            if len(data) == READ_BYTES or not is_last:  # a line that is longer comes in pieces
                whole = data.rfind(b"\n") + 1
                data = data[: whole or (len(data) if len(data) == READ_BYTES else 0)]
            self._at += len(data)
            return data


def last_lines(output: str, count: int) -> list[str]:
    """What an agent printed last; its database is trusted."""
    return _shown(_Log(output).last(count)).decode().split("\n")[:-1]


def last_line(output: str) -> str:
    """The last one that says something."""
    found = reversed(last_lines(output, LAST_LINES))
    return next((line.strip() for line in found if line.strip()), "")


class _Opened:
    """A plain file of the caller's; -1 if it is not there."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1

    def __enter__(self) -> int:
        try:
            self._fd = os.open(self._path, output_files.READ_FLAGS)
        except FileNotFoundError:
            return -1
        except OSError as exc:
            raise UnreadableInput(f"cannot read {self._path}: {exc.strerror}") from exc
        there = os.fstat(self._fd)
        if not stat.S_ISREG(there.st_mode) or there.st_uid != os.geteuid():
            self.__exit__()
            raise UnreadableInput(f"{self._path} is not a plain file of yours")
        return self._fd

    def __exit__(self, *_raised: object) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _end(fd: int, size: int, lines: int) -> bytes:
    """The last lines, read from behind."""
    parts: list[bytes] = []
    start, breaks = size, 0
    while start and breaks <= lines and size - start < MOST_BYTES:
        step = min(READ_BYTES, start)
        start -= step
        parts.append(os.pread(fd, step, start))
        breaks += parts[-1].count(b"\n")
    kept = b"".join(reversed(parts)).split(b"\n")
    is_whole = kept[-1:] == [b""]  # the last line has its end
    kept = kept[: -1 if is_whole else None][-lines:] if lines else []
    return b"".join(line + b"\n" for line in kept)


def _shown(data: bytes) -> bytes:
    """As text; of a line that was drawn again and again, what stood there last."""
    lines = _SEQUENCE.sub(b"", data).split(b"\n")
    plain = b"\n".join([line.rstrip(b"\r").rpartition(b"\r")[2] for line in lines])
    return printable(plain.decode("utf-8", "replace").encode())


VERBS = [
    Command(
        "dispatch logs",
        Logs,
        ask_logs,
        order=("lines", "follow"),
        summary="Print what an agent printed.",
        examples=["icctl dispatch logs k3v9x0qa", "icctl dispatch logs k3v9x0qa -f -n 20"],
    ),
]
