"""Files of lines that a caller names, read or written while the lock is held."""

import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from icd.app.call import Context
from icd.errors import DeadlineExceeded, UnreadableInput

# A payload is at most 1 MiB, and escaping makes at most six characters of one.
LINE_BYTES = 8 * 1024 * 1024


def tell(ctx: Context, done: int, total: int) -> None:
    """Stop at the deadline, else tell how far it is; after every line, since others wait."""
    if time.monotonic() >= ctx.deadline:
        raise DeadlineExceeded("the deadline passed; nothing was changed")
    if ctx.progress is not None:
        ctx.progress(min(done, total), total)


@contextmanager
def opened(path: str, *, hint: str) -> Iterator[BinaryIO]:
    """A regular file: the lock is held while it is read, and a pipe may never end."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as exc:
        raise UnreadableInput(f"cannot read {path}: {exc.strerror}") from exc
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnreadableInput(f"{path} is not a regular file", hint=hint)
    with open(descriptor, "rb") as file:
        yield file


def read(ctx: Context, path: str, *, hint: str) -> Iterator[tuple[int, bytes]]:
    """Each line with its number; after each, how far it is is told."""
    with opened(path, hint=hint) as file:
        size = os.fstat(file.fileno()).st_size
        number = 0
        while text := file.readline(LINE_BYTES + 1):
            number += 1
            if len(text) > LINE_BYTES:
                sentence = f"{path}:{number}: longer than {LINE_BYTES} bytes"
                raise UnreadableInput(sentence, hint=hint)
            if not text.strip():
                raise UnreadableInput(f"{path}:{number}: the line is empty", hint=hint)
            yield number, text
            tell(ctx, file.tell(), size)
