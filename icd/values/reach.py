"""Whether a daemon may act in the place of a caller, because the caller could do the same itself.

A caller may sit in a sandbox, a container or a chroot: then the same path is another file, process
ids mean others, and the host has another name; or the file is one that the caller itself could not
touch.  A daemon must not lend its reach, so it acts only if the kernel says all of this of a peer:

    - it lives in the daemon's own namespaces and below the same root, so that every path means the
      same to both, now and at each later step, whatever links are on the way;
    - it can gain privileges (no sandbox of Landlock's), and has the daemon's user, groups,
      capabilities, label and filter of system calls.

Whatever cannot be told is a no: the caller's own process does it, as without a daemon.
"""

import os

from icd import procfs

_NAMESPACES = ("mnt", "pid", "user", "uts")
# Of /proc/PID/status: who a process is, and what it may do.
_FREEDOMS = ("Uid", "Gid", "Groups", "CapEff", "Seccomp", "Seccomp_filters")


def is_as_free(peer: int | None) -> bool:
    """Whether nothing confines a process that does not confine us."""
    if not peer:
        return False
    try:
        if not os.path.samestat(os.stat("/"), os.stat(f"/proc/{peer}/root")):
            return False
        spaces = [[os.readlink(f"/proc/{p}/ns/{n}") for n in _NAMESPACES] for p in ("self", peer)]
    except OSError:
        return False
    ours, theirs = procfs.status("self"), procfs.status(peer)
    if spaces[0] != spaces[1] or theirs.get("NoNewPrivs") != "0":
        return False
    if procfs.label("self") != procfs.label(peer):
        return False
    return all(ours.get(name) == theirs.get(name) for name in _FREEDOMS)
