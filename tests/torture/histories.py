"""What sixteen clients did with one set of keys, and whether it can be explained.

Moments are of CLOCK_MONOTONIC, taken before a client asks and after it was answered.
"""

import random
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.torture import calls, models
from tests.torture.checker import UNKNOWN, Model, Operation, Undecided, is_linearizable
from tests.torture.clients import Client, NotExecuted
from tests.torture.suite import Broken

INTERVAL_SECONDS = 1
# Of a lease that nobody gives up in time, and of one that ends again and again: the sixteen who want
# it meet it about so often that its holder is sometimes in time, and sometimes late.
LONG_MS, SHORT_MS = 3_600_000, 200
LAST_PHASE = 99  # a run has 100 phases at most
SHOWN = 30  # operations around the one that cannot be explained
# Those who know what a call did without asking: an unknown one of these changed nothing.
READS = ("get", "phase", "holders", "members", "list")


class Key(NamedTuple):
    """`kind` as calls.py knows it; `choose` picks a call, for a client and what was seen last."""

    kind: str
    name: str
    model: Model
    choose: Callable[[random.Random, str, int], tuple[Any, ...]]
    look: tuple[Any, ...]  # that which ends the history
    is_timed: bool = False  # whether its model knows what time it is
    for_repeaters: bool = True  # whether asking again under the same id is the same as asking once


class Recording:
    """The history of one key, as it grows."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.operations: list[Operation] = []
        self._seen = 0  # the last version or phase that somebody was told: for those who compare

    def play(self, client: Client, rng: random.Random) -> None:
        self.ask(client, self.key.choose(rng, client.name, self._seen))

    def ask(self, client: Client, call: tuple[Any, ...]) -> None:
        argv = calls.words(self.key.kind, self.key.name, call)
        invoked = time.monotonic()
        try:
            reply = client.ask(argv)
        except NotExecuted:
            return
        returned = time.monotonic()
        if reply is None:
            self._add(client, call, None, invoked, UNKNOWN)
            return
        answer = calls.answer(self.key.kind, call, reply)
        self._add(client, call, answer, invoked, returned)
        if self.key.kind == "versions" and call[0] != "delete":
            self._seen = (answer[1] if call[0] == "get" else answer) or self._seen
        if self.key.kind == "run":
            self._seen = max(self._seen, answer)

    def _add(self, client: Client, call: tuple[Any, ...], answer: Any, *when: float) -> None:
        if when[1] != UNKNOWN or call[0] not in READS:
            self.operations.append(Operation(client.name, call, answer, *when))

    def check(self) -> bool:
        """Raise Broken if it cannot have happened; False if that could not be found out."""
        try:
            if is_linearizable(self.operations, self.key.model):
                return True
        except Undecided:
            return False
        culprit = self._culprit()
        near = sorted(self.operations, key=lambda each: abs(each.invoked - culprit.invoked))[:SHOWN]
        told = [_line(each, culprit) for each in sorted(near, key=lambda each: each.invoked)]
        raise Broken(
            f"{self.key.kind} {self.key.name}: no order of its {len(self.operations)} operations "
            f"explains the answer marked >, unknown ones are marked ?\n" + "\n".join(told)
        )

    def _culprit(self) -> Operation:
        """The first answer with which the history until then cannot be explained."""
        answered = sorted(
            (each for each in self.operations if not each.is_unknown), key=lambda o: o.returned
        )
        low, high = 0, len(answered) - 1
        while low < high:
            middle = (low + high) // 2
            if self._is_explained_until(answered[middle].returned):
                low = middle + 1
            else:
                high = middle
        return answered[low]

    def _is_explained_until(self, moment: float) -> bool:
        try:
            return is_linearizable(self._until(moment), self.key.model)
        except Undecided:
            return True  # look later: the whole is known to be bad

    def _until(self, moment: float) -> list[Operation]:
        """What was not answered by then was unknown by then."""
        return [
            each if each.returned <= moment else each._replace(answer=None, returned=UNKNOWN)
            for each in self.operations
            if each.invoked <= moment
        ]


def _line(operation: Operation, culprit: Operation) -> str:
    mark = ">" if operation is culprit else "?" if operation.is_unknown else " "
    call = " ".join(map(str, operation.call))
    end = "…" if operation.is_unknown else f"{operation.returned:.6f}"
    return f"{mark} {operation.invoked:.6f}-{end} {operation.client}: {call} -> {operation.answer}"


def keys(prefix: str, run_id: str, lane: str) -> list[Key]:
    """Fresh ones: few enough for sixteen clients to meet at each."""
    interval = ("check", INTERVAL_SECONDS)
    return [
        Key("register", f"{prefix}.register", models.Register(), _register, ("get",)),
        Key("register", f"{prefix}.other", models.Register(), _register, ("get",)),
        Key("versions", f"{prefix}.versions", models.Versions(), _versions, ("get",)),
        Key("versions", f"{prefix}.swaps", models.Versions(), _swaps, ("get",)),
        Key("counter", f"{prefix}.counter", models.Counter(), _counter, ("get",)),
        Key("counter", f"{prefix}.count", models.Counter(), _counter, ("get",)),
        Key("sentinel", f"{prefix}.once", models.Once(), _once, ("check", 0)),
        Key("sentinel", f"{prefix}.reset", models.Once(), _resets, ("check", 0), for_repeaters=False),
        Key("sentinel", f"{prefix}.throttle", models.Throttle(INTERVAL_SECONDS),
            lambda *_: interval, interval, is_timed=True, for_repeaters=False),
        Key("lease", f"{prefix}.lease", models.Lease(LONG_MS / 1000), _lease,
            ("acquire", "last", LONG_MS)),
        Key("lease", f"{prefix}.ends", models.Lease(SHORT_MS / 1000), _short_lease,
            ("acquire", "last", SHORT_MS), is_timed=True),
        Key("reservations", f"{prefix}.files", models.Reservations(), _reservations,
            ("holders", "**")),
        Key("lane", lane, models.Members(), _members, ("members",)),
        Key("actions", run_id, models.Actions(), _actions, ("list",)),
        Key("run", run_id, models.Run(LAST_PHASE), _run, ("phase",)),
    ]  # fmt: skip


def _register(rng: random.Random, client: str, _seen: int) -> tuple[Any, ...]:
    value = f"{client}/{rng.getrandbits(40):x}"
    return rng.choice([("set", value), ("get",), ("get",), ("delete",)])


def _versions(rng: random.Random, client: str, seen: int) -> tuple[Any, ...]:
    value = f"{client}/{rng.getrandbits(40):x}"
    return rng.choice(
        [("swap", seen, value), ("swap", 0, value), ("get",), ("set", value), ("delete",)]
    )


def _swaps(rng: random.Random, client: str, seen: int) -> tuple[Any, ...]:
    return rng.choice([("swap", seen, f"{client}/{rng.getrandbits(40):x}"), ("get",)])


def _counter(rng: random.Random, _client: str, _seen: int) -> tuple[Any, ...]:
    return ("incr",) if rng.random() < 0.7 else ("get",)


def _once(_rng: random.Random, _client: str, _seen: int) -> tuple[Any, ...]:
    return ("check", 0)


def _resets(rng: random.Random, _client: str, _seen: int) -> tuple[Any, ...]:
    return ("reset",) if rng.random() < 0.3 else ("check", 0)


def _lease(rng: random.Random, client: str, _seen: int) -> tuple[Any, ...]:
    return rng.choice([("acquire", client, LONG_MS), ("release", client), ("renew", client)])


def _short_lease(rng: random.Random, client: str, _seen: int) -> tuple[Any, ...]:
    """Rarely given up, so that it ends by itself."""
    claims = [("acquire", client, SHORT_MS)] * 6
    return rng.choice([*claims, ("renew", client), ("renew", client), ("release", client)])


def _reservations(rng: random.Random, client: str, _seen: int) -> tuple[Any, ...]:
    pattern = rng.choice(["a/b", "a/*", "*/b", "c/b"])
    verb = rng.choice(["reserve", "reserve", "release", "release", "holders"])
    if verb == "holders":
        return ("holders", pattern)
    mode = (rng.random() < 0.6,) if verb == "reserve" else ()
    return (verb, client, pattern, *mode)


def _members(rng: random.Random, client: str, _seen: int) -> tuple[Any, ...]:
    beads = rng.sample(["B-1", "B-2", "B-3", client], rng.randint(0, 3))
    return rng.choice([("sync", *beads), ("members",)])


def _actions(rng: random.Random, _client: str, _seen: int) -> tuple[Any, ...]:
    verb, command = rng.choice(["add", "delete", "list"]), rng.choice(["/a", "/b", "/c"])
    return (verb,) if verb == "list" else (verb, command)


def _run(rng: random.Random, _client: str, seen: int) -> tuple[Any, ...]:
    return rng.choice([("advance", seen), ("advance", seen), ("phase",), ("advance",)])
