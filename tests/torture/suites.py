"""All suites, in the order in which they run."""

from tests.torture import linearizability, watch
from tests.torture.suite import Suite

SUITES: list[Suite] = [
    Suite("linearizability", linearizability.run),
    Suite("watch", watch.run),
]
