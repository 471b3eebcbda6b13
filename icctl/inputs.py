"""The input that a daemon asks for: stdin or a file of the caller."""

import posix

EIO = 5


def read(kind: bytes, limit: int, path: bytes) -> tuple[bytes, bytes, bytes | int]:
    """Kind, path, and content; or for a file the errno that says why not."""
    if kind == b"stdin":
        content = read_all(0, limit)
        return b"s", b"", content if isinstance(content, bytes) else b""
    return b"f", path, read_file(path, limit)


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


def read_file(path: bytes, limit: int) -> bytes | int:
    try:
        fd = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
    except OSError as exc:
        return exc.errno or EIO
    try:
        return read_all(fd, limit)
    finally:
        posix.close(fd)


def read_all(fd: int, limit: int) -> bytes | int:
    """Everything up to just past the limit, so that "too large" can be told from "just fits"."""
    parts: list[bytes] = []
    size = 0
    while size <= limit:
        try:
            data = posix.read(fd, min(1 << 20, limit + 1 - size))
        except OSError as exc:
            return exc.errno or EIO
        if not data:
            break
        parts.append(data)
        size += len(data)
    return b"".join(parts)
