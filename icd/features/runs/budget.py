"""Tokens that a run has used, and whether it may use more.

Used is what its dispatches report, input and output together.  How a budget stands is a question
that may be asked as often as anybody likes: exceeded stays exceeded, until fewer tokens are
reported.  Only the events are once-only: `runs.budget_told` says which were recorded.

Callers run these inside a transaction.
"""

import sqlite3

import msgspec
from msgspec import Struct

from icd.features.events import store as events
from icd.features.events.store import Fact
from icd.features.runs import store as runs
from icd.features.runs.store import Run
from icd.values.processes import Writer
from icd.values.wire import INT64

WARNED, TOLD_EXCEEDED = 1, 2  # of `runs.budget_told`; the second includes the first

# Sums stop here: whoever reports nonsense must not make every question about the run fail.
MOST = INT64 - 1


class Tokens(Struct, frozen=True):
    input_tokens: int
    output_tokens: int
    cache_hits: int

    @property
    def total(self) -> int:
        return min(MOST, self.input_tokens + self.output_tokens)

    @property
    def cache_ratio(self) -> int | float | None:
        """Percent of the input that came from a cache; None if there was no input at all."""
        if not (self.input_tokens or self.cache_hits):
            return None
        whole = self.input_tokens + self.cache_hits
        return percent(self.cache_hits, whole) if self.input_tokens else 0


class Budget(Struct, frozen=True):
    """`warning` and `exceeded` are never both true."""

    run_id: str
    budget: int
    used: int
    warn_pct: int

    @property
    def usage_pct(self) -> int | float:
        return percent(self.used, self.budget)

    @property
    def exceeded(self) -> bool:
        return self.used >= self.budget

    @property
    def warning(self) -> bool:
        return not self.exceeded and self.used * 100 >= self.budget * self.warn_pct


# In halves: SQLite gives up where a sum does not fit into 64 bits.
_TOKENS = """
SELECT sum(input_tokens >> 32), sum(input_tokens & 0xffffffff),
       sum(output_tokens >> 32), sum(output_tokens & 0xffffffff),
       sum(cache_hits >> 32), sum(cache_hits & 0xffffffff)
FROM dispatches WHERE run_id = ?
"""
_TOLD = "UPDATE runs SET budget_told = ? WHERE id = ? AND budget_told < ?"


def tokens(conn: sqlite3.Connection, run_id: str) -> Tokens:
    """Of all dispatches of a run; of an unknown run, zeros."""
    halves = [half or 0 for half in conn.execute(_TOKENS, (run_id,)).fetchone()]
    sums = [(high << 32) + low for high, low in zip(halves[::2], halves[1::2], strict=True)]
    return Tokens(*(min(MOST, each) for each in sums))


def of_run(conn: sqlite3.Connection, run: Run) -> Budget | None:
    """How the budget stands; None if there is none."""
    if run.token_budget is None:
        return None
    used = tokens(conn, run.id).total
    return Budget(run.id, run.token_budget, used, run.budget_warn_pct)


def check(conn: sqlite3.Connection, run_id: str, *, actor: Writer, now_ms: int) -> Budget | None:
    """The same after something was used: a limit that is reached for the first time is an event."""
    run = runs.find(conn, run_id)
    budget = None if run is None else of_run(conn, run)
    if run is None or budget is None:
        return None
    reached = TOLD_EXCEEDED if budget.exceeded else WARNED if budget.warning else 0
    if conn.execute(_TOLD, (reached, run_id, reached)).rowcount:
        fact = _fact(run, budget, "exceeded" if budget.exceeded else "warning")
        events.append(conn, fact, actor=actor, now_ms=now_ms)
    return budget


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
