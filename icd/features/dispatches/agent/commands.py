"""Which command an agent is: the project's dispatch.sh if there is one, else codex.

`--dispatch-sh`, else `$CLAVAIN_DISPATCH_SH`, else the nearest `hub/clavain/scripts/dispatch.sh`
above the project; a place that has no such file is passed over.

The first two are the caller's own words.  A script that merely lies in the project may be a
stranger's: it runs only if the user accepted it, with the content that it has.
"""

import os
from collections.abc import Mapping

from msgspec import Struct

from icd import trust
from icd.db.paths import upward
from icd.errors import Untrusted

SCRIPT = "hub/clavain/scripts/dispatch.sh"


class Asked(Struct, frozen=True, kw_only=True):
    """Paths are absolute, and as the operating system has them."""

    project: str
    prompt: str
    output: str
    name: str | None = None
    model: str | None = None
    sandbox: str | None = None


class Command(Struct, frozen=True):
    """`log`: where its stdout and stderr go.

    `is_own`: the caller named it.  Any other is not looked for in relative directories of $PATH:
    they would lie in the project.
    """

    argv: list[str]
    cwd: str
    log: str
    stdin: str = ""
    is_own: bool = False


def find(
    asked: Asked, *, given: str | None, cwd: str, env: Mapping[str, str], database: str
) -> Command:
    script = _named(given, cwd, env)
    if script is None:
        script = in_project(asked.project)
        _refuse_untrusted(script, env.get("HOME"), database)
    if script is None:
        return _codex(asked)
    argv = ["bash", script, "-C", asked.project, "-o", asked.output, "--prompt-file", asked.prompt]
    for flag, value in (("-n", asked.name), ("-m", asked.model), ("--sandbox", asked.sandbox)):
        argv += [flag, value] if value else []
    return Command(argv, cwd, f"{asked.output}.log")  # it writes the output itself


def in_project(project: str) -> str | None:
    """The nearest script that lies in a project or above it."""
    above = (os.path.join(directory, SCRIPT) for directory in upward(project))
    return next((path for path in above if os.path.isfile(path)), None)


def _codex(asked: Asked) -> Command:
    """It reads the prompt from its standard input, and asks for no approvals."""
    argv = ["codex", "exec"]
    for flag, value in (("-m", asked.model), ("--sandbox", asked.sandbox)):
        argv += [flag, value] if value else []
    return Command([*argv, "-"], asked.project, asked.output, asked.prompt)


def _named(given: str | None, cwd: str, env: Mapping[str, str]) -> str | None:
    named = [os.path.join(cwd, path) for path in (given, env.get("CLAVAIN_DISPATCH_SH")) if path]
    return next((path for path in named if os.path.isfile(path)), None)


def _refuse_untrusted(script: str | None, home: str | None, database: str) -> None:
    if script is None or trust.allows_script(home, database, script):
        return
    hint = "read it, then accept it with 'icctl trust', or name it with --dispatch-sh"
    raise Untrusted(f"{script} was not accepted, or has changed since", hint=hint)
