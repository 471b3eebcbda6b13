"""Keeping count of calls that failed and that no daemon saw, where `icctl status` finds them.

A line for each, the verb, in a small file beside the socket.  Only where a daemon has been: the
directory is the daemon's to make.  Nothing here may make a bad thing worse, so errors are dropped.
"""

import posix

from icctl.client import OTHERS_WRITE, S_IFDIR, S_IFMT, sockets, write

NAME = "failures"
S_IFREG = 0o100000  # the module `stat` has a price
FILE_BYTES = 65_536
VERB_CHARACTERS = 60
FLAGS = posix.O_WRONLY | posix.O_CREAT | posix.O_APPEND | posix.O_NOFOLLOW | posix.O_CLOEXEC
FLAGS |= posix.O_NONBLOCK  # a pipe in its place must not keep us waiting for its other end


def note(verb: str) -> None:
    name = "".join(char if char.isprintable() else "?" for char in verb[:VERB_CHARACTERS])
    line = name.replace(" ", ".").encode("ascii", "backslashreplace") + b"\n"
    for path in sockets():
        directory = path.rpartition("/")[0]
        try:
            if not _is_private(directory):
                continue
            fd = posix.open(f"{directory}/{NAME}", FLAGS, 0o600)
        except OSError:
            continue
        found = posix.fstat(fd)
        if found.st_mode & S_IFMT == S_IFREG and found.st_size < FILE_BYTES:
            write(fd, line)
        posix.close(fd)
        return


def _is_private(directory: str) -> bool:
    """A daemon's: in another user's we would write where that user's links lead."""
    found = posix.lstat(directory)
    is_directory = found.st_mode & S_IFMT == S_IFDIR
    return is_directory and found.st_uid == posix.geteuid() and not found.st_mode & OTHERS_WRITE
