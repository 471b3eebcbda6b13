"""`icctl dispatch kill`: in the caller's own process, which may end what the caller may."""

import click

from icd.app import render
from icd.app.invocation import Caller, Local, Output, World, line
from icd.errors import DispatchOver, IcError, NoDatabase
from icd.features.dispatches import methods
from icd.features.dispatches.agent.killing import Target
from icd.features.dispatches.spawn import refuse_untrusted
from icd.values.wire import Result


class Killed(Result):
    id: str
    status: str


@click.command("kill", add_help_option=False, short_help="End agents with all they started.")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--if-running", is_flag=True, help="Pass over what has ended already.")
@click.option("--quiet", is_flag=True, help="Print nothing, unless something fails.")
def kill(world: World, *, ids: tuple[str, ...], if_running: bool, quiet: bool) -> Local:
    """Cancel dispatches, and end their agents with everything that these have started.

    All of it is asked to end (SIGTERM), and killed if it has not after 5 seconds.
    Prints killed for each; exit 1 if one is unknown, or over already and not passed over.

    \b
    Examples:
      icctl dispatch kill k3v9x0qa
      icctl dispatch kill k3v9x0qa p4d8s2mm --if-running
    """

    def run(ask: Caller) -> Output:
        output = Output(0)
        done: list[Killed] = []
        began: list[Target] = []
        for dispatch_id in dict.fromkeys(ids):
            with _Told(world, output, DispatchOver if if_running else None):
                began.append(_cancel(world, ask, dispatch_id))
        for target in began:
            with _Told(world, output):
                target.finish()
                done.append(Killed(target.id, "cancelled"))
        if quiet:
            return output
        if world.json:
            shown = render.to_json(done if len(ids) > 1 else done[0]) if done else Output(0)
        else:
            shown = render.text(*("killed" for _ in done))
        output.stdout = shown.stdout
        return output

    return Local(run, has_own_timeout=True)


class _Told:
    """What fails for one of several is told, and does not keep the others."""

    def __init__(self, world: World, output: Output, fine: type[IcError] | None = None) -> None:
        self._program = world.program
        self._output = output
        self._fine = fine

    def __enter__(self) -> None:
        return

    def __exit__(self, _kind: object, exc: BaseException | None, _trace: object) -> bool:
        if not isinstance(exc, IcError) or isinstance(exc, NoDatabase):
            return False  # none of them is to be had
        if self._fine is not None and isinstance(exc, self._fine):
            return True
        self._output.stderr += line(self._program, "dispatch kill", exc)
        self._output.exit = max(self._output.exit, exc.exit)
        return True


def _cancel(world: World, ask: Caller, dispatch_id: str) -> Target:
    """The database decides who was first, the agent or whoever cancels it; then it is told.

    A row that names a process which lives may be a stranger's, who wants it ended.
    """
    found: methods.Document = ask("dispatch.get", methods.Get(dispatch_id))
    target = Target(dispatch_id, found.subject.runner, found.subject.agent)
    if target.is_alive:
        refuse_untrusted(world, f"process {found.pid} of dispatch {dispatch_id} is not ended")
    if not found.is_over:
        target.check()
        found = ask("dispatch.cancel", methods.Cancel(dispatch_id, reason="killed"))
        target = Target(dispatch_id, found.subject.runner, found.subject.agent)
    elif found.status != "cancelled" or found.pid is None or not target.is_alive:
        raise DispatchOver(f"dispatch is already {found.status}")
    if found.pid is not None:  # else whoever is about to start it finds out
        target.begin()
    return target


COMMANDS = [kill]
