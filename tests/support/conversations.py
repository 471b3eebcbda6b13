"""What clients of each release sent and were answered, kept in tests/data/transcripts.

Every daemon after it must answer the same.  A release adds its files, and none is ever changed:

    python -m tests.support.conversations json-rpc >tests/data/transcripts/0.4.0-json-rpc
    python -m tests.support.conversations native   >tests/data/transcripts/0.4.0-native
    python -m tests.support.conversations python   >tests/data/transcripts/0.4.0-python

`> ` is a request and `< ` its reply; keyhole frames are written with escapes, and JSON as it is.
A word in «guillemets» stands for what may differ:

- `«project»` is the caller's directory;
- `«time»`, `«pid»`, `«version»`, `«len»` and `«any»` are what their names say;
- what errors say is for people, and may be said better: `«any»`, while their names and codes stay;
- any other word is an id that the daemon makes up: what it is at first, it is ever after.

Replies to frames are compared byte for byte; results of JSON-RPC may have more members than they
had, as docs/protocol.md says, and every member that was there has the value that it had.
"""

import contextlib
import json
import os
import re
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from icd import __version__
from tests.support import examples
from tests.support.conversation_steps import CALLS, LINES, Call
from tests.support.processes import DOORS, Daemon, icctl, read_all, running
from tests.support.scripted import read_frame

TRANSCRIPTS = Path(__file__).parents[1] / "data" / "transcripts"

Exchange = tuple[str, str]
Names = dict[str, str]

_MARK = re.compile(r"«([a-z0-9_]+)»")
_PASSING = {"time": r"\d+", "pid": r"\d+", "version": r"[\w.+-]+", "len": r"\d+", "any": r".*?"}
# A caller that is gone: pids are below that.
_NOBODY = b"4194305"
_TIME = re.compile(r"(?<![\d.])1[6-9]\d{8}(\d{3})?(?![\d.])")
# Moments, stamps, sizes, times to wait and the list of commands, which grows.
_ANY = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z|(?<=backup-)\d{8}-\d{6}"
    r"|\d+(?= bytes before)|(?<=before, )\d+|(?<=for another )\w+|(?<=\"retry_after\":)\d+"
    r"|\d+s(?= ago)|(?<=Usage: ).*"
)
_SCHEMA = re.compile(r"(?<=schema v)\d+|(?<=schema: v)\d+|(?<=\"schema\":)\d+")
_UID = re.compile(r"(?<=\"uid\":)\d+")
# In the first line of a reply that asks for input or goes on; the limit of inputs is none.
_LENGTH = re.compile(r"\b(?!1114112\b)\d+\b")
# Members of results that are about the machine, the daemon or what there is by now.
_PASSING_MEMBERS = {
    *("methods", "capabilities", "sqlite", "databases", "bytes", "bytes_before", "bytes_after"),
    *("schema", "retry_after", "left_ms", "info", "components", "sqlite_version"),
    *("message", "hint", "stderr"),  # for people: the error's name and code are the contract
}


# --- the files ---


def read(name: str) -> list[Exchange]:
    lines = [line for line in (TRANSCRIPTS / name).read_text("utf-8").split("\n") if line]
    assert all(line.startswith(("> ", "< ")[i % 2]) for i, line in enumerate(lines))
    return [(sent[2:], got[2:]) for sent, got in zip(lines[::2], lines[1::2], strict=True)]


def write(exchanges: list[Exchange]) -> None:
    for sent, received in exchanges:
        print(f"> {sent}", f"< {received}", "", sep="\n")


def escaped(data: bytes) -> str:
    return data.decode("latin-1").encode("unicode_escape").decode("ascii")


def _unescaped(text: str) -> bytes:
    return text.encode("ascii").decode("unicode_escape").encode("latin-1")


def _filled(text: str, names: Names) -> str:
    return _MARK.sub(lambda mark: names[mark[1]], text)


# --- asking ---


def ask_frame(daemon: Daemon, sent: str, names: Names) -> str:
    with daemon.connect() as sock:
        sock.sendall(_unescaped(_filled(sent, names)))
        sock.shutdown(socket.SHUT_WR)
        return escaped(read_all(sock))


def ask_json(daemon: Daemon, sent: str, names: Names) -> str:
    """The reply; of a stream, the first notification."""
    with daemon.connect() as sock:
        sock.sendall(_filled(sent, names).encode() + b"\n")
        with sock.makefile("rb") as lines:
            return lines.readline().decode().rstrip("\n")


# --- comparing ---


def match_frame(old: str, new: str, names: Names) -> bool:
    """Byte for byte, but for marks; learns the ids that are new."""
    pattern, last = "", 0
    learnt: list[str] = []
    for mark in _MARK.finditer(old):
        pattern += re.escape(old[last : mark.start()]) + _pattern(mark[1], names, learnt)
        last = mark.end()
    found = re.fullmatch(pattern + re.escape(old[last:]), new, re.DOTALL)
    if found:
        names.update({name: found[name] for name in learnt})
    return found is not None


def _pattern(name: str, names: Names, learnt: list[str]) -> str:
    if name in _PASSING:
        return _PASSING[name]
    if name in names:
        return re.escape(names[name])
    if name in learnt:
        return f"(?P={name})"
    learnt.append(name)
    return f"(?P<{name}>[a-z0-9]+)"


def match_json(old: str, new: str, names: Names) -> bool:
    return _holds(json.loads(old), json.loads(new), names)


def _holds(old: Any, new: Any, names: Names) -> bool:
    if isinstance(old, dict):
        return isinstance(new, dict) and all(
            name in new and _holds(value, new[name], names) for name, value in old.items()
        )
    if isinstance(old, list):
        return (
            isinstance(new, list)
            and len(old) == len(new)
            and all(_holds(a, b, names) for a, b in zip(old, new, strict=True))
        )
    if isinstance(old, str) and _MARK.search(old):
        return old == "«any»" or match_frame(old, str(new), names)
    return bool(type(old) is type(new) and old == new)


# --- recording ---


def recorded_calls(steps: list[Call]) -> Iterator[Call]:
    """The steps, and what only the examples of a row call: a new verb needs no step."""
    yield from steps
    known = {method for method, _, _ in steps}
    for method, params in examples.calls():
        if method not in known:
            yield method, {**params, "cwd": "«project»"}, {}


def record_json(daemon: Daemon, project: Path) -> list[Exchange]:
    names, found = {"project": str(project)}, []
    for number, (method, params, learns) in enumerate(recorded_calls(CALLS), start=1):
        request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        sent = _compact(request)
        reply = json.loads(ask_json(daemon, sent, names))
        names.update({name: reply["result"][key] for name, key in learns.items()})
        if method == "icd.status":
            reply["result"] = dict.fromkeys(reply["result"], "«any»")
        found.append((sent, _compact(_marked_json(reply, names))))
    return found


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _marked_json(value: Any, names: Names, key: str = "") -> Any:
    if key in _PASSING_MEMBERS:
        return "«any»"
    if isinstance(value, dict):
        return {name: _marked_json(inner, names, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [_marked_json(inner, names) for inner in value]
    if isinstance(value, bool) or value is None:
        return value
    if key.endswith(("pid", "uid")) and isinstance(value, int):
        return "«pid»"
    return _marked_number(value) if isinstance(value, (int, float)) else _marked(value, names)


def _marked_number(value: float) -> Any:
    return "«time»" if _TIME.fullmatch(str(value)) else value


def _marked(text: str, names: Names) -> str:
    for name, value in sorted(names.items(), key=lambda item: -len(item[1])):
        text = re.sub(rf"(?<![a-z0-9]){re.escape(value)}(?![a-z0-9])", f"«{name}»", text)
    text = _UID.sub("«pid»", _TIME.sub("«time»", _ANY.sub("«any»", text)))
    return _SCHEMA.sub("«version»", text).replace(__version__, "«version»")


class Relay(threading.Thread):
    """Between a client and the daemon; keeps what the client sends."""

    def __init__(self, path: str, daemon: Daemon) -> None:
        super().__init__(daemon=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(16)
        self._daemon = daemon
        self.passed: list[tuple[bytes, bytes]] = []

    def run(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                with client, self._daemon.connect() as server:
                    frame = read_frame(client)
                    server.sendall(frame)
                    server.shutdown(socket.SHUT_WR)
                    reply = read_all(server)
                    self.passed.append((frame, reply))
                    client.sendall(reply)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def sent_by(door: str, daemon: Daemon, project: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The frames that a client sends, with marks; and what their replies teach."""
    relay = Relay(str(project / "relay"), daemon)
    relay.start()
    env = {"INTERCORE_SOCKET": str(project / "relay"), "INTERCORE_MODE": "daemon"}
    names = {"project": str(project)}
    for line, stdin, learns in LINES:
        before = len(relay.passed)
        argv = [_filled(word, names) for word in line.split()]
        full = {**env, "CLAUDE_SESSION_ID": "session"}
        icctl(*argv, cwd=project, env=full, stdin=stdin, program=DOORS / door / "icctl")
        exchanges = relay.passed[before:]
        for number, (frame, reply) in enumerate(exchanges):
            yield _marked_frame(frame, names), learns if number == len(exchanges) - 1 else {}
            for name, pattern in learns.items():
                if found := re.search(pattern.encode(), reply):
                    names[name] = found[1].decode()
    relay.close()


def _marked_frame(frame: bytes, names: Names) -> str:
    frame = re.sub(rb"\0t\d+\0", b"\0t999999999999999\0", frame)
    frame = re.sub(rb"\0p\d+\0", b"\0p" + _NOBODY + b"\0", frame)
    head, zero, rest = frame.partition(b"\0")
    text = escaped(rest)
    for name, value in sorted(names.items(), key=lambda item: -len(item[1])):
        text = text.replace(value, f"«{name}»")
    return escaped(head + zero) + text


def record_frames(
    frames: list[tuple[str, dict[str, str]]], daemon: Daemon, project: Path
) -> list[Exchange]:
    names, found = {"project": str(project)}, []
    for sent, learns in frames:
        reply = ask_frame(daemon, sent, names)
        for name, pattern in learns.items():
            if learnt := re.search(pattern.encode(), _unescaped(reply)):
                names[name] = learnt[1].decode()
        found.append((sent, _marked_reply(reply, names, daemon)))
    return found


def _marked_reply(reply: str, names: Names, daemon: Daemon) -> str:
    """What goes to stderr is for people: only that there is something."""
    head, line, body = reply.partition("\\n")
    if not re.fullmatch(r"\d+ \d+ \d+", head):
        marked = _marked(body, names)
        return (head if marked == body else _LENGTH.sub("«len»", head)) + line + marked
    status, size, rest = head.split()
    data = _unescaped(body)
    out, told = escaped(data[: int(size)]), data[int(size) :]
    marked = re.sub(rf"\b{daemon.pid}\b", "«pid»", _marked(out, names))
    size = size if marked == out else "«len»"
    return f"{status} {size} {'«len»' if told else rest}{line}{marked}{'«any»' if told else ''}"


def rooted(place: Path, name: str) -> Path:
    project = place / name
    (project / ".git").mkdir(parents=True)
    return project


def _main(kind: str) -> None:
    with tempfile.TemporaryDirectory(prefix="ic-", dir="/tmp") as found:
        place = Path(os.path.realpath(found))
        if kind == "json-rpc":
            with running() as daemon:
                write(record_json(daemon, rooted(place, "p")))
            return
        with running() as daemon:
            frames = list(sent_by(kind, daemon, rooted(place, "p")))
        with running() as daemon:
            write(record_frames(frames, daemon, rooted(place, "q")))


if __name__ == "__main__":
    _main(sys.argv[1])
