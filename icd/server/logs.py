"""The daemon's log: text for a person at a terminal, one JSON object per line otherwise."""

import logging
import os
import sys
import time
from typing import IO

import msgspec

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


def _extra(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        facts = " ".join(f"{name}={value}" for name, value in _extra(record).items())
        text = f"{clock} {record.levelname.lower()} {record.getMessage()} {facts}".rstrip()
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        facts: dict[str, object] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "msg": record.getMessage(),
            **_extra(record),
        }
        if record.exc_info:
            facts["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(facts, enc_hook=str).decode()
