"""All suites, in the order in which they run."""

from tests.torture import hostile, model
from tests.torture.suite import Suite

SUITES: list[Suite] = [
    Suite("model", model.run),
    Suite("hostile", hostile.run),
]
