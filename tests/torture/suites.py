"""All suites, in the order in which they run."""

from tests.torture import (
    crash,
    faults,
    hostile,
    intruders,
    linearizability,
    locks,
    model,
    power,
    soak,
    watch,
)
from tests.torture.suite import Suite

SUITES: list[Suite] = [
    Suite("crash", crash.run),
    Suite("power", power.run, share=0.2),
    Suite("linearizability", linearizability.run),
    Suite("locks", locks.run, share=0.5),
    Suite("watch", watch.run),
    Suite("model", model.run),
    Suite("faults", faults.run),
    Suite("hostile", hostile.run),
    Suite("intruders", intruders.run, share=0.5),
    Suite("soak", soak.run),
]
