"""One machine per noun, each a small model, against the core, the direct host and the socket.

Hypothesis makes up what is done; after every step the host must show what the model says.  Time
passes when a machine says so, on all hosts, so what expires, does so to the millisecond.
"""

from collections.abc import Sequence

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.torture.code import ROOT
from tests.torture.hosts import NAMES, Host, opened
from tests.torture.machines.coordination import Coordination
from tests.torture.machines.discoveries import Discoveries
from tests.torture.machines.dispatches import Dispatches
from tests.torture.machines.leases import Leases
from tests.torture.machines.log import Log
from tests.torture.machines.machine import Machine
from tests.torture.machines.runs import Runs
from tests.torture.machines.sentinels import Sentinels
from tests.torture.machines.sessions import Sessions
from tests.torture.machines.state import State
from tests.torture.suite import Broken, Run

MACHINES: tuple[type[Machine], ...] = (
    State,
    Sentinels,
    Log,
    Runs,
    Dispatches,
    Leases,
    Coordination,
    Sessions,
    Discoveries,
)
# Of one machine on one host before the next has its turn.  The direct host opens and closes the
# database for each call, so it gets fewer.
EXAMPLES = {"core": 6, "direct": 2, "socket": 5}
STEPS = 40


def run(
    run: Run, machines: Sequence[type[Machine]] = MACHINES, names: Sequence[str] = NAMES
) -> None:
    with opened(run.code, run.directory, names) as hosts:
        turns = [(machine, host) for machine in machines for host in hosts]
        run.rng.shuffle(turns)
        while not run.is_over:
            for machine, host in turns:
                if run.is_over:
                    break
                _try(run, machine, host)
        run.figures["calls"] += sum(host.calls for host in hosts)


def _try(run: Run, machine: type[Machine], host: Host) -> None:
    # A subclass for every turn: the seed of the test is kept on it.
    tried = type(machine.__name__, (machine,), {"host": host})
    try:
        run_state_machine_as_test(
            seed(run.rng.getrandbits(64))(tried), settings=_settings(run, host)
        )
    except AssertionError as exc:
        story = "\n".join(getattr(exc, "__notes__", []))
        what = f"{machine.__name__} on the host {host.name}: {exc}\n{story}"
        raise Broken(what) from exc
    run.figures["examples"] += EXAMPLES[host.name]


def _settings(run: Run, host: Host) -> settings:
    phases = [Phase.generate]
    if run.code.root == ROOT:  # what was broken on purpose need not be understood
        phases.append(Phase.shrink)
    return settings(
        max_examples=EXAMPLES[host.name],
        stateful_step_count=STEPS,
        phases=phases,
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
