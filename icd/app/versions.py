"""When the client and the daemon are of different versions: who is told, and what.

The daemon says it, because it hears from the client which version that is; so a client needs not
ask, and one that runs a command itself has nothing to compare.

Promises
    - it is said on stderr only, after everything else, and changes no exit status;
    - it is said to people, that is if stderr is a terminal; and to a caller whose command failed in
      a way that the difference may explain: it was not understood, or the database is too new;
    - a hook whose commands work hears nothing.
"""

import re

from icd import __version__
from icd.app.invocation import Output, Skew, World
from icd.errors import IcError, SchemaTooNew

NOT_UNDERSTOOD = 3  # the exit status of every mistake in a command line


def skew(world: World) -> Skew:
    """What to say to a client that has told another version than ours."""
    program, client = world.program, world.client_version
    mine, theirs = _order(__version__), _order(client)
    if mine < theirs:
        relation, hint = "older than", "run 'icctl service reload'"
    elif mine > theirs:
        relation, hint = "newer than", f"upgrade this {program}"
    else:
        relation, hint = "another version than", "install the same version of both"
    told = f"the daemon ({__version__}) is {relation} this {program} ({client}); {hint}"
    line = f"{program}: warning: {told}\n".encode("utf-8", "backslashreplace")
    return Skew(line, always=world.is_terminal)


def tell(skew: Skew, output: Output, error: IcError | None = None) -> None:
    explains = output.exit == NOT_UNDERSTOOD or isinstance(error, SchemaTooNew)
    if skew.always or explains:
        output.stderr += skew.line


def _order(version: str) -> list[int]:
    """The numbers of a release; what follows them does not tell older from newer here."""
    found = re.match(r"\d{1,9}(\.\d{1,9})*", version)
    return [int(number) for number in found[0].split(".")] if found else []
