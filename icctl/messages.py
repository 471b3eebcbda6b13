"""What the client itself has to say; loaded only when there is something."""

import posix
from typing import Any

from icctl.client import Request, plain, say, sockets, timeout_ms, world
from icctl.failures import note
from icd import __version__

# What happened, and what to do.
SENTENCES = {
    "no daemon": (
        "no daemon answers, and INTERCORE_MODE is daemon",
        "start it with: icd serve",
    ),
    "late": (
        "the daemon did not take the call within {:g} s",
        "nothing was done: try again, or allow more time with --timeout",
    ),
    "unknown": (
        "unknown_outcome: the daemon did not answer within {:g} s",
        "ask again: read the state before you repeat a write",
    ),
    "no reply": (
        "deadline_exceeded: the daemon did not answer within {:g} s",
        "nothing was changed; try again, or give more time with --timeout",
    ),
    "nonsense": (
        "unknown_outcome: what listens at {socket} speaks another protocol than icctl {version}",
        "if it is icd, upgrade the older of the two, and read the state before you repeat a write",
    ),
    "broken": ("the daemon left in the middle of its output", "run the command again"),
    "unwritable": ("cannot write to stdout", "check where it is redirected to"),
    "no directory": ("the current directory no longer exists", "change to one that does"),
    "mode": ("INTERCORE_MODE is none of auto, daemon, direct", "unset it"),
    "long path": ("the socket path {} is too long", "use one of 107 bytes"),
    "no socket": ("cannot connect to {}: {}", "is it a socket?"),
    "shell": ("--helper takes the pid of a shell that is running", "it is for lib-intercore.sh"),
    "pipes": ("cannot make named pipes", "set XDG_RUNTIME_DIR or TMPDIR to a directory of yours"),
}
USAGE = {"mode", "shell"}
# Who calls the doctor wants to know why, and the doctor needs no daemon.
FOR_THE_DOCTOR = {"no daemon", "late", "unknown", "nonsense", "long path", "no socket"}


def tell(program: str, argv: list[str], name: str, *details: Any) -> int:
    """Say it on stderr; the exit status is returned."""
    verb, status = context(argv), 3 if name in USAGE else 2
    if verb == "doctor" and name in FOR_THE_DOCTOR:
        return Request(argv, program, world()).run_here(timeout_ms(argv) / 1000)
    if name == "unknown" and _only_reads(*details[1:]):
        name = "no reply"
    happened, hint = SENTENCES[name]
    told = happened.format(*details, socket=_listening(), version=__version__)
    say(f"{program}: {verb}: {told}; {hint}\n")
    note(verb)
    return status


def _only_reads(sent: Request) -> bool:
    """Of a request that was sent, which is not always the first one."""
    from icctl.here import only_reads  # this takes a while, and the caller has waited for longer

    return only_reads(sent)


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
    words = plain(argv)
    return " ".join(words[: 1 if words[:1] and words[0] in singles else 2]) or "call"
