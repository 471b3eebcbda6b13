"""Command lines as keyhole frames, without a process for each: what a client sends, and gets."""

import socket
import time
from pathlib import Path
from typing import NamedTuple

from tests.support.processes import PATIENCE, Daemon, read_all


class Reply(NamedTuple):
    """`what`: "exit", "file", "stdin", "local", "&", "error", or "" if the connection was closed."""

    what: str
    exit: int = 0
    stdout: bytes = b""
    stderr: bytes = b""
    then: tuple[str, ...] = ()


def frame(*argv: str, cwd: Path, env: dict[str, str] | None = None) -> bytes:
    deadline = int((time.monotonic() + PATIENCE) * 1000)
    fields = [f"t{deadline}", "nicctl", f"d{cwd}", "c1"]
    fields += [f"e{name}={value}" for name, value in (env or {}).items()]
    fields += [f"a{word}" for word in argv]
    return f"ic1 {len(fields)}\0".encode() + b"".join(f.encode() + b"\0" for f in fields)


def send(daemon: Daemon, data: bytes) -> bytes:
    """All that comes back, until the daemon has nothing more to say."""
    with daemon.connect() as sock:
        try:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
        except ConnectionError:
            pass  # it said no before it had read everything
        return read_all(sock)


def ask(daemon: Daemon, *argv: str, cwd: Path, env: dict[str, str] | None = None) -> Reply:
    return understood(send(daemon, frame(*argv, cwd=cwd, env=env)))


def understood(said: bytes) -> Reply:
    head, _, rest = said.partition(b"\n")
    words = head.decode("utf-8", "replace").split()
    if not words:
        return Reply("")
    if words[0] == "?":
        return Reply(words[1], stdout=rest)
    if words[0] == "!":
        return Reply("local")
    if words[0] == "&":
        out, length = int(words[1]), int(words[3])
        then = tuple(word.decode() for word in rest[len(rest) - length :].split(b"\0")[:-1])
        return Reply("&", stdout=rest[:out], then=then)
    if not words[0].isdigit() or len(words) != 3:
        return Reply("error", stderr=said)
    out = int(words[1])
    return Reply("exit", int(words[0]), rest[:out], rest[out:])
