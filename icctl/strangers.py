"""Why a socket is not used: another user could have put it, or its directory, there."""

import posix

from icctl.client import OTHERS_WRITE, S_IFDIR, S_IFMT, S_IFSOCK, STICKY, say

S_IFLNK = 0o120000
# Those that were told: a call may try many times, and a person reads it once.
_told: set[str] = set()


def tell(path: str, program: str) -> None:
    if path not in _told:
        _told.add(path)
        what, why = reason(path)
        say(f"{program}: ignoring the {what}: {why}\n")


def reason(path: str) -> tuple[str, str]:
    """What is ignored, and why; the same rules as `icctl.client.is_ours`."""
    head, slash, _ = path.rpartition("/")
    directory = head or slash or "."
    try:
        why = _about_directory(posix.lstat(directory))
        if why:
            return f"socket directory {directory}", why
        return f"socket {path}", _about_socket(posix.lstat(path))
    except OSError:
        return f"socket {path}", "another process has just replaced it"


def _about_directory(home: posix.stat_result) -> str:
    if home.st_mode & S_IFMT == S_IFLNK:
        return "it is a symbolic link"
    if home.st_mode & S_IFMT != S_IFDIR:
        return "it is not a directory"
    if home.st_uid not in (posix.geteuid(), 0):
        return f"it belongs to user {home.st_uid}"
    if home.st_mode & OTHERS_WRITE and not home.st_mode & STICKY:
        return f"other users may write to it (mode {home.st_mode & 0o7777:04o})"
    return ""


def _about_socket(sock: posix.stat_result) -> str:
    if sock.st_mode & S_IFMT == S_IFLNK:
        return "it is a symbolic link"
    if sock.st_mode & S_IFMT != S_IFSOCK:
        return "it is not a socket"
    if sock.st_uid != posix.geteuid():
        return f"it belongs to user {sock.st_uid}"
    return "a process of another user listens there"
