"""The daemon's log: text for a person at a terminal, one JSON object per line otherwise.

A daemon in the background logs to a file of its own.  It is ours, no link, and never larger than
twice `LOG_BYTES` with the one that was put aside; a full disk costs lines, never the daemon.
"""

import contextlib
import errno
import logging
import math
import os
import stat
import sys
import time
from collections.abc import Callable, Mapping
from typing import IO

import msgspec

from icd import config, files, printable
from icd.errors import IcError, Misconfigured, PermissionRefused

# Beyond this the log is put aside, in the place of the one that was put aside before.
LOG_BYTES = 1024 * 1024
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)

log = logging.getLogger("icd")

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def set_up(stream: IO[str] | None = None, *, path: str | None = None) -> None:
    """`path`: the file that stderr is by now."""
    stream = stream or sys.stderr
    handler = _File(path) if path else logging.StreamHandler(stream)
    handler.setFormatter(_Text() if stream.isatty() else _Json())
    log.handlers[:] = [handler]
    log.propagate = False
    level = os.environ.get("IC_LOG_LEVEL", "INFO").upper()
    known = level in logging.getLevelNamesMapping()
    log.setLevel(level if known else "INFO")
    if not known:
        log.warning("IC_LOG_LEVEL is not a level, using INFO", extra={"given": level})


# --- a file of its own ---


class Starter:
    """Who started us, and hears of it until we listen or fail: at stderr, whatever that is later.

    `path`: the file that stderr was replaced by.
    """

    def __init__(self) -> None:
        self.path: str | None = None
        self._fd = -1

    def replace_by_file(self, env: Mapping[str, str]) -> None:
        path = config.log_file(env)
        if path is None:
            raise Misconfigured("HOME is not set", hint="set it to your home directory")
        _redirect(path, before=self._keep)
        self.path = path

    def _keep(self) -> None:
        self._fd = os.dup(2)

    def tell(self, sentence: str, *, is_failure: bool = True) -> None:
        """Say why we end; a starter wants to hear only of a failure."""
        with contextlib.suppress(OSError):  # it did not wait for us, or the disk is full
            sys.stderr.write(sentence)
        if self._fd >= 0 and is_failure:
            with contextlib.suppress(OSError):
                os.write(self._fd, sentence.encode("utf-8", "backslashreplace"))

    def release(self) -> None:
        """We listen."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class _File(logging.Handler):
    """Appends to stderr, which is a file of limited size."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def emit(self, record: logging.LogRecord) -> None:
        line = f"{self.format(record)}\n".encode("utf-8", "backslashreplace")
        with contextlib.suppress(OSError, PermissionRefused):
            if not files.is_named(2, self._path):  # it was removed, or there was no room for it
                _redirect(self._path)
            os.write(2, line)
            if os.fstat(2).st_size > LOG_BYTES:
                _put_aside(self._path)


def _put_aside(path: str) -> None:
    try:
        os.replace(path, f"{path}.1")
    except OSError:
        os.ftruncate(2, 0)
    else:
        _redirect(path)


def _redirect(path: str, before: Callable[[], None] = lambda: None) -> None:
    """Make stdout and stderr the file; nothing, if there is no room for one."""
    try:
        fd = _opened(path)
    except OSError as exc:
        if exc.errno not in _NO_ROOM:
            raise _refused(path, exc.strerror or str(exc)) from exc
        fd = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    before()
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.close(fd)


def _opened(path: str) -> int:
    directory = os.path.dirname(path)
    os.makedirs(directory, mode=0o700, exist_ok=True)
    found = os.lstat(directory)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise _refused(directory, "it is not a directory of this user alone")
    fd = files.open_(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_nlink != 1:
        os.close(fd)
        raise _refused(path, "it is not a file of this user alone")
    os.fchmod(fd, 0o600)
    return fd


def _refused(path: str, why: str) -> IcError:
    return PermissionRefused(
        f"cannot log to {path}: {why}", hint="move it away, or set XDG_STATE_HOME"
    )


# --- lines ---


class Rarely:
    """A line that others can cause as often as they like: one in a while, and how many were not."""

    def __init__(self, seconds: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._monotonic = monotonic
        self._next = -math.inf
        self._left_out = 0

    def warning(self, text: str, **facts: object) -> None:
        now = self._monotonic()
        if now < self._next:
            self._left_out += 1
            return
        if self._left_out:
            facts["left_out"] = self._left_out
        self._next, self._left_out = now + self._seconds, 0
        log.warning(text, extra=facts)


class Once:
    """Things that are worth one line in the log, and not one for each call.  Threads may use it."""

    REMEMBERED = 200  # what comes after so many is not logged: a project decides how many there are

    def __init__(self) -> None:
        self._said: set[int] = set()

    def warn(self, sentence: str, **facts: object) -> None:
        said = hash(f"{sentence} {facts}")
        if said not in self._said and len(self._said) < self.REMEMBERED:
            self._said.add(said)
            log.warning("%s", sentence, extra=facts)


def one_line(text: str, limit: int) -> str:
    """What a stranger calls something, made fit for a line; of what is long, the end."""
    line = "".join(char if char.isprintable() else "?" for char in text[-limit:])
    return line if len(text) <= limit else f"…{line[1:]}"


def _extra(record: logging.LogRecord) -> dict[str, object]:
    return {
        name: _encodable(value) for name, value in vars(record).items() if name not in _STANDARD
    }


def _encodable(value: object) -> object:
    """A path may hold bytes that are no text, and its line must be written all the same."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    return value


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        facts = " ".join(f"{name}={value}" for name, value in _extra(record).items())
        text = f"{clock} {record.levelname.lower()} {record.getMessage()} {facts}".rstrip()
        trace = f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""
        text = printable.line(text) + trace
        return printable.printable(text.encode("utf-8", "backslashreplace")).decode()


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        facts: dict[str, object] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "msg": _encodable(record.getMessage()),
            **_extra(record),
        }
        if record.exc_info:
            facts["traceback"] = self.formatException(record.exc_info)
        return printable.printable(msgspec.json.encode(facts, enc_hook=str)).decode()
