"""All suites, in the order in which they run."""

from tests.torture import model
from tests.torture.suite import Suite

SUITES: list[Suite] = [
    Suite("model", model.run),
]
