"""`icctl hold …`: a command under a lock."""

import click

from icd.app.invocation import Caller, Local, Output, World
from icd.errors import Usage
from icd.features.locks import commands as locks
from icd.features.locks import holding, places


@click.command("hold", add_help_option=False, short_help="Run a command under a lock.")
@click.argument("name")
@click.argument("scope")
@click.argument("command", nargs=-1, metavar="-- COMMAND [ARGUMENT]...")
def hold(world: World, *, name: str, scope: str, command: tuple[str, ...]) -> Local:
    """Run COMMAND while holding the lock NAME of SCOPE, and give it back however it ends.

    Waits for the lock for --timeout, 1s by default, which comes before the --.
    Signals are passed on.
    The command itself holds the lock: if this process is killed, it keeps it until it ends.
    Exit with the command's status; 1, without having run it, if the lock is held all that time:
    stderr says by whom.

    \b
    Examples:
      icctl hold deploy web -- ./deploy.sh web
      icctl hold build main --timeout=10m -- make -j4
    """
    if not command:
        raise Usage("there is no command", hint="write it after '--'")
    places.check_words(name, scope)

    def run(_ask: Caller) -> Output:
        place = places.place(world.env)
        deadline = locks.deadline(world)
        status = holding.hold(place, name, scope, [*command], deadline=deadline)
        return Output(status, borrowed=True)

    return Local(run, is_about_project=False)


COMMANDS = [hold]
