"""Lines between a pipe and the database: they wait in a private file.

The other end of a pipe may be slow, or never come to an end, and a process that reads or writes
the database holds its lock meanwhile.  So a pipe is read before, and written after.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from icd.errors import IcError, UnreadableInput, from_os
from icd.printable import printable

STDIN, STDOUT = 0, 1
# Stands for either in a command line.
PIPE = "-"


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
            raise UnreadableInput(f"cannot keep what stdin holds: {exc.strerror}") from exc
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
