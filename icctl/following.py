"""Going on with another request once what was received has been written.

The daemon cannot see whether anybody has written what it sent; so what depends on it, such as
moving a cursor, is a request of its own, which the reply before it spells out.
"""

import sys

from icctl import client


def go_on(reply: client.Reply, out: bytes, err: bytes, size: bytes) -> client.Answer:
    """Write the rest of a reply; the request that follows, or 0 if nobody reads any more."""
    sizes = [client.number(digits) for digits in (out, err, size)]
    stdout, stderr, words = map(reply.take, sizes)
    if words[-1:] != b"\0":
        raise ValueError
    if not reply.request.deliver(stdout, stderr):
        return 0
    encoding = sys.getfilesystemencoding()
    return following(reply.request, words.decode(encoding, "surrogateescape").split("\0")[:-1])


def following(request: client.Request, argv: list[str]) -> client.Request:
    """Of the same caller, with other arguments."""
    found = type(request)(argv, request.program, request.world)
    found.door = request.door
    return found
