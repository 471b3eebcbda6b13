"""Continue where the native client, or a shell's helper, stopped.

INTERCORE_HANDOVER is private to the programs of one installation:
`REASON ID LIMIT_MS DEADLINE_MS FD DOOR PROGRAM`.  The id is that of the request, so that what may
have been executed is not executed again; the deadline is a moment of CLOCK_MONOTONIC.  FD, unless
it is -1, holds the input that was read already: the number of its fields, these, and the bytes.
A field `l` tells what the runner of an agent has reported (icctl/spawn.c).

Reasons
    -  nothing was tried
    a  no daemon executed it              l  a daemon may have executed it, and left
    e  the deadline passed, not sent      u  the deadline passed, sent
    w  its output could not be written    n  the reply made no sense
    b  a stream broke
"""

import posix
import sys
import time

from icctl import client

ENDINGS = {"e": "late", "u": "unknown", "w": "unwritable", "n": "nonsense", "b": "broken"}
# The native client reads up to six digits of minutes, and a lock may be waited for so long.
LONGEST_MS = 999_999 * 60_000 + client.DEFAULT_MS
REASONS = {"-", "a", "l", *ENDINGS}


def accept() -> "Handover | None":
    """What was handed over, if it is well-formed; no program that we start shall find it."""
    words = posix.environ.pop(client.HANDOVER).split(b" ", 6)
    posix.unsetenv(client.HANDOVER)
    try:
        encoding = sys.getfilesystemencoding()
        reason, request_id, limit, deadline, fd, door, program = (
            word.decode(encoding, "surrogateescape") for word in words
        )
        limit_s = min(int(limit), LONGEST_MS) / 1000
        latest = time.monotonic() + limit_s
        found = Handover(reason, request_id, limit_s, min(int(deadline) / 1000, latest), program)
        found.door = f"{door}, handed over to the python client".encode()
        found.inputs = read_inputs(int(fd)) if int(fd) >= 0 else []
    except (ValueError, IndexError, OSError, OverflowError):
        return None
    return found if reason in REASONS else None


class Handover:
    def __init__(
        self, reason: str, request_id: str, limit: float, deadline: float, program: str
    ) -> None:
        self.reason = reason
        self.id = request_id
        self.limit = limit
        self.deadline = deadline
        self.program = program
        self.door = b""
        self.inputs: list[client.Input] = []

    def resume(self, argv: list[str]) -> int:
        if self.reason in ENDINGS:
            sent = client.Request(argv, self.program, [])
            sent.inputs = self.inputs
            raise client.GiveUp(ENDINGS[self.reason], self.limit, sent)
        request = client.Request(argv, self.program, client.world(), self.door)
        request.began = self.deadline - self.limit
        if self.reason == "-":
            return client.run(request)
        request.id = self.id
        request.inputs = self.inputs
        alone = client.chosen_mode(client.typed(argv)[0]) == b"daemon"
        unknown = self.reason == "l"
        return client.insist(request, self.limit, self.deadline, alone=alone, unknown=unknown)


def read_inputs(fd: int) -> list[client.Input]:
    parts = []
    while data := posix.read(fd, 1 << 20):
        parts.append(data)
    posix.close(fd)
    count, _, rest = b"".join(parts).partition(b"\0")
    *fields, rest = rest.split(b"\0", int(count))
    inputs: list[client.Input] = []
    for field in fields:
        kind, (size, _, path) = field[:1], field[1:].partition(b":")
        if kind == b"l":
            inputs.append((kind, field[1:], b""))
        elif kind == b"x":
            inputs.append((b"f", path, int(size)))
        else:
            inputs.append((kind, path, rest[: int(size)]))
            rest = rest[int(size) :]
    return inputs
