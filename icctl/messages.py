"""What the client itself has to say, and its count of failures; loaded only when it has to.

A call that failed and that no daemon saw is a line, its verb, in a small file beside the socket,
where `icctl status` finds it.  The directory is the daemon's to make: where none has been, nothing
is counted.  Counting must not make a failure worse, so its own errors are dropped.
"""

import posix
from typing import Any

from icctl.client import (
    OTHERS_WRITE,
    S_IFDIR,
    S_IFMT,
    S_IFSOCK,
    STICKY,
    Request,
    say,
    sockets,
    timeout_ms,
    typed,
    world,
    write,
)
from icd import __version__

# What happened, and what to do.
SENTENCES = {
    "no daemon": (
        "no daemon is running, and INTERCORE_MODE is daemon",
        "start it with: icctl service start",
    ),
    "late": (
        "the daemon did not accept the call within {:g} s",
        "nothing was done; retry, or raise --timeout",
    ),
    "unknown": (
        "unknown_outcome: the daemon did not answer within {:g} s",
        "read the state before you repeat a write",
    ),
    "no reply": (
        "deadline_exceeded: the daemon did not answer within {:g} s",
        "nothing was changed; retry, or raise --timeout",
    ),
    "nonsense": (
        "unknown_outcome: what listens at {socket} speaks another protocol than icctl {version}",
        "if it is icd, upgrade the older of the two, and read the state before you repeat a write",
    ),
    "broken": ("the daemon stopped in the middle of its output", "run the command again"),
    "unwritable": ("cannot write to stdout", "check where it is redirected to"),
    "no directory": ("the current directory no longer exists", "change to an existing directory"),
    "mode": ("INTERCORE_MODE must be auto, daemon or direct", "unset it"),
    "long path": ("the socket path {} is too long", "use one of 107 bytes"),
    "no socket": ("cannot connect to {}: {}", "is it a socket?"),
    "no helper": (
        "--helper needs the native client, the pid of a shell, and a directory for its pipes",
        "it is internal to lib-intercore.sh",
    ),
}
# The errors that these are, for those who read JSON.
KINDS = {
    "no daemon": "NoDaemon",
    "late": "DeadlineExceeded",
    "no reply": "DeadlineExceeded",
    "unknown": "UnknownOutcome",
    "nonsense": "UnknownOutcome",
    "mode": "Misconfigured",
}
# The doctor explains these, and needs no daemon.
FOR_THE_DOCTOR = {"no daemon", "late", "unknown", "nonsense", "long path", "no socket"}

FAILURES = "failures"
FILE_BYTES = 65_536
VERB_CHARACTERS = 60
FLAGS = posix.O_WRONLY | posix.O_CREAT | posix.O_APPEND | posix.O_NOFOLLOW | posix.O_CLOEXEC
FLAGS |= posix.O_NONBLOCK  # a pipe in its place must not keep us waiting for its other end
S_IFREG, S_IFLNK = 0o100000, 0o120000  # the module `stat` has a price
# Sockets that were told of: a call may try many times, and a person reads it once.
_ignored: set[str] = set()


def tell(program: str, argv: list[str], name: str, *details: Any) -> int:
    """Say it on stderr; the exit status is returned."""
    verb = context(argv)
    if verb == "doctor" and name in FOR_THE_DOCTOR:
        return Request(argv, program, world()).run_here(timeout_ms(argv) / 1000)
    if name == "unknown" and _only_reads(*details[1:]):
        name = "no reply"
    happened, hint = told(name, *details)
    status = 3 if name == "mode" else 2
    if "--json-errors" in typed(argv)[1]:
        say(_as_json(verb, name, happened, hint, status))
    else:
        say(f"{program}: {verb}: {happened}; {hint}\n")
    if name != "no helper":  # the library asks for one, and does without
        count_failure(verb)
    return status


def _as_json(verb: str, name: str, happened: str, hint: str, status: int) -> str:
    """As `line` of icd/app/invocation.py writes it."""
    import json

    from icd import errors  # slow, but the caller has waited for longer

    kind = getattr(errors, KINDS.get(name, "IcError"))
    facts = {**kind(happened, hint=hint).data, "exit": status, "command": verb}
    told = {"error": {"code": kind.code, "message": happened, **facts}}
    return json.dumps(told, separators=(",", ":")) + "\n"


def told(name: str, *details: Any) -> tuple[str, str]:
    """What happened, and what to do."""
    happened, hint = SENTENCES[name]
    return happened.format(*details, socket=_listening(), version=__version__), hint


def _only_reads(sent: Request) -> bool:
    """Whether a request, which is not always the first one, changes nothing; False: unknown."""
    from contextlib import suppress

    with suppress(Exception):  # it is asked for a sentence about another failure
        from icctl.direct import changes_nothing  # slow, but the caller has waited for longer

        return changes_nothing(sent)
    return False


def _listening() -> str:
    """The socket that was used, as far as it can be told afterwards."""
    found = sockets()
    for path in found:
        try:
            posix.stat(path)
        except OSError:
            continue
        return path
    return found[0]


def context(argv: list[str], singles: dict[str, str] | tuple[str, ...] = ("hold",)) -> str:
    """The verb, as far as it can be told without knowing the commands, or those of one word."""
    words, _ = typed([word for word in argv if word != "--"])
    return " ".join(words[: 1 if words[:1] and words[0] in singles else 2]) or "call"


# --- the count of failures ------------------------------------------------------------------------


def count_failure(verb: str) -> None:
    name = "".join(char if char.isprintable() else "?" for char in verb[:VERB_CHARACTERS])
    line = name.replace(" ", ".").encode("ascii", "backslashreplace") + b"\n"
    for path in sockets():
        directory = path.rpartition("/")[0]
        try:
            if not _is_private(directory):
                continue
            fd = posix.open(f"{directory}/{FAILURES}", FLAGS, 0o600)
        except OSError:
            continue
        found = posix.fstat(fd)
        if found.st_mode & S_IFMT == S_IFREG and found.st_size < FILE_BYTES:
            write(fd, line)
        posix.close(fd)
        return


def _is_private(directory: str) -> bool:
    """Whether it is ours alone: in another user's we would write where that user's links lead."""
    found = posix.lstat(directory)
    is_directory = found.st_mode & S_IFMT == S_IFDIR
    return is_directory and found.st_uid == posix.geteuid() and not found.st_mode & OTHERS_WRITE


# --- sockets that are not used --------------------------------------------------------------------


def ignore(path: str, program: str) -> None:
    """Say, once, that a socket is not used: another user could have put it there."""
    if path not in _ignored:
        _ignored.add(path)
        what, why = why_ignored(path)
        say(f"{program}: ignoring the {what}: {why}\n")


def why_ignored(path: str) -> tuple[str, str]:
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
