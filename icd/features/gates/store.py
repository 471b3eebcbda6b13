"""Gates: whether a run may go on to another phase.

Invariants
    - a run that passes over phases meets the rules of every transition on its way, not only those
      of a transition from where it is to where it goes: a skip never opens a gate;
    - how much a failed check weighs depends on the priority of the work: a hard gate blocks, a soft
      one is told, and unimportant work is not checked at all; the tier of a check, or a calibration
      of the default rules, can only raise that;
    - nothing here changes anything: asking is free, and an advance asks in its own transaction.

Rules say which checks stand between two phases: the default ones, or a run's own, which replace
them altogether, so that what `gate rules` shows is all there is.  A run's own rules are judged
once, when the run is created, and stored as text:

    [{"from": "plan", "to": "work", "checks": [{"check": "artifact_exists", "phase": "plan"}]}]

Newer scripts write a map, {"plan→work": [{"check": "artifact_exists", "tier": "hard"}]}, which is
read as the same list: an empty list asks for nothing, and a check is about the phase that it leaves
if it does not say.

A check is a small function that answers with its evidence; it reads what is recorded about one run
and nothing else.

Callers run these inside a transaction.
"""

import json
import re
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise
from typing import Literal

import msgspec
from msgspec import Struct, field, structs

from icd.errors import IcError, InvalidGates, PhaseRefused, UnreadableGates, UnreadableInput
from icd.features.runs import budget, phases
from icd.features.runs import store as runs
from icd.features.runs.store import Run
from icd.values.validation import shown

# Each check is a statement inside the transaction of an advance, which may pass over every rule:
# all of them together must stay within a few milliseconds.
RULES = 100
CHECKS_OF_A_RULE = 8
RULES_BYTES = 64 * 1024  # room for all of these, with names of usual length
ARROW = "→"

Tier = Literal["hard", "soft", "none"]
_RANK: dict[Tier, int] = {"none": 0, "soft": 1, "hard": 2}

_NAME = re.compile(r"[a-zA-Z0-9_-]+")


# --- checks ---------------------------------------------------------------------------------------


class Condition(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a check found.

    `from_phase` and `to_phase` say which transition asks for it, where a run passes over several;
    `tier` is there if the check weighs more than the priority says.
    """

    check: str
    phase: str | None = None
    result: Literal["pass", "fail"]
    count: int | None = None
    detail: str | None = None
    from_phase: str | None = None
    to_phase: str | None = None
    tier: Tier | None = None


class Kind(Struct, frozen=True):
    """Given the connection, the id of a run and a phase, which most checks are not about."""

    judge: Callable[[sqlite3.Connection, str, str], Condition]
    takes_phase: bool = False


_ARTIFACTS = """
SELECT count(*) FROM run_artifacts WHERE run_id = ? AND phase = ? AND status = 'active'
"""
# A verdict may say anything else; these two mean yes for certain.
_VERDICT = """
SELECT 1 FROM dispatches WHERE run_id = ? AND verdict_status IN ('pass', 'warn') LIMIT 1
"""


def artifact_exists(conn: sqlite3.Connection, run_id: str, phase: str) -> Condition:
    """The phase has left something behind that was not rolled back."""
    (count,) = conn.execute(_ARTIFACTS, (run_id, phase)).fetchone()
    detail = None if count else f'no artifacts found for phase "{phase}"'
    return _condition("artifact_exists", detail, phase=phase, count=count)


def agents_complete(conn: sqlite3.Connection, run_id: str, _phase: str) -> Condition:
    """No agent works on the run any more."""
    count = runs.active_agents(conn, run_id)
    detail = f"{count} agents still active" if count else None
    return _condition("agents_complete", detail, count=count)


def verdict_exists(conn: sqlite3.Connection, run_id: str, _phase: str) -> Condition:
    """A dispatch of the run has ended with a verdict that is not a no."""
    found = conn.execute(_VERDICT, (run_id,)).fetchone()
    return _condition("verdict_exists", None if found else "no passing verdict found")


def budget_not_exceeded(conn: sqlite3.Connection, run_id: str, _phase: str) -> Condition:
    """The run has used less than its budget of tokens, or has none."""
    found = budget.of_run(conn, runs.require(conn, run_id))
    return _condition("budget_not_exceeded", "token budget exceeded" if found.exceeded else None)


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
    "budget_not_exceeded": Kind(budget_not_exceeded),
}


# --- rules ----------------------------------------------------------------------------------------


class Check(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """`tier`: how much it weighs at least, whatever the priority is."""

    check: str
    phase: str | None = None
    tier: Literal["hard", "soft"] | None = None


class Rule(Struct, frozen=True, forbid_unknown_fields=True):
    """What is checked before a run goes from one phase to the next."""

    from_phase: str = field(name="from")
    to_phase: str = field(name="to")
    checks: tuple[Check, ...]

    @property
    def transition(self) -> tuple[str, str]:
        return self.from_phase, self.to_phase


def _rule(from_phase: str, to_phase: str, *checks: Check) -> Rule:
    return Rule(from_phase, to_phase, checks)


# Nothing is asked for between polish and reflect.
DEFAULT = (
    _rule("brainstorm", "brainstorm-reviewed", Check("artifact_exists", "brainstorm")),
    _rule("brainstorm-reviewed", "strategized", Check("artifact_exists", "brainstorm-reviewed")),
    _rule("strategized", "planned", Check("artifact_exists", "strategized")),
    _rule("planned", "executing", Check("artifact_exists", "planned")),
    _rule("executing", "review", Check("agents_complete")),
    _rule("review", "polish", Check("verdict_exists")),
    _rule("reflect", "done", Check("artifact_exists", "reflect")),
)


# What a run with an enforced budget is asked before each step.
BUDGET = Check("budget_not_exceeded", tier="hard")


def rules_of(run: Run) -> tuple[Rule, ...]:
    """The rules of a run.  What cannot be understood opens no gate."""
    try:
        rules = DEFAULT if run.gates is None else _read(run.gates)
    except InvalidGates as exc:
        raise UnreadableGates(f"run {run.id}: {exc.message}") from exc
    return _enforcing(rules, phases.chain(run)) if run.budget_enforce else rules


def _enforcing(rules: tuple[Rule, ...], chain: Sequence[str]) -> tuple[Rule, ...]:
    """The same rules, and the budget before each step of the chain."""
    checks = {rule.transition: rule.checks for rule in rules}
    for step in pairwise(chain):
        others = (each for each in checks.get(step, ()) if each.check != BUDGET.check)
        checks[step] = (*others, BUDGET)
    return tuple(Rule(*step, each) for step, each in checks.items())


def met(rules: Collection[Rule], chain: Sequence[str], phase: str | None = None) -> list[Rule]:
    """What a run with these phases meets, in that order: on leaving `phase`, or on all its way."""
    by_transition = {rule.transition: rule for rule in rules}
    steps = [step for step in pairwise(chain) if phase in (None, step[0])]
    return [by_transition[step] for step in steps if step in by_transition]


def parse(text: str) -> str:
    """Rules as they were written; the answer is the text that is stored."""
    rules = _read(text)
    return msgspec.json.encode(rules).decode()


def check_against(text: str, chain: Sequence[str]) -> None:
    """Refuse rules that a run with these phases would never meet: they protect nothing."""
    steps = set(pairwise(chain))
    for number, rule in enumerate(_read(text), start=1):
        if rule.transition not in steps:
            raise _wrong(number, f"the run's chain has no transition {_arrow(rule)}")
        for check in rule.checks:
            if check.phase is not None and check.phase not in chain:
                raise _wrong(number, f"{check.phase} is not a phase of the run's chain")


def _read(text: str) -> tuple[Rule, ...]:
    if len(text) > RULES_BYTES or len(text.encode("utf-8", "surrogatepass")) > RULES_BYTES:
        raise InvalidGates(f"gate rules: more than {RULES_BYTES} bytes")
    try:
        entries = json.loads(text, object_pairs_hook=_distinct)
    except (ValueError, RecursionError) as exc:
        reason = "nested too deeply" if isinstance(exc, RecursionError) else exc
        raise InvalidGates(f"gate rules: not JSON: {reason}") from exc
    if isinstance(entries, dict) and entries:
        entries = [rule for key, checks in entries.items() for rule in _from_map(key, checks)]
    if not isinstance(entries, list):
        raise InvalidGates("gate rules: not a JSON array, or an object with transitions")
    if len(entries) > RULES:
        raise InvalidGates(f"gate rules: more than {RULES} entries")
    rules = tuple(_entry(number, entry) for number, entry in enumerate(entries, start=1))
    _refuse_repetition(rules)
    return rules


def _from_map(key: str, checks: object) -> Iterator[object]:
    """An entry of a map, which names its transition, as the list has it."""
    from_phase, _, to_phase = (each.strip() for each in key.partition(ARROW))
    if not from_phase or not to_phase:
        raise InvalidGates(f"gate rules: the key {shown(key)} is not FROM{ARROW}TO")
    if checks == []:
        return
    if isinstance(checks, list):
        checks = [_said(each, from_phase) if isinstance(each, dict) else each for each in checks]
    yield {"from": from_phase, "to": to_phase, "checks": checks}


def _said(check: dict[str, object], from_phase: str) -> dict[str, object]:
    """A check of a map, without what is empty there, or means nothing to this check."""
    said = {name: value for name, value in check.items() if value not in ("", None)}
    kind = CHECKS.get(str(check.get("check")))
    if kind is None:
        return said
    if not kind.takes_phase:
        return {name: value for name, value in said.items() if name != "phase"}
    return {"phase": from_phase} | said


def _distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Of two fields with one name, JSON would silently take the last."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the field {shown(twice)} appears twice")
    return found


def _entry(number: int, entry: object) -> Rule:
    try:
        rule = msgspec.convert(entry, Rule)
    except msgspec.ValidationError as exc:
        raise _wrong(number, str(exc)) from exc
    except UnicodeError as exc:  # JSON can spell lone surrogates
        raise _wrong(number, "contains a value that is not text") from exc
    for name in rule.transition:
        _check_name(number, name)
    if not rule.checks:
        raise _wrong(number, f"{_arrow(rule)} has no checks; remove it")
    if len(rule.checks) > CHECKS_OF_A_RULE:
        raise _wrong(number, f"{_arrow(rule)} has more than {CHECKS_OF_A_RULE} checks")
    for check in rule.checks:
        _check_check(number, check)
        if rule.checks.count(check) > 1:
            raise _wrong(number, f"{check.check} appears twice")
    return rule


def _check_check(number: int, check: Check) -> None:
    kind = CHECKS.get(check.check)
    if kind is None:
        raise _wrong(number, f"unknown check {shown(check.check)}; known: {', '.join(CHECKS)}")
    if kind.takes_phase and check.phase is None:
        raise _wrong(number, f"{check.check} needs a phase")
    if check.phase is not None and not kind.takes_phase:
        raise _wrong(number, f"{check.check} takes no phase")
    if check.phase is not None:
        _check_name(number, check.phase)


def _check_name(number: int, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise _wrong(number, f"invalid phase name {shown(name)} (must match [a-zA-Z0-9_-]+)")


def _refuse_repetition(rules: Sequence[Rule]) -> None:
    seen: set[tuple[str, str]] = set()
    for number, rule in enumerate(rules, start=1):
        if rule.transition in seen:
            raise _wrong(number, f"{_arrow(rule)} appears twice; put all checks into one entry")
        seen.add(rule.transition)


def _arrow(rule: Rule) -> str:
    return f"{rule.from_phase} → {rule.to_phase}"


def _wrong(number: int, what: str) -> IcError:
    return InvalidGates(f"gate rules: entry {number}: {what}")


# --- whether a run may go on ----------------------------------------------------------------------


# What an advance and the question before it take for granted; soft.
DEFAULT_PRIORITY = 3
HARD_THROUGH = 1
SOFT_THROUGH = 3


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
    conn: sqlite3.Connection,
    run: Run,
    to_phase: str,
    *,
    priority: int,
    disabled: bool = False,
    raised: Collection[str] = (),
) -> Verdict:
    """Whether the run may go from where it is to `to_phase`.

    `raised`: those of the default rules that are hard, by their keys.
    """
    usual = tier_of(priority)
    raised = raised if run.gates is None else ()
    if disabled or (usual == "none" and not _has_tiers(run, raised)):
        return Verdict("none", "none", [])
    way = [run.phase, *phases.between(phases.chain(run), run.phase, to_phase)]
    if len(way) == 1:  # no rule would be met: never take that for a pass
        raise PhaseRefused(f"{to_phase} is not ahead of {run.phase}")
    rules = {rule.transition: rule.checks for rule in rules_of(run)}
    passes_over = len(way) > 2
    evidence, weights = [], []
    for step in pairwise(way):
        for check in rules.get(step, ()):
            tier = _weight(check, usual, is_raised=key_of(check.check, step) in raised)
            if tier == "none":
                continue
            found = CHECKS[check.check].judge(conn, run.id, check.phase or "")
            found = found if tier == usual else structs.replace(found, tier=tier)
            evidence.append(_of_step(found, step) if passes_over else found)
            weights.append((found.result == "fail", tier))
    return _judged(usual, weights, evidence)


def _has_tiers(run: Run, raised: Collection[str]) -> bool:
    """Whether any check may be asked that the priority would spare."""
    if raised or run.budget_enforce:
        return True
    try:
        return any(each.tier for rule in rules_of(run) for each in rule.checks)
    except UnreadableGates:
        return False  # as it was before checks had tiers: unimportant work goes on


def _weight(check: Check, usual: Tier, *, is_raised: bool) -> Tier:
    return max(usual, check.tier or "none", "hard" if is_raised else "none", key=_RANK.__getitem__)


def _judged(
    usual: Tier, weights: Sequence[tuple[bool, Tier]], evidence: list[Condition]
) -> Verdict:
    """The tier is that of what has failed, else the hardest one."""
    if not evidence and usual == "none":
        return Verdict("none", "none", [])
    failed = [tier for has_failed, tier in weights if has_failed]
    tiers = failed or [tier for _, tier in weights] or [usual]
    return Verdict("fail" if failed else "pass", max(tiers, key=_RANK.__getitem__), evidence)


# How long a calibration counts: what made it measures once a day.
CALIBRATED_SECONDS = 24 * 3600


class Calibrated(Struct, frozen=True):
    tier: str = ""
    locked: bool = False


class Calibration(Struct, frozen=True):
    """The file that newer scripts make of `gate signals`: tiers of the default rules."""

    created_at: float = 0.0
    tiers: dict[str, Calibrated] = {}

    def raised(self) -> set[str]:
        """The keys of the checks that it makes hard; it can make none easier."""
        return {key for key, each in self.tiers.items() if each.tier == "hard" and not each.locked}

    def is_stale(self, now_ms: int) -> bool:
        return now_ms / 1000 - self.created_at > CALIBRATED_SECONDS


def calibration(text: bytes) -> Calibration:
    try:
        return msgspec.json.decode(text, type=Calibration)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise UnreadableInput(
            f"it is not a calibration: {exc}", hint="make it anew, or leave it out"
        ) from exc


def raised(text: bytes, warnings: list[str], *, now_ms: int) -> set[str]:
    """What a calibration makes hard; one that is too old counts for nothing, and is told."""
    if text == b"null":
        return set()
    found = calibration(text)
    if found.is_stale(now_ms):
        warnings.append("the calibration is older than 24 h and was ignored")
        return set()
    return found.raised()


def key_of(check: str, step: tuple[str, str]) -> str:
    """What a calibration calls a check of the default rules."""
    return f"{check}:{step[0]}{ARROW}{step[1]}"


def tier_of(priority: int) -> Tier:
    if priority <= HARD_THROUGH:
        return "hard"
    return "soft" if priority <= SOFT_THROUGH else "none"


def _of_step(condition: Condition, step: tuple[str, str]) -> Condition:
    return structs.replace(condition, from_phase=step[0], to_phase=step[1])
