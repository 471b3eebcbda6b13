"""What a call printed and how it ended, judged."""

import json
import re
from collections.abc import Callable

from tests.torture.commands_tried import patience
from tests.torture.hosts_tried import GRACE, Said

EXITS = {0, 1, 2, 3}
ERROR = 2
# What a terminal obeys, or what turns the direction of a text; tabs and newlines are our own.
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f]")
# One line at last, with what to do behind a semicolon; what the library finds out by itself is
# about files that its caller named.
HELPFUL = re.compile(rb"(.*\n)*(icctl: [^\n]+; [^\n]+|intercore: [^\n]+)\n")
LISTING = {"config check"}  # tells what to correct, line by line
SHOWN = 400
AROUND = 80

Tell = Callable[[str, str], None]  # of which kind, and what was seen


def judge(argv: list[str], said: Said, tell: Tell) -> None:
    shown = " ".join(argv)
    if said.exit is None or said.seconds > patience(argv) + GRACE:
        tell("late", f"{shown}: {said.seconds:.1f} s")
    if said.exit is not None and said.exit not in EXITS:
        tell("died", f"{shown}: exit {said.exit}: {said.err[-SHOWN:]!r}")
    if b"internal error" in said.err or b"Traceback" in said.out + said.err:
        tell("internal", f"{shown}: {said.err[-SHOWN:]!r}")
    elif said.exit == ERROR and shown not in LISTING and not HELPFUL.fullmatch(said.err):
        tell("unhelpful", f"{shown}: {said.err[-SHOWN:]!r}")
    for text in (said.out, said.err):
        if raw := _obeyed(text):
            tell("escape", f"{shown}: {raw!r}")


def _obeyed(text: bytes) -> str:
    """The first place that does something to a terminal; a line of JSON is for programs."""
    whole = text.decode("utf-8", "replace")
    if not OBEYED.search(whole):
        return ""
    for line in whole.split("\n"):
        found = CONTROL.search(line) or (not _is_json(line) and OBEYED.search(line))
        if found:
            return line[max(0, found.start() - AROUND) : found.end() + AROUND]
    return ""


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True
