"""Whether a daemon may act for a caller on a directory of locks: it must lend its reach to nobody.

A caller may sit in a sandbox, a container or a chroot: then the same path is another directory,
process ids mean others, and the host has another name; or the directory is one that the caller
itself could not touch.  So the daemon acts only if the kernel says all of this about the peer:

    - it sees the same processes and the same host name as the daemon;
    - it sees the same `BASE/.work`, which only a process that may make locks there has made;
    - who it says has started it is its parent; the child that it names is its own.

Whatever cannot be told is a no: then the caller's own process does it, as without a daemon.
"""

import os

from icd import procfs
from icd.features.locks.directory import Place

_NAMESPACES = ("pid", "uts")


def is_within(place: Place, peer: int | None, parent: int | None, child: int | None = None) -> bool:
    """Whether what a peer asks for is what it could do itself."""
    if not peer or not parent:
        return False
    found = procfs.stat(peer)
    if found is None or found.parent != parent:
        return False
    return _is_parent(peer, child) and _sees_the_same(peer, place.work)


def _is_parent(peer: int, child: int | None) -> bool:
    found = procfs.stat(child) if child else None
    return child is None or (found is not None and found.parent == peer)


def _sees_the_same(peer: int, directory: str) -> bool:
    try:
        ours, theirs = os.lstat(directory), os.lstat(f"/proc/{peer}/root{directory}")
        return os.path.samestat(ours, theirs) and all(
            os.readlink(f"/proc/self/ns/{kind}") == os.readlink(f"/proc/{peer}/ns/{kind}")
            for kind in _NAMESPACES
        )
    except OSError:
        return False
