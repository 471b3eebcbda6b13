"""Files of lines that a caller names, from and to pipes.

A file is read or written while the lock of the database is held.  The other end of a pipe may be
slow, or never come to an end; so the lines of a pipe wait in a private file: a pipe is read before,
and written after.  All of this runs in the caller's own process: its terminal is the caller's.
"""

import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from icd.app.call import Context
from icd.errors import DeadlineExceeded, IcError, UnreadableInput, from_os
from icd.printable import printable

STDIN, STDOUT = 0, 1
# Stands for either pipe in a command line.
PIPE = "-"
# A payload is at most 1 MiB, and escaping makes at most six characters of one.
LINE_BYTES = 8 * 1024 * 1024


def tell(ctx: Context, done: int, total: int) -> None:
    """After every line: others wait for the lock, and a person perhaps for the end."""
    if time.monotonic() >= ctx.deadline:
        raise DeadlineExceeded("the deadline passed; nothing was changed")
    if ctx.progress is not None:
        ctx.progress(min(done, total), total, "")


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


# --- pipes ---


@contextmanager
def place() -> Iterator[str]:
    """The path of a file that is to be, gone after the block."""
    try:
        directory = tempfile.mkdtemp(prefix="icctl-")
    except OSError as exc:
        raise from_os(exc, "make a temporary directory") from exc
    try:
        yield os.path.join(directory, "lines")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def filled() -> Iterator[str]:
    """The path of a file that holds all of stdin; what is said about it names stdin."""
    with place() as file:
        try:
            with open(STDIN, "rb", closefd=False) as source, open(file, "xb") as target:
                shutil.copyfileobj(source, target)
        except OSError as exc:
            raise UnreadableInput(f"cannot store the input from stdin: {exc.strerror}") from exc
        try:
            yield file
        except IcError as exc:
            raise type(exc)(exc.message.replace(file, "stdin"), hint=exc.hint) from exc


def print_out(file: str) -> None:
    """Copy a file to stdout; a reader that leaves early has what it wants."""
    try:
        with (
            suppress(BrokenPipeError),
            open(file, "rb") as source,
            open(STDOUT, "wb", closefd=False) as target,
        ):
            target.writelines(printable(line) for line in source)
    except OSError as exc:
        raise from_os(exc, "write to stdout") from exc
