"""Whether a process is there, as the kernel tells it."""

import os

# Larger numbers are no pids on Linux, and would be refused by kill(2) with an OverflowError.
PID_MAX = 2**22


def is_alive(pid: int) -> bool:
    """A zombie is not: it waits only to be counted."""
    if not 0 < pid <= PID_MAX:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return _state(pid) not in {"Z", "X"}


def _state(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            # The name in parentheses may hold anything, parentheses included.
            return file.read(4096).rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""
