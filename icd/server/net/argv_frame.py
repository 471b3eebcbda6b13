"""The argv frame: a command line as raw bytes, without quoting and without JSON.

Request   `ic1 N` NUL, then N fields, each a letter and a value and NUL, then attachments:
          i request id · t deadline in milliseconds of CLOCK_MONOTONIC · n program ·
          v which client sends this · r its version · d directory · p parent's pid ·
          b when it began, in the same clock · h the pid of its child ·
          l that it knows `@`, and what a program that it has launched reports ·
          c whether it knows `&` · y which of 0 1 2 are terminals ·
          w COLUMNS OFFSET COLOUR of the terminal that is stdout · e NAME=VALUE · a argument ·
          s LENGTH: (stdin follows) · f LENGTH:PATH (a file follows) · x ERRNO:PATH (unreadable)
Reply     `EXIT OUT ERR` newline and OUT + ERR raw bytes;
          `+ OUT ERR` newline and bytes: more follows;
          `& OUT ERR LENGTH` newline and bytes, then LENGTH bytes of arguments, each ended by NUL:
          once all is written, send a new request with these;
          `* LENGTH LENGTH` newline and bytes of arguments, each ended by NUL: let the child become
          the first of them; once it has ended, send a new request with the second;
          `@ LENGTH LENGTH ERR` newline and bytes of arguments, each ended by NUL, of a job, and for
          stderr: launch the program of these arguments, give it the job, and send the request again
          with the last argument and the report, a space between them;
          `? stdin LIMIT` or `? file LIMIT LENGTH` newline and PATH: send this and ask again;
          `! local`: run it in your own process.

Letters that are not known here are ignored, so that newer clients can talk to older daemons.
"""

import os
import time
from typing import NamedTuple

from icd.app.call import DEFAULT_DEADLINE_MS
from icd.app.idempotency import MAX_DEADLINE_MS
from icd.app.invocation import MOST_COLUMNS, Need, Output, Terminal, World, why_not
from icd.errors import IcError, InvalidRequest
from icd.features.daemon.verbs import PROTOCOL, no_common_protocol
from icd.server import limits

MAGIC = b"ic%d" % PROTOCOL
ERRNO = 4095  # the kernel's largest
HEAD_BYTES = 16  # room for a number of fields beyond the limit
VERSION_CHARACTERS = 32  # longer than any that a packager would accept


class Frame(NamedTuple):
    """A complete request: all of it, its fields, and what is attached to them."""

    raw: bytes
    fields: list[bytes]
    attachments: bytes


def split(buffer: bytes | bytearray) -> Frame | None:
    """The frame that starts the buffer, or None if it is not complete yet."""
    count = _count(buffer)
    if count is None:
        return None
    whole = bytes(buffer)
    parts = whole.split(b"\0", count + 1)
    if len(parts) < count + 2:
        return None
    fields, rest = parts[1:-1], parts[-1]
    attached = 0
    for field in fields:
        if field[:1] in (b"s", b"f"):
            attached += _length(field)
    if attached > limits.MESSAGE_BYTES:
        raise InvalidRequest(f"attachments too large: {attached} bytes")
    left = len(rest) - attached
    if left < 0:
        return None
    return Frame(whole[:-left] if left else whole, fields, rest[:attached])


def world(frame: Frame) -> World:
    """Read the caller's world from a complete frame."""
    now = time.monotonic()
    found = World(argv=[], cwd="/", deadline=now + DEFAULT_DEADLINE_MS / 1000, continues=False)
    attachments = frame.attachments
    for field in frame.fields:
        letter, value = field[:1], field[1:]
        if letter == b"a":
            found.argv.append(os.fsdecode(value))
        elif letter == b"e":
            name, _, text = value.partition(b"=")
            found.env[os.fsdecode(name)] = os.fsdecode(text)
        elif letter in (b"s", b"f"):
            size = _length(field)
            content, attachments = attachments[:size], attachments[size:]
            if letter == b"s":
                found.stdin = content
            else:
                found.files[_path(value)] = content
        elif letter == b"x":
            found.files[_path(value)] = why_not(min(_length(field), ERRNO))
        elif letter == b"t":
            found.deadline = min(_number(value) / 1000, now + MAX_DEADLINE_MS / 1000)
        elif letter == b"p":
            found.pid = _number(value)
        elif letter == b"b":
            found.began = min(_number(value) / 1000, now)
        else:
            _set(found, letter, value)
    return found


def _set(found: World, letter: bytes, value: bytes) -> None:
    if letter == b"i":
        found.request_id = value.decode("ascii", "replace")[:64]
    elif letter == b"n":
        found.program = value.decode("utf-8", "backslashreplace")[:64]
    elif letter == b"v":
        found.door = value.decode("utf-8", "backslashreplace").replace("-", " ")[:64]
    elif letter == b"r":
        found.client_version = _version(value)
    elif letter == b"h":
        found.child = _number(value)
    elif letter == b"l":
        found.launches, found.launched = True, os.fsdecode(value)
    elif letter == b"c":
        found.continues = value == b"1"
    elif letter == b"y":
        found.is_terminal = value[2:3] == b"1"
    elif letter == b"w":
        found.terminal = _terminal(value)
    elif letter == b"d":
        found.cwd = os.fsdecode(value)
        if not found.cwd.startswith("/"):
            raise InvalidRequest("the directory in a frame must be absolute")


def _terminal(value: bytes) -> Terminal | None:
    """`COLUMNS OFFSET COLOUR`; what is no terminal gets what a pipe gets."""
    try:
        width, offset, colour = map(int, value.split(b" "))
    except ValueError:
        return None
    if not (0 <= width <= 0xFFFF and abs(offset) <= 86_400):
        return None
    return Terminal(min(width or 80, MOST_COLUMNS), offset, bool(colour))


def reply(answer: Output | Need) -> bytes:
    if isinstance(answer, Output) and answer.declined:
        return b"! local\n"
    if isinstance(answer, Output) and answer.grant is not None:
        command, then = _words(answer.grant.command), _words(answer.grant.then)
        return f"* {len(command)} {len(then)}\n".encode() + command + then
    if isinstance(answer, Output) and answer.launch is not None:
        words, job = _words(answer.launch.argv), answer.launch.job
        head = f"@ {len(words)} {len(job)} {len(answer.stderr)}\n"
        return head.encode() + words + job + answer.stderr
    if isinstance(answer, Output) and answer.then:
        words = _words(answer.then)
        head = f"& {len(answer.stdout)} {len(answer.stderr)} {len(words)}\n"
        return head.encode() + answer.stdout + answer.stderr + words
    if isinstance(answer, Output):
        head = f"{answer.exit} {len(answer.stdout)} {len(answer.stderr)}\n"
        return head.encode() + answer.stdout + answer.stderr
    if answer.what == "local":
        return b"! local\n"
    if answer.what == "stdin":
        return f"? stdin {answer.limit}\n".encode()
    path = os.fsencode(answer.path)
    return f"? file {answer.limit} {len(path)}\n".encode() + path


def _words(argv: list[str]) -> bytes:
    return b"".join(os.fsencode(word) + b"\0" for word in argv)


def chunk(output: Output) -> bytes:
    """A part of the output of a command that goes on."""
    head = f"+ {len(output.stdout)} {len(output.stderr)}\n"
    return head.encode() + output.stdout + output.stderr


def _count(buffer: bytes | bytearray) -> int | None:
    head, end, _ = bytes(buffer[:HEAD_BYTES]).partition(b"\0")
    word, space, digits = head.partition(b" ")
    if space and word != MAGIC:
        raise _other(word)
    if not end:
        if len(buffer) >= HEAD_BYTES:
            raise InvalidRequest("a frame starts with 'ic1 N' and NUL")
        return None
    if not digits.isdigit() or not 0 < int(digits) <= limits.FIELDS:
        raise InvalidRequest(f"a frame has 1 to {limits.FIELDS} fields")
    return int(digits)


def _other(word: bytes) -> IcError:
    """Refuse a frame at its first word: how a frame of another kind goes on is unknown."""
    if word[:2] == b"ic" and word[2:].isdigit():
        return no_common_protocol([int(word[2:])])
    return InvalidRequest("a frame starts with 'ic1 N' and NUL")


def _length(field: bytes) -> int:
    return _number(field[1:].partition(b":")[0])


def _version(value: bytes) -> str:
    """The version that a client says it has; empty if it is not fit to be shown to people."""
    text = value.decode("latin-1")
    fits = len(text) <= VERSION_CHARACTERS and text.isascii() and text.isprintable()
    return text if fits else ""


def _path(value: bytes) -> str:
    return os.fsdecode(value.partition(b":")[2])


def _number(digits: bytes) -> int:
    if not digits.isdigit() or len(digits) > 15:
        raise InvalidRequest("malformed number in frame")
    return int(digits)
