"""Ending an agent with all that it has started.

The database has decided already that the dispatch is cancelled.  A runner that lives is told to
end its agent: orphans are its children, so it finds also those who have left the agent's session.
Where the runner is dead, whoever asks does it, for the agent's session and group and all below.

A row may be a stranger's, with the number of any process in it.  So a signal goes only to what was
recorded with the moment of its start and in this boot, whose random name no stranger knows.
"""

import os
import select
from signal import SIGCONT, SIGTERM

from icd import procfs
from icd.errors import AgentUnreachable
from icd.features.dispatches.agent import trees
from icd.values import processes
from icd.values.processes import Process

# The runner's own patience, and time to record what came of it.
PATIENCE_SECONDS = trees.GRACE_SECONDS + trees.DEATH_SECONDS + 5.0
LOOKS = 2


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
                    f"process {process.pid} of dispatch {self.id} is out of reach"
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
        seen = trees.look(self._runner.pid)
        if seen is None or seen.start != self._runner.start:
            return
        try:
            self._told = os.pidfd_open(seen.pid)
        except OSError:
            return
        trees.send(seen, SIGTERM)
        trees.send(seen, SIGCONT)  # or, if it was stopped, it would not even notice

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
        if not trees.end(lambda: trees.around(agent.pid, agent.start)):
            raise AgentUnreachable(f"process {agent.pid} of dispatch {self.id} does not end")


def _is_known(process: Process) -> bool:
    return process.start > 0 and process.boot == procfs.boot()
