"""What the daemon is told of the terminal that a person reads: width, clock and colours.

Loaded only if stdout is a terminal.  The native client says the same (icctl/client.c, `face`), and
what is decided by the daemon's side, such as NO_COLOR and COLUMNS, is in icd/app/planner.py.

A zone is told as its offset at this moment.  A date of another season is then an hour away from
what a wall clock showed, and is right all the same, because it is printed with this offset.
"""

import posix
import time

Facts = tuple[int, int, bool]  # columns, 0 if not known; seconds east of Greenwich; colours

TERM, FORCE = b"TERM", b"CLICOLOR_FORCE"


def facts() -> Facts:
    return _columns(), time.localtime().tm_gmtoff, _has_colours()


def field() -> bytes:
    """For a frame."""
    return b"w%d %d %d" % facts()


def _columns() -> int:
    """By the kernel; a COLUMNS that is exported counts more, and the daemon knows it."""
    try:
        return posix.get_terminal_size(1).columns
    except OSError:
        return 0


def _has_colours() -> bool:
    """CLICOLOR_FORCE believes in a terminal that calls itself dumb; it makes none of a pipe."""
    environ = posix.environ
    if environ.get(FORCE, b"0") not in (b"", b"0"):
        return True
    return environ.get(TERM, b"dumb") not in (b"", b"dumb")
