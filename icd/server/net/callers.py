"""Who calls: the name of a process, so that a failing script can be found.

A script is named by its path, any other program by its name.  Never by its arguments: they may
hold secrets.  So of an interpreter's command line only options are skipped that are known to take
no value, and whatever else comes before the script makes us fall back to the program's name.

Nothing of a project is touched: /proc is not on any disk.
"""

import os
import re

from icd.server.logs import one_line
from icd.values.processes import PID_MAX

UNKNOWN = "unknown"
# A path is at most 4096 bytes; a name in a table had better be shorter.
NAME_CHARACTERS = 200

_SHELL = "abefhiklmnpruvxBCEHPT"  # not c, s, o and O: code, stdin, and options with a value
_PYTHON = "bBdEiIOqPsSuvx"  # not c, m, W and X
# Interpreters, with the letters of options that stand between them and a script.
_FLAGS = {
    "bash": _SHELL,
    "sh": _SHELL,
    "dash": _SHELL,
    "ash": _SHELL,
    "ksh": _SHELL,
    "zsh": _SHELL,
    "fish": "",
    "python": _PYTHON,
    "pypy": _PYTHON,
    "node": "",
    "bun": "",
    "perl": "",
    "ruby": "",
}
_VERSION = re.compile(r"[0-9.]+\Z")


def name(pid: int | None) -> str:
    """The name of a process as it is now: ask while it waits for its answer."""
    if pid is None or not 0 < pid <= PID_MAX:
        return UNKNOWN
    words = _read(pid, "cmdline").split("\0")
    found = script(words) or _read(pid, "comm").removesuffix("\n")
    return one_line(found, NAME_CHARACTERS) or UNKNOWN


def script(words: list[str]) -> str | None:
    """The script of an interpreter's command line; None if that cannot be told for sure."""
    program = _VERSION.sub("", os.path.basename(words[0]).removeprefix("-"))
    flags = _FLAGS.get(program)
    if flags is None:
        return None
    for word in words[1:]:
        if not word.startswith("-"):
            return word or None
        if not flags or word == "-" or not set(word[1:]) <= set(flags):
            return None
    return None


def _read(pid: int, what: str) -> str:
    try:
        with open(f"/proc/{pid}/{what}", "rb") as file:
            return os.fsdecode(file.read(4096 + NAME_CHARACTERS))
    except OSError:
        return ""
