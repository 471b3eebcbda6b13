"""All suites, in the order in which they run."""

from tests.torture import crash, power
from tests.torture.suite import Suite

SUITES: list[Suite] = [
    Suite("crash", crash.run),
    Suite("power", power.run, share=0.2),
from tests.torture import linearizability, watch
from tests.torture.suite import Suite

SUITES: list[Suite] = [
    Suite("linearizability", linearizability.run),
    Suite("watch", watch.run),
from tests.torture import hostile, model
from tests.torture.suite import Suite

SUITES: list[Suite] = [
    Suite("model", model.run),
    Suite("hostile", hostile.run),
]
