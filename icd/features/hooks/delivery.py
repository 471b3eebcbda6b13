"""One event, brought to one hook."""

from collections.abc import Mapping

from icd.features.hooks import process
from icd.features.hooks.environment import environment
from icd.features.hooks.process import Outcome
from icd.features.hooks.store import Delivery, Done


def deliver(
    delivery: Delivery,
    program: str,
    *,
    project: str,
    database: str,
    own: Mapping[str, str],
    seconds: float,
    stop: int | None = None,
) -> Outcome:
    """Run what was trusted with the event on its stdin; `own`: this process's environment."""
    env = environment(own, project=project, database=database, delivery=delivery)
    event = delivery.event.encode() + b"\n"
    return process.run(program, event, project=project, env=env, seconds=seconds, stop=stop)


def done(delivery: Delivery, outcome: Outcome) -> Done:
    return Done(delivery.hook, delivery.seq, delivery.run_id, outcome.problem, outcome.status)
