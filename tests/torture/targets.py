"""Run in a process of its own, by its path: what reads input that anybody may send.

A case is a line on stdin: the name of a target, a space, and the input in base64.  The answer is a
line on stdout: `old`, or `new` if the case went where none before it did, or `broken` with a
traceback in JSON.  Whatever is refused is refused by one of our own errors; nothing else is one.
"""

import base64
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any

from icd import config
from icd.cli.invocation import Invocation, Output
from icd.cli.main import plan
from icd.core import cursors, payloads
from icd.errors import IcError
from icd.server import jsonrpc, keyhole
from icd.server.inbox import Inbox

EXITS = (0, 1, 2, 3)
# What is sent in one piece arrives in several.
PIECES = (1, 7, 64, 4096)
# One in so many cases is followed line by line, which takes ten times as long.
TRACED = 4


def frames(data: bytes) -> None:
    inbox = Inbox()
    size = PIECES[len(data) % len(PIECES)]
    try:
        for at in range(0, len(data), size):
            inbox.feed(data[at : at + size])
            while (message := inbox.next()) is not None:
                _message(message)
    finally:
        inbox.close()


def _message(message: bytes | list[bytes]) -> None:
    if isinstance(message, list):
        for line in message:
            lines(line)
        return
    try:
        invocation = keyhole.invocation(message)
    except IcError:
        return
    _judge(invocation)


def lines(data: bytes) -> None:
    found = jsonrpc.decode_line(data)
    for request in found if isinstance(found, list) else [found]:
        if isinstance(request, jsonrpc.Request):
            try:
                method, params = jsonrpc.parameters(request)
                if method.check is not None:
                    method.check(params)
            except IcError as exc:
                jsonrpc.failure(None, exc)


def argv(data: bytes) -> None:
    words = [os.fsdecode(word) for word in data.split(b"\0")]
    _judge(Invocation(words, "/project", time.monotonic() + 5, stdin=b"[1]", env={"HOME": "/"}))


def _judge(invocation: Invocation) -> None:
    found = plan(invocation)
    if isinstance(found, Output):
        if found.bug is not None:
            raise found.bug.__cause__ or found.bug
        assert found.exit in EXITS, f"exit status {found.exit}"
        assert found.stderr or found.exit in (0, 1), "it failed without a word"


def toml(data: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        for path in config.read(file.name, file.name):
            assert all(str(problem) for problem in path.problems)
        config.load(file.name, file.name)


def payload(data: bytes) -> None:
    text = payloads.check(data)
    assert text.encode() == data.strip(), "it is not stored as written"


def cursor(data: bytes) -> None:
    marks = cursors._marks(data.decode("utf-8", "replace"))
    assert all(0 <= getattr(marks, name) < 2**63 for name in marks.__struct_fields__), marks


TARGETS: dict[str, Callable[[bytes], None]] = {
    "frames": frames,
    "lines": lines,
    "argv": argv,
    "toml": toml,
    "payloads": payload,
    "cursors": cursor,
}
OURS = os.path.dirname(os.path.dirname(config.__file__))
seen: set[tuple[int, int]] = set()


def covered(frame: FrameType, _event: str, _argument: Any) -> Any:
    """Called for every function: only ours are followed, line by line."""
    if not frame.f_code.co_filename.startswith(OURS):
        return None
    code = hash(frame.f_code)

    def line(inner: FrameType, _event: str, _argument: Any) -> Any:
        seen.add((code, inner.f_lineno))
        return line

    return line


def answer(name: str, data: bytes, *, traced: bool) -> str:
    before = len(seen)
    sys.settrace(covered if traced else None)
    try:
        TARGETS[name](data)
    except IcError:
        pass
    except BaseException:  # noqa: BLE001 -- whatever it is, it is told
        sys.settrace(None)
        return "broken " + json.dumps(traceback.format_exc())
    finally:
        sys.settrace(None)
    return "new" if len(seen) > before else "old"


if __name__ == "__main__":
    for number, case in enumerate(sys.stdin):
        target, _, encoded = case.partition(" ")
        traced = number % TRACED == 0
        print(answer(target, base64.b64decode(encoded), traced=traced), flush=True)
