"""gate signals: which gates were right, as far as what happened afterwards tells.

What the log says of a check, in the words of a test for mistakes:
    - tp: it blocked a run, and stood;
    - fp: it blocked and was overridden, or it failed and the run went on all the same;
    - tn: it passed;
    - fn: it passed, and the run came back from beyond it.

Only what is read together is put together: a rollback after the last event that is read changes
nothing that was answered before.  So read from the beginning, or with room for second thoughts.

Callers run these inside a transaction.
"""

import json
import sqlite3
from collections.abc import Iterator
from itertools import count
from typing import Literal

from msgspec import structs

from icd.features.events import store as events
from icd.features.events.store import Event, Wanted
from icd.features.runs import phases
from icd.features.runs import store as runs
from icd.values.wire import Result

# Events in one answer; `cursor` says where to go on.
MOST = 10_000

Category = Literal["justified", "expedient", "uncategorized"]
_CATEGORIES: tuple[Category, ...] = ("justified", "expedient")
Step = tuple[str, str]


class Signal(Result):
    """`check_type` is empty where nothing is known about the checks."""

    event_id: int
    run_id: str
    check_type: str
    from_phase: str
    to_phase: str
    signal_type: Literal["tp", "fp", "tn", "fn"]
    created_at: int
    category: Category | None = None

    @property
    def step(self) -> Step:
        return self.from_phase, self.to_phase


class Signals(Result):
    """`cursor`: the last event that was read; later ones are told with `since_id`."""

    signals: list[Signal]
    cursor: int


class _Told:
    """The signals so far, in order, and which of them a later event may change.

    Each is changed once, so that a log of any shape takes no longer than it is long.
    """

    def __init__(self) -> None:
        self.signals: dict[int, Signal] = {}
        self._numbers = count()
        self._open: dict[tuple[str, str, str], list[int]] = {}

    def add(self, signal: Signal) -> None:
        number = next(self._numbers)
        self.signals[number] = signal
        if signal.signal_type in _PHASE:
            phase = getattr(signal, _PHASE[signal.signal_type])
            key = signal.signal_type, signal.run_id, phase
            self._open.setdefault(key, []).append(number)

    def take(self, kind: str, run_id: str, phase: str) -> list[int]:
        """The numbers of those of a kind that leave a phase, or enter it; each is given once."""
        return self._open.pop((kind, run_id, phase), [])


# What is overridden is known by the phase that it leaves, what is taken back by the one it enters.
_PHASE = {"tp": "from_phase", "tn": "to_phase"}


def since(conn: sqlite3.Connection, seq: int) -> Signals:
    wanted = Wanted(since=seq, limit=MOST, source="phase")
    found, _ = events.page(conn, wanted)
    told = _Told()
    for event in found:
        if event.type == "override":
            _overridden(told, event)
        elif event.type == "rollback":
            _rolled_back(conn, told, event)
        elif event.type in ("advance", "block"):
            for signal in _judged(event):
                told.add(signal)
    return Signals([*told.signals.values()], found[-1].seq if found else seq)


def _judged(event: Event) -> Iterator[Signal]:
    """What an advance, or a refused one, says about the checks that it met."""
    result = _payload(event).get("gate_result")
    if result not in ("pass", "fail"):
        return
    failed = "tp" if event.type == "block" else "fp"
    for check, step, has_passed in _conditions(event):
        if has_passed and event.type == "block":
            continue
        yield _signal(event, check, step, "tn" if has_passed else failed)


def _overridden(told: _Told, event: Event) -> None:
    """Those who overrode a block say that it was wrong: it counts once, as that."""
    step = event.from_state, event.to_state
    blocks = [told.signals.pop(each) for each in told.take("tp", event.run_id, step[0])]
    checks = {(each.check_type, each.step): None for each in blocks} or {("", step): None}
    for check, at in checks:
        told.add(_signal(event, check, at, "fp", _category(event)))


def _rolled_back(conn: sqlite3.Connection, told: _Told, event: Event) -> None:
    """A check that let a run pass into what was taken back has missed something."""
    run = runs.find(conn, event.run_id)
    chain = phases.DEFAULT if run is None else phases.chain(run)
    if event.from_state not in chain or event.to_state not in chain:
        return
    for phase in phases.between(chain, event.to_state, event.from_state):
        for each in told.take("tn", event.run_id, phase):
            told.signals[each] = structs.replace(told.signals[each], signal_type="fn")


def _signal(
    event: Event, check: str, step: Step, kind: str, category: Category | None = None
) -> Signal:
    at = event.at_ms // 1000
    return Signal(event.seq, event.run_id, check, *step, kind, at, category)  # type: ignore[arg-type]


# --- what is in an event, which any program may have recorded -------------------------------------


def _conditions(event: Event) -> Iterator[tuple[str, Step, bool]]:
    """Each check with its step, and whether it passed; the evidence ends the reason."""
    step = event.from_state, event.to_state
    found = _object(event.reason.rpartition(" | ")[2]).get("conditions")
    seen: set[tuple[str, Step]] = set()
    for each in found if isinstance(found, list) else []:
        if not isinstance(each, dict) or not isinstance(each.get("check"), str):
            continue
        ends = each.get("from_phase") or step[0], each.get("to_phase") or step[1]
        key = each["check"], (str(ends[0]), str(ends[1]))
        if key not in seen:
            seen.add(key)
            yield *key, each.get("result") == "pass"
    if not seen:
        yield "", step, _payload(event).get("gate_result") == "pass"


def _category(event: Event) -> Category:
    """Of ours it is in the payload, of the original's in the reason."""
    for said in (_payload(event), _object(event.reason)):
        for category in _CATEGORIES:
            if said.get("override_category") == category:
                return category
    return "uncategorized"


def _payload(event: Event) -> dict[str, object]:
    found = event.value
    return found if isinstance(found, dict) else {}


def _object(text: str) -> dict[str, object]:
    try:
        found = json.loads(text) if text.startswith("{") else None
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
