"""What a gate can ask for: each check is a small function that answers with its evidence.

A check reads what is recorded about one run and nothing else.
"""

import sqlite3
from collections.abc import Callable
from typing import Literal

from msgspec import Struct


class Condition(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a check found.

    `from_phase` and `to_phase` say which transition asks for it, where a run passes over several.
    """

    check: str
    phase: str | None = None
    result: Literal["pass", "fail"]
    count: int | None = None
    detail: str | None = None
    from_phase: str | None = None
    to_phase: str | None = None


class Kind(Struct, frozen=True):
    """Given the connection, the id of a run and a phase, which most checks are not about."""

    judge: Callable[[sqlite3.Connection, str, str], Condition]
    takes_phase: bool = False


_ARTIFACTS = """
SELECT count(*) FROM run_artifacts WHERE run_id = ? AND phase = ? AND status = 'active'
"""
_AGENTS = "SELECT count(*) FROM run_agents WHERE run_id = ? AND status = 'active'"
# Whatever else a verdict may say, nobody has to guess whether it means yes.
_VERDICT = """
SELECT 1 FROM dispatches WHERE run_id = ? AND verdict_status IN ('pass', 'warn') LIMIT 1
"""


def artifact_exists(conn: sqlite3.Connection, run_id: str, phase: str) -> Condition:
    """The phase has left something behind that was not rolled back."""
    (count,) = conn.execute(_ARTIFACTS, (run_id, phase)).fetchone()
    detail = None if count else f'no artifacts found for phase "{phase}"'
    return _condition("artifact_exists", detail, phase=phase, count=count)


def agents_complete(conn: sqlite3.Connection, run_id: str, _phase: str) -> Condition:
    """Nobody works on the run any more."""
    (count,) = conn.execute(_AGENTS, (run_id,)).fetchone()
    detail = f"{count} agents still active" if count else None
    return _condition("agents_complete", detail, count=count)


def verdict_exists(conn: sqlite3.Connection, run_id: str, _phase: str) -> Condition:
    """A dispatch of the run has ended with a verdict that is not a no."""
    found = conn.execute(_VERDICT, (run_id,)).fetchone()
    return _condition("verdict_exists", None if found else "no passing verdict found")


def _condition(
    check: str, detail: str | None, *, phase: str | None = None, count: int | None = None
) -> Condition:
    """Details are told of what fails."""
    return Condition(
        check=check,
        phase=phase,
        result="pass" if detail is None else "fail",
        count=count,
        detail=detail,
    )


CHECKS = {
    "artifact_exists": Kind(artifact_exists, takes_phase=True),
    "agents_complete": Kind(agents_complete),
    "verdict_exists": Kind(verdict_exists),
}
