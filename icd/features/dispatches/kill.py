"""dispatch kill: in the caller's own process, which may end what the caller may.

The database decides first that the dispatch is cancelled.  A runner that lives is told to end its
agent: orphans are its children, so it finds also those that have left the agent's session.  Where
the runner is dead, the caller does it, for the agent's session and group and all below.

A row may be a stranger's, with the number of any process in it.  So a signal goes only to what was
recorded with the moment of its start and in this boot, whose random name no stranger knows.
"""

import os
import select
from signal import SIGCONT, SIGTERM
from typing import Annotated

from msgspec import Struct

from icd import procfs
from icd.app import render
from icd.app.invocation import Caller, Local, Output, World, line
from icd.app.verb import Argument, Command, Option
from icd.errors import AgentUnreachable, DispatchOver, IcError, NoDatabase
from icd.features.dispatches.calls import Cancel, Get
from icd.features.dispatches.launch import refuse_untrusted
from icd.features.dispatches.runner import process_tree
from icd.features.dispatches.store import Dispatch
from icd.values import processes
from icd.values.processes import Process
from icd.values.wire import Result

# The runner's own patience, and time to record what came of it.
PATIENCE_SECONDS = process_tree.GRACE_SECONDS + process_tree.DEATH_SECONDS + 5.0
LOOKS = 2


class Kill(Struct, kw_only=True):
    """Cancel dispatches, and kill their agents with all child processes.

    The processes get SIGTERM, and SIGKILL after 5 seconds.
    Prints killed for each; exit 1 if one is unknown, or has already ended without --if-running.
    """

    ids: Annotated[list[str], Argument("ID...", "Ids of the dispatches.", nargs=-1)]
    if_running: Annotated[
        bool, Option("--if-running", "Ignore dispatches that have already ended.")
    ] = False
    quiet: Annotated[bool, Option("--quiet", "Print only errors.")] = False


class Killed(Result):
    id: str
    status: str


class Target:
    """The processes of a dispatch; either may be unknown."""

    def __init__(self, dispatch_id: str, runner: Process | None, agent: Process | None) -> None:
        self.id = dispatch_id
        self._runner = runner
        self._agent = agent
        self._told: int | None = None  # a descriptor of the runner

    def check(self) -> None:
        """Refuse what could not be carried out, before anything is decided."""
        for process in (self._runner, self._agent):
            # One that ends just now cannot be told at the first look.
            looks = (processes.liveness(process) for _ in range(LOOKS)) if process else ()
            if process and all(found == "unknown" for found in looks):
                raise AgentUnreachable(
                    f"process {process.pid} of dispatch {self.id} cannot be reached"
                )

    @property
    def is_alive(self) -> bool:
        return any(
            process is not None and processes.liveness(process) == "alive"
            for process in (self._agent, self._runner)
        )

    def begin(self) -> None:
        """Tell the runner, if it is there; several can end at the same time."""
        if self._runner is None or not _is_known(self._runner):
            return
        seen = procfs.stat(self._runner.pid)
        if seen is None or seen.start != self._runner.start:
            return
        try:
            self._told = os.pidfd_open(seen.pid)
        except OSError:
            return
        process_tree.send(seen, SIGTERM)
        process_tree.send(seen, SIGCONT)  # a stopped one would not even notice

    def finish(self) -> None:
        """Return when all of it is gone."""
        if self._told is not None:
            poll = select.poll()
            poll.register(self._told, select.POLLIN)
            poll.poll(PATIENCE_SECONDS * 1000)
            os.close(self._told)
        agent = self._agent
        if agent is None or not _is_known(agent) or processes.liveness(agent) == "dead":
            return
        if not process_tree.terminate(lambda: process_tree.session(agent.pid, agent.start)):
            raise AgentUnreachable(f"process {agent.pid} of dispatch {self.id} did not end")


def _is_known(process: Process) -> bool:
    return process.start > 0 and process.boot == procfs.boot()


def ask_kill(world: World, f: Kill) -> Local:
    return Local(lambda ask: _kill(world, ask, f), has_own_timeout=True)


def _kill(world: World, ask: Caller, f: Kill) -> Output:
    """End all of them at the same time; one that fails is told, and does not keep the others."""
    output = Output(0)
    began: list[Target] = []
    done: list[Killed] = []
    for dispatch_id in dict.fromkeys(f.ids):
        try:
            began.append(_cancel(world, ask, dispatch_id))
        except IcError as exc:
            if not (f.if_running and isinstance(exc, DispatchOver)):
                _tell(world, output, exc)
    for target in began:
        try:
            target.finish()
            done.append(Killed(target.id, "cancelled"))
        except IcError as exc:
            _tell(world, output, exc)
    if done and not f.quiet:
        shown = render.to_json(done if len(f.ids) > 1 else done[0])
        output.stdout = shown.stdout if world.json else b"killed\n" * len(done)
    return output


def _tell(world: World, output: Output, exc: IcError) -> None:
    if isinstance(exc, NoDatabase):
        raise exc  # none of them is to be had
    output.stderr += line(world, "dispatch kill", exc)
    output.exit = max(output.exit, exc.exit)


def _cancel(world: World, ask: Caller, dispatch_id: str) -> Target:
    """The database decides what was first, the end or the cancelling; then the runner is told.

    A row that names a process which lives may be a stranger's, who wants it ended.
    """
    found: Dispatch = ask("dispatch.get", Get(dispatch_id))
    target = Target(dispatch_id, found.runner, found.agent)
    if target.is_alive:
        refuse_untrusted(world, f"process {found.pid} of dispatch {dispatch_id} was not killed")
    if not found.is_over:
        target.check()
        found = ask("dispatch.cancel", Cancel(dispatch_id, reason="killed"))
        target = Target(dispatch_id, found.runner, found.agent)
    elif found.status != "cancelled" or found.pid is None or not target.is_alive:
        raise DispatchOver(f"dispatch is already {found.status}")
    if found.pid is not None:  # else the process that is about to start it finds out
        target.begin()
    return target


VERBS = [
    Command(
        "dispatch kill",
        Kill,
        ask_kill,
        summary="Kill agents and their child processes.",
        examples=[
            "icctl dispatch kill k3v9x0qa",
            "icctl dispatch kill k3v9x0qa p4d8s2mm --if-running",
        ],
    ),
]
