"""What reads input that anybody may send, one function per kind; the argument is the input.

What is refused is refused by one of our own errors; every other exception is a find.  Nothing is
remembered between two inputs, so that one alone does the same again:
`python -m tests.torture.targets KIND FILE…` tries inputs once, and shows a traceback.
"""

import contextlib
import functools
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Callable

import msgspec

from icctl import client
from icd import config, durations
from icd.admin.service import journal
from icd.app import registry, types
from icd.app.invocation import Ask, Output, World
from icd.app.planner import advance, plan
from icd.errors import IcError
from icd.features import interband
from icd.features.compat import files as legacy
from icd.features.coordination import globs
from icd.features.coordination import names as reserved
from icd.features.discoveries import profile as profiles
from icd.features.discoveries import vectors
from icd.features.dispatches.runner import output_files
from icd.features.events import cursors
from icd.features.gates import store as gates
from icd.features.locks import owners
from icd.features.runs import phases
from icd.server.net import argv_frame, jsonrpc
from icd.server.net.framing import Framing, Message
from icd.values import payloads
from tests.torture.scratch import Scratch

# As a command line may end: 69 is a missing database, where the caller asked for that.
EXITS = (0, 1, 2, 3, 69)
# What is sent in one piece arrives in several.
PIECES = (1, 7, 64, 4096)
# A command that goes on is asked again so often.
ASKED = 3

Target = Callable[[bytes], None]


@functools.cache
def scratch() -> Scratch:
    """One for each process: a connection does not outlive a fork."""
    return Scratch()


@functools.cache
def directory() -> str:
    return tempfile.mkdtemp(prefix="target-")


def written(data: bytes) -> str:
    """A file that holds this."""
    path = os.path.join(directory(), "file")
    with open(path, "wb") as file:
        file.write(data)
    return path


# --- what a peer sends to the daemon ---


def frames(data: bytes) -> None:
    inbox = Framing()
    size = PIECES[len(data) % len(PIECES)]
    try:
        for at in range(0, len(data), size):
            inbox.feed(data[at : at + size])
            while (message := inbox.next()) is not None:
                _message(message)
    finally:
        inbox.close()


def _message(message: Message) -> None:
    if isinstance(message, list):
        with scratch().transaction():
            for line in message:
                _line(line)
        return
    with contextlib.suppress(IcError):
        _judge(argv_frame.world(message))


def lines(data: bytes) -> None:
    with scratch().transaction():
        for line in data.replace(b"RUNID", scratch().run_id.encode()).splitlines():
            _line(line)


def _line(data: bytes) -> None:
    found = jsonrpc.decode_line(data)
    for request in found if isinstance(found, list) else [found]:
        if isinstance(request, IcError):
            jsonrpc.failure(None, request)
            continue
        try:
            method, params = jsonrpc.parameters(request)
            if method.check is not None:
                method.check(params)
            if scratch().can_run(method):
                answer = scratch().answer(scratch().call(method, params))
                if answer.error is not None:
                    raise answer.error
                jsonrpc.success(1, answer.result)
        except IcError as exc:
            jsonrpc.failure(None, exc)


def argv(data: bytes) -> None:
    data = data.replace(b"RUNID", scratch().run_id.encode())
    words = [os.fsdecode(word) for word in data.split(b"\0")]
    later = time.monotonic() + 60
    files = dict.fromkeys(("x", "/dev/stdin"), b"\0\0\x80\x3f")
    _judge(World(words, "/project", later, stdin=b"[1]", env={"HOME": "/"}, files=files))


def _judge(invocation: World) -> None:
    """All that a host does with a command line; what only a caller's own process does is left."""
    found = plan(invocation)
    output = found if isinstance(found, Output) else Output(0)
    with scratch().transaction():
        for _ in range(ASKED):
            if isinstance(found, Ask) and scratch().can_run(found.call.method):
                output, found = advance(found, scratch().answer(found.call))
            _judge_output(output)


def _judge_output(output: Output) -> None:
    if output.bug is not None:
        raise output.bug.__cause__ or output.bug
    assert output.exit in EXITS, f"exit status {output.exit}"
    assert output.stderr or output.exit in (0, 1, 69), "it failed without a word"


# --- what a daemon, or whoever listens in its place, sends to a client ---


class Peer:
    """A socket as far as a reply needs one: it says what it has to say, and leaves."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._size = PIECES[len(data) % len(PIECES)]

    def settimeout(self, _seconds: float | None) -> None:
        pass

    def recv(self, size: int) -> bytes:
        size = min(size, self._size)
        said, self._data = self._data[:size], self._data[size:]
        return said


class Silent(client.Request):
    """Prints nothing."""

    def deliver(self, out: bytes, err: bytes) -> bool:
        assert isinstance(out + err, bytes)
        return True


def replies(data: bytes) -> None:
    peer, later = Peer(data), time.monotonic() + 60
    reply = client.Reply(Silent(["x"], "icctl", []), peer, later, sent=True)  # type: ignore[arg-type]
    # The first two are what `client.ask` takes for a reply that is none.
    with contextlib.suppress(ValueError, TypeError, client.GiveUp, client.Lost, client.Absent):
        answer = reply.read()
        if isinstance(answer, int):
            assert 0 <= answer <= 255, f"exit status {answer}"
        elif isinstance(answer, tuple):
            assert answer[1] <= client.PART_BYTES, f"{answer[1]} bytes are asked for"


# --- what people and programs write ---


def toml(data: bytes) -> None:
    path = written(data)
    for file in config.read(path, path):
        assert all(str(problem) for problem in file.problems)
    config.load(path, path)


def payload(data: bytes) -> None:
    text = payloads.check(data)
    assert text.encode() == data.strip(), "it is not stored as written"


def cursor(data: bytes) -> None:
    marks = cursors._marks(data.decode("utf-8", "replace"))
    assert all(0 <= getattr(marks, name) < 2**63 for name in marks.__struct_fields__), marks


def words(data: bytes) -> None:
    """Durations, numbers and variables of the environment."""
    text = os.fsdecode(data)
    for kind in (
        types.DURATION,
        types.SPAN,
        types.SCORE,
        types.Whole(0, 2**62),
        types.Seconds(0, 2**62),
        types.TRUTH,
    ):
        with contextlib.suppress(ValueError):
            kind.read(text)
    asked, waits = durations.duration_ms(text), client.timeout_ms([f"--timeout={text}"])
    limit = asked if asked is not None and asked > 0 else client.DEFAULT_MS
    assert waits == min(limit, client.MAX_MS), f"a client waits {waits} ms, not {limit}"
    environment = dict.fromkeys(config.VARIABLES.values(), text)
    assert all(str(problem) for problem in config.check_environment(environment))
    config.from_environment(environment)


def documents(data: bytes) -> None:
    """JSON and vectors that become a part of the database, each with rules of its own."""
    text = os.fsdecode(data)
    for check in (gates.parse, phases.parse):
        with contextlib.suppress(IcError):
            check(text)
    for parse in (profiles.check_keywords, vectors.parse):
        with contextlib.suppress(IcError):
            parse(data)
    profiles.parse_weights(profiles.check_weights(data))


def patterns(data: bytes) -> None:
    """Of reservations: two on two lines.  What is compared ends, and is the same both ways."""
    one, _, other = os.fsdecode(data).partition("\n")
    here = reserved.Place("/project", "/project")
    found = []
    for text in (one, other):
        found += [
            read(text, here)
            for read in (reserved.pattern, reserved.path)
            if _is_taken(read, text, here)
        ]
    for a, b in itertools.product(found, repeat=2):
        both = [globs.overlap(x, y, globs.Budget()) for x, y in ((a, b), (b, a))]
        assert both[0] == both[1], f"{a.text!r} and {b.text!r} overlap one way only"
        assert a is not b or both[0], f"{a.text!r} matches nothing"
    for each in found:
        reserved.check_stored(each.text)


def _is_taken(read: Callable[..., object], text: str, here: reserved.Place) -> bool:
    try:
        read(text, here)
    except IcError:
        return False
    return True


@functools.cache
def _here() -> owners.Here:
    return owners.here()


def left(data: bytes) -> None:
    """Files that an agent, the holder of a lock or another program has left."""
    path = os.fsencode(written(data))
    output_files.PROGRESS = os.fsdecode(path)
    here = _here()
    owner = owners.decode(data)
    if owner is not None:
        owners.liveness(owner, here)
        owners.is_same(owner, owners.named(owner.owner, 1, here, 1))
        msgspec.json.encode(owner)
    output_files.verdict(path, None)
    output_files.tokens(path, None)
    output_files.progress(1)
    interband.read_mark(data)
    with contextlib.suppress(legacy.Unfit):
        legacy.unwrapped(data)
    said = data.decode("utf-8", "replace")
    entry = msgspec.json.encode({"MESSAGE": said, "__REALTIME_TIMESTAMP": "1800000000000000"})
    for show in (journal.as_text, journal.as_json):
        assert show(entry.decode()) is not None, "a line of the journal is lost"


def taken_in(data: bytes) -> None:
    """A file of lines: an export, or discoveries."""
    path = written(data)
    given = {"dump.import": {}, "discovery.submit_file": {"source": "s", "dedup_threshold": 0.5}}
    for name, options in given.items():
        method = registry.find(name)
        assert method is not None
        with scratch().transaction():
            scratch().answer(scratch().call(method, method.params(file=path, **options)))


FUNCTIONS: dict[str, Target] = {
    "frames": frames,
    "lines": lines,
    "argv": argv,
    "replies": replies,
    "toml": toml,
    "payloads": payload,
    "cursors": cursor,
    "words": words,
    "documents": documents,
    "patterns": patterns,
    "left": left,
    "taken-in": taken_in,
}


def _refusing(target: Target) -> Target:
    def attempt(data: bytes) -> None:
        with contextlib.suppress(IcError):
            target(data)

    return attempt


TARGETS = {kind: _refusing(target) for kind, target in FUNCTIONS.items()}


if __name__ == "__main__":  # KIND FILE…: try these inputs once
    for name in sys.argv[2:]:
        with open(name, "rb") as file:
            TARGETS[sys.argv[1]](file.read())
