"""What the clients of each release send, kept in tests/data/frames: newer daemons must answer it.

A release adds a file for each door, and none is ever changed:

    python -m tests.support.transcripts native >tests/data/frames/0.4.0-native

A file is the frames of COMMANDS, one after the other.  The caller's directory reads `/project` in
them, and their deadline lies beyond any uptime.
"""

import os
import re
import sys
import tempfile
from pathlib import Path

from tests.support.processes import DOORS, icctl
from tests.support.scripted import scripted, through

FRAMES = Path(__file__).parents[1] / "data" / "frames"
DONE = b"0 0 0\n"

# A command line, and the replies that make a client send all it has to.
COMMANDS: list[tuple[tuple[str, ...], list[bytes]]] = [
    (("ping",), [DONE]),
    (("state", "set", "k", "s", "--value=1"), [DONE]),
    (("state", "set", "k", "s"), [b"? stdin 1114112\n", DONE]),
    (("state", "get", "k", "s"), [DONE]),
    (("state", "set", "k", "s", "@x.json"), [b"? file 1114112 6\nx.json", DONE]),
    (("state", "set", "k", "s", "@none"), [b"? file 1114112 4\nnone", DONE]),
    (("sentinel", "check", "stop", "s", "--interval=60"), [DONE]),
    (("sentinel", "check", "stop", "s", "--interval=60"), [DONE]),
    (("compat", "status"), [DONE]),
    (("bogus", "\xe9"), [DONE]),
]
STDIN = b'{"from":"stdin"}'
FILE = b"[1,2]"


def record(door: str, place: Path) -> bytes:
    """All frames that this client sends."""
    (place / "x.json").write_bytes(FILE)
    sent = b""
    for argv, replies in COMMANDS:
        with scripted(place, *replies) as server:
            env = {**through(place), "CLAUDE_SESSION_ID": "session"}
            icctl(*argv, cwd=place, env=env, stdin=STDIN, program=DOORS / door / "icctl")
        sent += b"".join(server.frames)
    return re.sub(
        rb"\0t\d+\0", b"\0t999999999999999\0", sent.replace(os.fsencode(place), b"/project")
    )


def replay(name: str, project: Path) -> list[bytes]:
    """The frames of a file, as a caller in this directory would have sent them."""
    sent = (FRAMES / name).read_bytes().replace(b"/project\0", os.fsencode(project) + b"\0")
    return [b"ic1 " + frame for frame in sent.split(b"ic1 ")[1:]]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as found:
        sys.stdout.buffer.write(record(sys.argv[1], Path(found)))
