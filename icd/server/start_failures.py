"""Starts of `icd` that failed, kept in a file: the stderr of a service is seldom read.

A few lines in a small file beside the owner lock, `<unix milliseconds> <sentence>`, mode 0600.
Nothing here may make a bad thing worse, so errors are dropped; of two that fail at the very same
moment, one may be forgotten.
"""

import contextlib
import os
import stat
import time

import msgspec

from icd.errors import IcError
from icd.server.net import socket_claim as sockets

NAME = "start-ups"
# A service that is restarted again and again says the same each time.
KEPT = 20
SENTENCE_BYTES = 500
FILE_BYTES = KEPT * (SENTENCE_BYTES + 20)
RECENT_MS = 86_400_000  # what is older than a day has been repaired, or never mattered


class Failed(msgspec.Struct):
    at_ms: int
    sentence: str


def note(socket_path: str | None, sentence: str) -> None:
    """Note a failure of this process beside the socket that it was to serve."""
    try:
        path = sockets.choose(socket_path or os.environ.get("INTERCORE_SOCKET"))
    except IcError:
        return  # the path itself is the mistake
    record(os.path.dirname(path), sentence, time.time_ns() // 1_000_000)


def record(directory: str, sentence: str, now_ms: int) -> None:
    """Note a failure, in a directory of our own, which may not be there yet."""
    with contextlib.suppress(OSError):
        os.makedirs(directory, mode=0o700, exist_ok=True)
        found = os.lstat(directory)
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
            said = " ".join(sentence.encode("utf-8", "backslashreplace").decode().split())
            line = f"{now_ms} ".encode() + said.encode()[:SENTENCE_BYTES]
            _replace(directory, [*_lines(directory)[1 - KEPT :], line])


def recent(directory: str, now_ms: int) -> list[Failed]:
    """Those of the last day, the latest last; whatever else the file holds is passed over."""
    found = []
    for line in _lines(directory):
        at, _, sentence = line.partition(b" ")
        if at.isdigit() and now_ms - RECENT_MS < int(at) <= now_ms:
            found.append(Failed(int(at), sentence.decode("utf-8", "replace")))
    return found


def _lines(directory: str) -> list[bytes]:
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with open(os.open(os.path.join(directory, NAME), flags), "rb") as file:
            return file.read(FILE_BYTES).splitlines()
    except OSError:
        return []


def _replace(directory: str, lines: list[bytes]) -> None:
    path = os.path.join(directory, NAME)
    temporary = f"{path}.{os.getpid()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(temporary, flags, 0o600), "wb") as file:
            file.write(b"".join(line + b"\n" for line in lines))
        os.rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
