"""All suites, in the order in which they run."""

from tests.torture import faults, intruders, soak
from tests.torture.suite import Suite

SUITES: list[Suite] = [
    Suite("faults", faults.run),
    Suite("intruders", intruders.run, share=0.5),
    Suite("soak", soak.run),
]
