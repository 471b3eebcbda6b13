"""stdin of a hook: read once, and there again for the command.

What an agent sends is kept in a memory file.  Of what is too long for an event only the beginning
is held, and another process passes on all of it.
"""

import os
import select
from typing import NoReturn

from icd.features.hook.event import EVENT_BYTES

CHUNK_BYTES = 1 << 16


def take() -> bytes | None:
    """What is on stdin, which can be read again; None if it is too long to be an event.

    A terminal is not read: nobody sends an event there.
    """
    if os.isatty(0):
        return b""
    data = _read(EVENT_BYTES + 1)
    if len(data) > EVENT_BYTES:
        _put(_passed_on(data))
        return None
    _put(_kept(data))
    return data


def _kept(data: bytes) -> int:
    try:
        fd = os.memfd_create("intercore-event")
    except OSError:  # a kernel may refuse them
        return _passed_on(data)
    _write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _read(most: int) -> bytes:
    parts, size = [], 0
    while size < most:
        try:
            part = os.read(0, min(most - size, CHUNK_BYTES))
        except BlockingIOError:  # the writer takes its time
            select.select([0], [], [])
            continue
        except OSError:  # such as a directory: there is no event
            break
        if not part:
            break
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def _passed_on(begun: bytes) -> int:
    """Where a process of its own writes what was read, and then the rest."""
    end, start = os.pipe()
    if os.fork() == 0:
        os.close(end)
        _pass_on(begun, start)
    os.close(start)
    return end


def _pass_on(data: bytes, to: int) -> NoReturn:
    wanted = True
    try:
        for fd in (1, 2):  # a reader of ours waits for their end
            os.close(fd)
        while data:  # also what nobody wants: an agent may wait until all of it was read
            try:
                if wanted:
                    _write(to, data)
            except OSError:
                wanted = False
            data = os.read(0, CHUNK_BYTES)
    finally:
        os._exit(0)


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _put(fd: int) -> None:
    os.dup2(fd, 0)
    os.close(fd)
