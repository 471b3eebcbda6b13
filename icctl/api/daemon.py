"""The user's own daemon: where it listens, and that it is the user's own.

The same rules as those of `icctl` (icctl/client.py): a socket that another user could have put
there is not used.  What `icctl` says on stderr about such a socket is a warning of Python's here.
"""

import os
import time
import warnings
from socket import socket

from icctl import client
from icctl.client import ABSENT, FORBIDDEN, PATH_BYTES, Absent, Expired
from icctl.messages import why_ignored
from icd.errors import BadPath, Misconfigured, NoDaemon


class Lost(Exception):
    """The connection has ended: what was sent, and not answered, may have been executed."""


class Unread(Lost):
    """The daemon closed the connection before it had read the last of what we sent."""


def mode(given: str | None) -> str:
    found = given or os.environ.get("INTERCORE_MODE") or "auto"
    if found not in {"auto", "daemon", "direct"}:
        told = f"INTERCORE_MODE must be auto, daemon or direct, not {found!r}"
        raise Misconfigured(told, hint="unset it")
    return found


def connect(path: str | None, deadline: float) -> socket:
    """A connection; Absent: there is no daemon; BlockingIOError: it is busy, try again."""
    given = path or os.environ.get("INTERCORE_SOCKET")
    for place in [given] if given else client.sockets():
        if len(os.fsencode(place)) > PATH_BYTES:
            raise BadPath(f"the socket path {place} is too long", hint="use one of 107 bytes")
        try:
            if client.is_ours(place) and (found := client.dial(place, deadline)):
                return socket(fileno=found.detach())
        except BlockingIOError:
            raise
        except TimeoutError:
            raise Expired(client.NOT_SENT) from None
        except OSError as exc:
            if exc.errno in ABSENT or exc.errno in FORBIDDEN:
                continue
            raise NoDaemon(f"cannot connect to {place}: {exc.strerror}") from exc
        what, why = why_ignored(place)
        warnings.warn(f"ignoring the {what}: {why}", RuntimeWarning, stacklevel=2)
    raise Absent


def left(deadline: float) -> float:
    """The seconds that are left; Expired if none are."""
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise Expired(client.NOT_SENT)
    return remaining
