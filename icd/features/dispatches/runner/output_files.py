"""The files that an agent leaves: its verdict, its summary, its counts, and what it printed.

The agent writes them, so they are read with care: plain files of ours, the first part only, and
what makes no sense is left out.
"""

import os
import stat

# A verdict is a handful of lines; what comes after this is not read.
FILE_BYTES = 65_536
# A word or a sentence; the rest is in the file.
TEXT_CHARACTERS = 4000
# Of what a failed agent printed, its end is told: a sentence and what leads to it.
LAST_BYTES = 4096
LAST_LINES = 3
LAST_CHARACTERS = 500
_PARAMETERS = "0123456789;:<=>?"  # of a control sequence, before the letter that ends it
# What a database can hold.
MOST = 2**63 - 1
# By so much the clock of a file may be behind.
CLOCK_NS = 1_000_000_000
# Where the script that runs agents counts what they do, whatever TMPDIR says.
PROGRESS = "/tmp/clavain-dispatch-{pid}.json"

READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
Mark = tuple[int, int, int] | None


def mark(path: bytes | int) -> Mark:
    """What a file is before the agent starts: one that stays as it is was left by another."""
    try:
        found = os.stat(path) if isinstance(path, int) else os.lstat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def verdict(path: bytes, before: Mark) -> tuple[str | None, str | None]:
    """Read the status and the summary of a verdict."""
    found = _lines(path, before)
    return _after(found, "STATUS:"), _after(found, "SUMMARY:")


def tokens(path: bytes, before: Mark) -> tuple[int | None, int | None]:
    """Read `Tokens: N in / N out`."""
    words = (_after(_lines(path, before), "Tokens:") or "").split()
    if len(words) < 5 or (words[1], words[2], words[4].rstrip(",;.")) != ("in", "/", "out"):
        return None, None
    return _count(words[0]), _count(words[3])


def progress(pid: int) -> dict[str, int]:
    """Read turns, commands and messages, if the agent counts them."""
    data = _read(PROGRESS.format(pid=pid))
    if not data:
        return {}
    try:
        import json  # few agents leave one, and all would pay for it

        found = json.loads(data)
        counts = {name: found.get(name) for name in ("turns", "commands", "messages")}
    except (ValueError, AttributeError, ImportError, RecursionError):
        return {}
    return {name: n for name, n in counts.items() if type(n) is int and 0 <= n <= MOST}


def clear_progress(pid: int, began_ns: int) -> None:
    """Remove what another agent of this number counted: it is older than ours."""
    path = PROGRESS.format(pid=pid)
    try:
        found = os.lstat(path)
        if found.st_uid == os.geteuid() and found.st_mtime_ns < began_ns - CLOCK_NS:
            os.unlink(path)
    except OSError:
        return  # usually there is none


def last_lines(path: bytes, log: Mark) -> str:
    """Read the end of what an agent printed, if that is still the plain file it was given."""
    now = mark(path)
    if log is None or now is None or now[0] != log[0]:
        return ""
    data = _read(path, max(0, now[2] - LAST_BYTES)).decode("utf-8", "replace")
    lines = [line for each in data.splitlines() if (line := _printable(each))]
    return " / ".join(lines[-LAST_LINES:])[-LAST_CHARACTERS:]


def _printable(line: str) -> str:
    """Without the sequences that colour it, and without what else a terminal obeys."""
    first, *coloured = line.split("\x1b[")
    plain = first + "".join(each.lstrip(_PARAMETERS)[1:] for each in coloured)
    return "".join(c if c.isprintable() else " " for c in plain).strip()


def _after(lines: list[str], label: str) -> str | None:
    for line in lines:
        if line.startswith(label):
            return line.removeprefix(label).strip()[:TEXT_CHARACTERS] or None
    return None


def _count(word: str) -> int | None:
    digits = word.replace(",", "")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
        return None
    return min(int(digits), MOST)


def _lines(path: bytes, before: Mark) -> list[str]:
    if before is not None and mark(path) == before:
        return []
    return _read(path).decode("utf-8", "replace").replace("\0", " ").splitlines()


def _read(path: bytes | str, offset: int = 0) -> bytes:
    try:
        return read(path, FILE_BYTES, offset=offset)
    except OSError:
        return b""


def read(path: bytes | str, limit: int, *, offset: int = 0, dir_fd: int | None = None) -> bytes:
    """Read so much of a plain file of ours; what is not there, or is something else, is empty.

    OSError: such a file may be there, but cannot be read at the moment.
    """
    try:
        fd = os.open(path, READ_FLAGS, dir_fd=dir_fd)
    except FileNotFoundError:
        return b""
    except OSError:
        if stat.S_ISREG(os.lstat(path, dir_fd=dir_fd).st_mode):
            raise
        return b""  # a link, a socket
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            return b""
        return os.pread(fd, limit, offset)
    finally:
        os.close(fd)
