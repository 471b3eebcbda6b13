"""Gates: whether a run may go on to another phase.

Invariants
    - a run that passes over phases meets the rules of every transition on its way, not only those
      of a transition from where it is to where it goes: a skip never opens a gate;
    - how much a failed check weighs depends on the priority of the work alone: a hard gate blocks,
      a soft one is told, and unimportant work is not checked at all;
    - nothing here changes anything: asking is free, and an advance asks in its own transaction.

Callers run these inside a transaction.
"""

import sqlite3
from itertools import pairwise
from typing import Literal

import msgspec
from msgspec import Struct, structs

from icd.errors import PhaseRefused
from icd.features.gates import rules as gate_rules
from icd.features.gates.rules import CHECKS, Condition
from icd.features.runs import phases
from icd.features.runs.store import Run

# What an advance and the question before it take for granted; soft.
DEFAULT_PRIORITY = 3
HARD_THROUGH = 1
SOFT_THROUGH = 3

Tier = Literal["hard", "soft", "none"]

parse = gate_rules.parse
check_against = gate_rules.check_against


class Evidence(Struct, frozen=True):
    conditions: list[Condition]


class Verdict(Struct, frozen=True):
    """`none`: nothing was checked."""

    result: Literal["pass", "fail", "none"]
    tier: Tier
    evidence: list[Condition]

    def evidence_json(self) -> str | None:
        """As it is recorded with a transition; None where there is no evidence."""
        if not self.evidence:
            return None
        return msgspec.json.encode(Evidence(self.evidence)).decode()


def evaluate(
    conn: sqlite3.Connection, run: Run, to_phase: str, *, priority: int, disabled: bool = False
) -> Verdict:
    """Whether the run may go from where it is to `to_phase`."""
    tier = tier_of(priority)
    if disabled or tier == "none":
        return Verdict("none", "none", [])
    way = [run.phase, *phases.between(phases.chain(run), run.phase, to_phase)]
    if len(way) == 1:  # no rule would be met: never take that for a pass
        raise PhaseRefused(f"{to_phase} is not ahead of {run.phase}")
    rules = {rule.transition: rule.checks for rule in gate_rules.of(run)}
    passes_over = len(way) > 2
    evidence = []
    for step in pairwise(way):
        for check in rules.get(step, ()):
            found = CHECKS[check.check].judge(conn, run.id, check.phase or "")
            evidence.append(_of_step(found, step) if passes_over else found)
    failed = any(condition.result == "fail" for condition in evidence)
    return Verdict("fail" if failed else "pass", tier, evidence)


def tier_of(priority: int) -> Tier:
    if priority <= HARD_THROUGH:
        return "hard"
    return "soft" if priority <= SOFT_THROUGH else "none"


def _of_step(condition: Condition, step: tuple[str, str]) -> Condition:
    return structs.replace(condition, from_phase=step[0], to_phase=step[1])
