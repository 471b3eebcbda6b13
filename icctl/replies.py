"""Replies that do not end a call: the daemon asks for input, or another request follows.

The input is stdin or a file of the caller.  The writer of a pipe may take as long as it likes.  A
pipe without a writer is waited for as long as the call may take, and no longer.
"""

import posix
import sys

from icctl.client import Answer, Input, Need, Reply, number

EIO = 5
EPIPE = 32  # no read ever fails like this: the pipe has no writer
# Opening must not wait, nor take a terminal over.
AT_ONCE = posix.O_RDONLY | posix.O_NONBLOCK | posix.O_NOCTTY | posix.O_CLOEXEC
S_IFMT, S_IFIFO = 0o170000, 0o010000  # the module `stat` has a price


def need(reply: Reply, kind: bytes, limit: bytes, *size: bytes) -> Need:
    """`? stdin LIMIT`, or `? file LIMIT SIZE` and the path."""
    if (kind, len(size)) not in {(b"stdin", 0), (b"file", 1)}:
        raise ValueError
    return kind, number(limit), b"".join(reply.take(number(word)) for word in size)


def follow(reply: Reply, out: bytes, err: bytes, size: bytes) -> Answer:
    """`& OUT ERR WORDS`: write the rest of the reply, then go on with the request it spells out.

    The daemon cannot see whether what it sent was written; so what depends on that, such as moving
    a cursor, is a request of its own.
    """
    sizes = [number(digits) for digits in (out, err, size)]
    stdout, stderr, words = map(reply.take, sizes)
    if words[-1:] != b"\0":
        raise ValueError
    request = reply.request
    if not request.deliver(stdout, stderr):
        return 0  # its reader has left
    argv = words[:-1].decode(sys.getfilesystemencoding(), "surrogateescape").split("\0")
    return type(request)(argv, request.program, request.world, request.door)


def read(kind: bytes, limit: int, path: bytes, *, patience: float) -> Input:
    """Kind, path, and content; or for a file the errno that says why not."""
    if kind == b"stdin":
        content = read_all(0, limit)
        return b"s", b"", content if isinstance(content, bytes) else b""
    return b"f", path, read_file(path, limit, patience)


def attach(inputs: list[Input], fields: list[bytes]) -> bytes:
    """Announce inputs in the fields of a frame; what follows the fields is returned."""
    tail: list[bytes] = []
    for kind, path, content in inputs:
        if kind == b"l":
            fields.append(kind + path)
        elif isinstance(content, int):
            fields.append(b"x%d:%b" % (content, path))
        else:
            fields.append(b"%b%d:%b" % (kind, len(content), path))
            tail.append(content)
    return b"".join(tail)


def read_file(path: bytes, limit: int, patience: float) -> bytes | int:
    try:
        try:
            fd = posix.open(path, AT_ONCE)
        except BlockingIOError:  # a lease of Samba or NFS has to be given back first
            fd = posix.open(path, AT_ONCE & ~posix.O_NONBLOCK)
    except OSError as exc:
        return exc.errno or EIO
    try:
        is_pipe = posix.fstat(fd).st_mode & S_IFMT == S_IFIFO
        return read_all(fd, limit, in_vain=is_pipe and not wait(fd, patience))
    finally:
        posix.close(fd)


def read_all(fd: int, limit: int, *, in_vain: bool = False) -> bytes | int:
    """Everything up to just past the limit, so that "too large" can be told from "just fits".

    `in_vain`: no writer of a pipe was heard of, and if it ends now, there is none.
    """
    parts: list[bytes] = []
    size = 0
    while size <= limit:
        try:
            data = posix.read(fd, min(1 << 20, limit + 1 - size))
        except BlockingIOError:  # there is a writer, and it takes its time
            wait(fd, None)
            in_vain = False
            continue
        except OSError as exc:
            return exc.errno or EIO
        if not data:
            return EPIPE if in_vain else b"".join(parts)
        parts.append(data)
        size += len(data)
        in_vain = False
    return b"".join(parts)


def wait(fd: int, seconds: float | None) -> bool:
    """Whether there is something to read, or a writer has come and gone."""
    import select  # a file never waits

    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(None if seconds is None else seconds * 1000))
