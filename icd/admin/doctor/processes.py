"""Other processes, as /proc shows them to a person; what cannot be seen is left out."""

import os

from msgspec import Struct

from icd import procfs


class Process(Struct, frozen=True):
    pid: int
    name: str
    stopped: bool

    def __str__(self) -> str:
        return f"process {self.pid} ({self.name})"


def find(pid: int) -> Process | None:
    found = procfs.stat(pid)
    return Process(pid, found.name, found.is_stopped) if found else None


def holder(path: str) -> Process | None:
    """Who holds the lock of flock(2) on a file."""
    try:
        inode = os.stat(path, follow_symlinks=False).st_ino
        with open("/proc/locks", encoding="ascii") as table:
            for line in table:
                fields = line.split()
                if fields[1] == "FLOCK" and fields[5].endswith(f":{inode}"):
                    return find(int(fields[4]))
    except (OSError, IndexError, ValueError):
        pass
    return None


def wake(process: Process) -> str:
    """What to do about a process that holds things up."""
    if process.stopped:
        pid = process.pid  # while it is stopped, no other signal reaches it
        return f"let it go on with 'kill -CONT {pid}', or end it with 'kill -KILL {pid}'"
    return f"wait for it, or end it with 'kill {process.pid}'"
