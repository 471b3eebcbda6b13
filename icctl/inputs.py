"""The input that a daemon asks for: stdin or a file of the caller.

Whoever writes into a pipe may take as long as it likes.  A pipe that nobody has opened for writing
is waited for as long as the call may take, and no longer.
"""

import posix

EIO = 5
EPIPE = 32  # no read ever fails like this: "nobody writes to it"
# Opening must not wait for anybody, nor take a terminal over.
AT_ONCE = posix.O_RDONLY | posix.O_NONBLOCK | posix.O_NOCTTY | posix.O_CLOEXEC
S_IFMT, S_IFIFO = 0o170000, 0o010000  # the module `stat` has a price


def read(
    kind: bytes, limit: int, path: bytes, *, patience: float
) -> tuple[bytes, bytes, bytes | int]:
    """Kind, path, and content; or for a file the errno that says why not."""
    if kind == b"stdin":
        content = read_all(0, limit)
        return b"s", b"", content if isinstance(content, bytes) else b""
    return b"f", path, read_file(path, limit, patience)


def attach(inputs: list[tuple[bytes, bytes, bytes | int]], fields: list[bytes]) -> bytes:
    """Announce inputs in the fields of a frame; what follows the fields is returned."""
    tail: list[bytes] = []
    for kind, path, content in inputs:
        if isinstance(content, int):
            fields.append(b"x%d:%b" % (content, path))
        else:
            fields.append(b"%b%d:%b" % (kind, len(content), path))
            tail.append(content)
    return b"".join(tail)


def read_file(path: bytes, limit: int, patience: float) -> bytes | int:
    try:
        try:
            fd = posix.open(path, AT_ONCE)
        except BlockingIOError:  # a file that somebody has to give back first, for Samba or NFS
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
