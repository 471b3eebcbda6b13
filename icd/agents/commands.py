"""Which command an agent is: the project's dispatch.sh if there is one, else codex.

`--dispatch-sh`, else `$CLAVAIN_DISPATCH_SH`, else the nearest `hub/clavain/scripts/dispatch.sh`
above the project; a place that has no such file is passed over.
"""

import os
from collections.abc import Mapping

from msgspec import Struct

from icd.db.paths import upward

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
    """`log`: where its stdout and stderr go."""

    argv: list[str]
    cwd: str
    log: str
    stdin: str = ""


def find(asked: Asked, *, given: str | None, cwd: str, env: Mapping[str, str]) -> Command:
    script = _script(asked.project, given=given, cwd=cwd, env=env)
    if script is None:
        model = ["-m", asked.model] if asked.model else []
        argv = ["codex", "exec", "--prompt-file", asked.prompt, *model]
        return Command(argv, asked.project, asked.output)
    argv = ["bash", script, "-C", asked.project, "-o", asked.output, "--prompt-file", asked.prompt]
    for flag, value in (("-n", asked.name), ("-m", asked.model), ("--sandbox", asked.sandbox)):
        argv += [flag, value] if value else []
    return Command(argv, cwd, f"{asked.output}.log")  # it writes the output itself


def _script(project: str, *, given: str | None, cwd: str, env: Mapping[str, str]) -> str | None:
    named = [os.path.join(cwd, path) for path in (given, env.get("CLAVAIN_DISPATCH_SH")) if path]
    above = (os.path.join(directory, SCRIPT) for directory in upward(project))
    return next((path for path in (*named, *above) if os.path.isfile(path)), None)
