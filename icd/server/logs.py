"""The daemon's log: text for a person at a terminal, one JSON object per line otherwise."""

import logging
import math
import os
import sys
import time
from collections.abc import Callable
from typing import IO

import msgspec

from icd import printable

log = logging.getLogger("icd")

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def set_up(stream: IO[str] | None = None) -> None:
    stream = stream or sys.stderr
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Text() if stream.isatty() else _Json())
    log.handlers[:] = [handler]
    log.propagate = False
    level = os.environ.get("IC_LOG_LEVEL", "INFO").upper()
    known = level in logging.getLevelNamesMapping()
    log.setLevel(level if known else "INFO")
    if not known:
        log.warning("IC_LOG_LEVEL is not a level, using INFO", extra={"given": level})


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
