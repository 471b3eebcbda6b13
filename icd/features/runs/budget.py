"""Tokens that a run has used, and whether it may use more.

Used is what its dispatches report, input and output together.  How a budget stands is a question
that may be asked any number of times: exceeded stays exceeded, until fewer tokens are reported.
Only the events are once-only: `runs.budget_told` says which were recorded.

Callers run these inside a transaction.
"""

import sqlite3

import msgspec

from icd.features.events import store as events
from icd.features.events.store import Fact
from icd.features.runs import store as runs
from icd.features.runs.store import Run
from icd.values.processes import Writer
from icd.values.wire import INT64, Result

WARNED, TOLD_EXCEEDED = 1, 2  # of `runs.budget_told`; the second includes the first

# Sums stop here: a nonsense report must not make every question about the run fail.
MOST = INT64 - 1


class Tokens(Result):
    """`cache_ratio`, in percent, is there once there was any input."""

    run_id: str
    input_tokens: int
    output_tokens: int
    cache_hits: int
    total_tokens: int
    cache_ratio: int | float | None = None


class Budget(Result):
    """`message` instead of the rest: there is no budget.

    `warning` and `exceeded` are never both true.
    """

    run_id: str
    budget: int | None
    used: int | None = None
    warn_pct: int | None = None
    usage_pct: int | float | None = None
    warning: bool | None = None
    exceeded: bool | None = None
    message: str = ""

    def __post_init__(self) -> None:
        if self.budget is None or self.used is None or self.warn_pct is None:
            self.message = "no budget set"
            return
        self.usage_pct = percent(self.used, self.budget)
        self.exceeded = self.used >= self.budget
        self.warning = not self.exceeded and self.used * 100 >= self.budget * self.warn_pct

    @property
    def status(self) -> str:
        return "EXCEEDED" if self.exceeded else "WARNING" if self.warning else "OK"


# In halves: SQLite gives up where a sum does not fit into 64 bits.
_TOKENS = """
SELECT sum(input_tokens >> 32), sum(input_tokens & 4294967295),
       sum(output_tokens >> 32), sum(output_tokens & 4294967295),
       sum(cache_hits >> 32), sum(cache_hits & 4294967295)
FROM dispatches WHERE run_id = ?
"""
_TOLD = "UPDATE runs SET budget_told = ? WHERE id = ? AND budget_told < ?"


def tokens(conn: sqlite3.Connection, run_id: str) -> Tokens:
    """The tokens of all dispatches of a run; of an unknown run, zeros."""
    halves = [half or 0 for half in conn.execute(_TOKENS, (run_id,)).fetchone()]
    sums = [(high << 32) + low for high, low in zip(halves[::2], halves[1::2], strict=True)]
    given, made, cached = (min(MOST, each) for each in sums)
    return Tokens(run_id, given, made, cached, min(MOST, given + made), cache_ratio(given, cached))


def of_run(conn: sqlite3.Connection, run: Run) -> Budget:
    """How the budget stands."""
    limits = runs.limits(run)
    if limits is None:
        return Budget(run.id, None)
    budget, warn_pct = limits
    return Budget(run.id, budget, tokens(conn, run.id).total_tokens, warn_pct)


def check(conn: sqlite3.Connection, run_id: str, *, actor: Writer, now_ms: int) -> Budget | None:
    """Judge after something was used: a limit that is reached for the first time is an event."""
    run = runs.find(conn, run_id)
    if run is None or run.token_budget is None:
        return None
    budget = of_run(conn, run)
    reached = TOLD_EXCEEDED if budget.exceeded else WARNED if budget.warning else 0
    if conn.execute(_TOLD, (reached, run_id, reached)).rowcount:
        fact = _fact(run, budget, "exceeded" if budget.exceeded else "warning")
        events.append(conn, fact, actor=actor, now_ms=now_ms)
    return budget


def cache_ratio(input_tokens: int, cache_hits: int) -> int | float | None:
    """Percent of the input that came from a cache; None if there was no input at all."""
    if not (input_tokens or cache_hits):
        return None
    return percent(cache_hits, input_tokens + cache_hits) if input_tokens else 0


def percent(part: int, whole: int) -> int | float:
    """A whole number is shown as one: shells cannot compare 500.0."""
    found = part * 100 / whole if whole else 0
    return int(found) if found == int(found) else found


def _fact(run: Run, budget: Budget, kind: str) -> Fact:
    said = {"budget": budget.budget, "used": budget.used, "warn_pct": budget.warn_pct}
    return Fact(
        source="budget",
        type=kind,
        run_id=run.id,
        subject_id=run.id,
        to_state=kind,
        reason=f"{budget.used}/{budget.budget} tokens",
        payload=msgspec.json.encode(said).decode(),
        project_dir=run.project_dir,
    )
