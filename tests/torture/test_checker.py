"""The checker itself, on histories that are known to be good and known to be bad."""

import heapq
import random

import pytest

from tests.torture.checker import UNKNOWN, Model, Operation, Undecided, is_linearizable
from tests.torture.models import (
    Actions,
    Counter,
    Lease,
    Members,
    Once,
    Register,
    Reservations,
    Run,
    Throttle,
    Versions,
)


def history(*rows: tuple) -> list[Operation]:
    """(invoked, returned, call, answer); None for returned: unknown."""
    return [
        Operation(
            f"c{number}", call, None if end is None else answer, begin, UNKNOWN if end is None else end
        )
        for number, (begin, end, call, answer) in enumerate(rows)
    ]  # fmt: skip


GOOD = {
    "nothing at all": (Register(), []),
    "one after the other": (
        Register(),
        [(0, 1, ("set", 1), True), (2, 3, ("get",), 1), (4, 5, ("delete",), True)],
    ),
    "concurrent writes in either order": (
        Register(),
        [(0, 9, ("set", 1), True), (0, 9, ("set", 2), True), (10, 11, ("get",), 1)],
    ),
    "a read during a write sees either": (
        Register(),
        [(0, 9, ("set", 1), True), (1, 2, ("get",), "absent"), (3, 4, ("get",), 1)],
    ),
    "an unknown write that took effect late": (
        Register(),
        [(0, None, ("set", 1), None), (2, 3, ("get",), "absent"), (4, 5, ("set", 2), True),
         (6, 7, ("get",), 2), (8, 9, ("get",), 1)],
    ),
    "an unknown write that never did": (
        Register(),
        [(0, None, ("set", 1), None), (2, 3, ("get",), "absent"), (4, 5, ("get",), "absent")],
    ),
    "the winner of a swap, and those who lost": (
        Versions(),
        [(0, 1, ("set", "a"), 7), (2, 5, ("swap", 7, "b"), 9), (2, 5, ("swap", 7, "c"), 0),
         (6, 7, ("get",), ("b", 9))],
    ),
    "a swap over an unknown write, whose version was read": (
        Versions(),
        [(0, None, ("set", "a"), None), (1, 2, ("get",), ("a", 4)), (3, 4, ("swap", 4, "b"), 5)],
    ),
    "a lost swap because of an unknown one": (
        Versions(),
        [(0, 1, ("set", "a"), 1), (2, None, ("swap", 1, "b"), None), (3, 4, ("swap", 1, "c"), 0)],
    ),
    "counting, one of them unknown": (
        Counter(),
        [(0, 1, ("incr",), 1), (2, None, ("incr",), None), (3, 4, ("incr",), 3), (5, 6, ("get",), 3)],
    ),
    "many unknown increments, of which two counted": (
        Counter(),
        [*[(0, None, ("incr",), None)] * 30, (1, 2, ("get",), 1), (3, 4, ("get",), 2)],
    ),
    "one claim, and another after the reset": (
        Once(),
        [(0, 1, ("check",), True), (2, 3, ("check",), False), (4, 5, ("reset",), True),
         (6, 7, ("check",), True)],
    ),
    "refused because of a claim that nobody heard of": (
        Once(),
        [(0, None, ("check",), None), (2, 3, ("check",), False)],
    ),
    "one claim in each window": (
        Throttle(10),
        [(0, 1, ("check",), True), (2, 3, ("check",), False), (10, 12, ("check",), True)],
    ),
    "a lease from hand to hand": (
        Lease(3600),
        [(0, 1, ("acquire", "a"), 1), (2, 3, ("acquire", "b"), 0), (4, 5, ("renew", "a"), 1),
         (6, 7, ("release", "a"), "released"), (8, 9, ("acquire", "b"), 2), (10, 11, ("release", "a"), 0)],
    ),
    "a lease that was acquired unheard": (
        Lease(3600),
        [(0, None, ("acquire", "a"), None), (2, 3, ("acquire", "b"), 0), (4, 5, ("renew", "a"), 3)],
    ),
    "a lease that ends, and is taken over": (
        Lease(10),
        [(0, 1, ("acquire", "a"), 1), (9, 9.5, ("acquire", "b"), 0), (10, 12, ("acquire", "b"), 2),
         (13, 14, ("renew", "a"), 0), (15, 16, ("release", "a"), 0)],
    ),
    "a lease that may have ended, or not": (
        Lease(10),
        [(0, 8, ("acquire", "a"), 1), (12, 13, ("acquire", "b"), 0), (12, 13, ("renew", "a"), 1)],
    ),
    "a lease that may have ended, and had": (
        Lease(10),
        [(0, 8, ("acquire", "a"), 1), (12, 13, ("renew", "a"), 0), (12, 13, ("acquire", "b"), 2)],
    ),
    "a lease that ended is acquired anew by its holder": (
        Lease(10),
        [(0, 1, ("acquire", "a"), 1), (20, 21, ("acquire", "a"), 2), (22, 23, ("release", "a"), "released"),
         (24, 25, ("release", "a"), "not held")],
    ),
    "a lease that was renewed in time, and unheard": (
        Lease(10),
        [(0, 1, ("acquire", "a"), 1), (5, None, ("renew", "a"), None), (14, 15, ("acquire", "b"), 0),
         (30, 31, ("acquire", "b"), 2)],
    ),
    "a lease that was acquired unheard, in time or anew": (
        Lease(10),
        [(0, 1, ("acquire", "a"), 1), (5, None, ("acquire", "a"), None), (14, 15, ("acquire", "b"), 0),
         (16, 17, ("renew", "a"), 1)],
    ),
    "a lease that was acquired unheard, after its end": (
        Lease(10),
        [(0, 1, ("acquire", "a"), 1), (5, None, ("acquire", "a"), None), (14, 15, ("acquire", "b"), 0),
         (16, 17, ("renew", "a"), 2)],
    ),
    "a renewal whose holder was stopped for long": (
        Lease(10),
        [(0, 1, ("acquire", "a"), 1), (9, 40, ("renew", "a"), 1), (15, 16, ("acquire", "b"), 0),
         (41, 42, ("acquire", "b"), 2)],
    ),
    "files from hand to hand, and shared": (
        Reservations(),
        [(0, 1, ("reserve", "a", "a/*", True), True), (2, 3, ("reserve", "b", "*/b", False), False),
         (4, 5, ("release", "a", "a/*"), 1), (6, 9, ("reserve", "b", "*/b", False), True),
         (6, 9, ("reserve", "a", "a/b", False), True), (10, 11, ("holders", "a/b"), ("a", "b"))],
    ),
    "refused because of a reservation that nobody heard of": (
        Reservations(),
        [(0, None, ("reserve", "a", "a/*", True), None), (2, 3, ("reserve", "b", "a/b", True), False)],
    ),
    "a lane that is synced unheard": (
        Members(),
        [(0, 1, ("sync", "a", "b"), (["a", "b"], [])), (2, None, ("sync", "c"), None),
         (3, 4, ("members",), ["a", "b"]), (5, 6, ("sync", "c"), ([], []))],
    ),
    "actions in the order in which they were added": (
        Actions(),
        [(0, 5, ("add", "/b"), True), (0, 5, ("add", "/a"), True), (0, 5, ("add", "/a"), False),
         (6, 7, ("list",), ["/b", "/a"]), (8, 9, ("delete", "/b"), True), (10, 11, ("list",), ["/a"])],
    ),
    "of two who advance, one does": (
        Run(9),
        [(0, 5, ("advance", 0), 1), (0, 5, ("advance", 0), -1), (6, 7, ("phase",), 1)],
    ),
}  # fmt: skip

BAD = {
    "a stale read": (
        Register(),
        [(0, 1, ("set", 1), True), (2, 3, ("set", 2), True), (4, 5, ("get",), 1)],
    ),
    "a read that goes back": (
        Register(),
        [(0, 9, ("set", 1), True), (1, 2, ("get",), 1), (3, 4, ("get",), "absent")],
    ),
    "a value that nobody wrote": (Register(), [(0, 1, ("set", 1), True), (2, 3, ("get",), 5)]),
    "a write that was lost": (
        Register(), [(0, 1, ("set", 1), True), (2, 3, ("get",), "absent")],
    ),
    "an unknown write that took effect before it was asked": (
        Register(), [(0, 1, ("get",), 1), (2, None, ("set", 1), None)],
    ),
    "an unknown write that took effect twice": (
        Register(),
        [(0, None, ("set", 1), None), (1, 2, ("get",), 1), (3, 4, ("set", 2), True),
         (5, 6, ("get",), 2), (7, 8, ("get",), 1)],
    ),
    "a deletion of nothing that found something": (Register(), [(0, 1, ("delete",), True)]),
    "two who replaced the same version": (
        Versions(),
        [(0, 1, ("set", "a"), 7), (2, 5, ("swap", 7, "b"), 8), (2, 5, ("swap", 7, "c"), 9)],
    ),
    "a swap that was refused without a reason": (
        Versions(), [(0, 1, ("set", "a"), 7), (2, 3, ("swap", 7, "b"), 0)],
    ),
    "a version that came again": (
        Versions(), [(0, 1, ("set", "a"), 7), (2, 3, ("delete",), True), (4, 5, ("set", "b"), 7)],
    ),
    "a lost update": (Counter(), [(0, 5, ("incr",), 1), (0, 5, ("incr",), 1)]),
    "an increment that counted twice": (Counter(), [(0, 1, ("incr",), 1), (2, 3, ("get",), 2)]),
    "an unknown increment that counted twice": (
        Counter(), [(0, None, ("incr",), None), (1, 2, ("get",), 2)],
    ),
    "a double claim": (Once(), [(0, 5, ("check",), True), (1, 4, ("check",), True)]),
    "a refusal though nobody had claimed": (Once(), [(0, 1, ("check",), False)]),
    "a double claim in one window": (
        Throttle(10), [(0, 1, ("check",), True), (8, 9, ("check",), True)],
    ),
    "a refusal long after the window": (
        Throttle(10), [(0, 1, ("check",), True), (12, 13, ("check",), False)],
    ),
    "two holders of a lease": (
        Lease(3600), [(0, 1, ("acquire", "a"), 1), (2, 3, ("acquire", "b"), 2)],
    ),
    "a token that came again": (
        Lease(3600),
        [(0, 1, ("acquire", "a"), 1), (2, 3, ("release", "a"), "released"), (4, 5, ("acquire", "b"), 1)],
    ),
    "a lease renewed by one who had lost it": (
        Lease(3600), [(0, 1, ("acquire", "a"), 1), (2, 3, ("renew", "b"), 1)],
    ),
    "a lease that was taken over before its end": (
        Lease(10), [(0, 1, ("acquire", "a"), 1), (5, 9.9, ("acquire", "b"), 2)],
    ),
    "a lease that was taken over before the end of its renewal": (
        Lease(10),
        [(0, 1, ("acquire", "a"), 1), (5, 6, ("renew", "a"), 1), (12, 14, ("acquire", "b"), 2)],
    ),
    "a lease that lasts after its end": (
        Lease(10), [(0, 1, ("acquire", "a"), 1), (12, 13, ("acquire", "b"), 0)],
    ),
    "a lease renewed after its end": (
        Lease(10), [(0, 1, ("acquire", "a"), 1), (12, 13, ("renew", "a"), 1)],
    ),
    "a lease lost before its end": (
        Lease(10), [(0, 1, ("acquire", "a"), 1), (5, 6, ("renew", "a"), 0)],
    ),
    "a lease that ended is acquired with its old token": (
        Lease(10), [(0, 1, ("acquire", "a"), 1), (12, 13, ("acquire", "a"), 1)],
    ),
    "a lease taken over with the token of the holder before": (
        Lease(10), [(0, 1, ("acquire", "a"), 1), (12, 13, ("acquire", "b"), 1)],
    ),
    "a release of what had ended": (
        Lease(10), [(0, 1, ("acquire", "a"), 1), (12, 13, ("release", "a"), "released")],
    ),
    "a holder that is told that nobody holds it": (
        Lease(10), [(0, 1, ("acquire", "a"), 1), (5, 6, ("release", "b"), "not held")],
    ),
    "taken over, though the last to ask had heard that it is held": (
        Lease(10),
        [(0, 8, ("acquire", "a"), 1), (12, 13, ("acquire", "b"), 2), (14, 15, ("renew", "a"), 1)],
    ),
    "two exclusive holders of one path": (
        Reservations(),
        [(0, 5, ("reserve", "a", "a/*", True), True), (1, 4, ("reserve", "b", "*/b", True), True)],
    ),
    "an exclusive holder beside one that shares": (
        Reservations(),
        [(0, 1, ("reserve", "a", "a/*", False), True), (2, 3, ("reserve", "b", "**", True), True)],
    ),
    "a refusal though nobody holds it": (
        Reservations(),
        [(0, 1, ("reserve", "a", "c/b", True), True), (2, 3, ("reserve", "b", "a/*", True), False)],
    ),
    "a holder that has released": (
        Reservations(),
        [(0, 1, ("reserve", "a", "a/b", True), True), (2, 3, ("release", "a", "a/b"), 1),
         (4, 5, ("holders", "**"), ("a",))],
    ),
    "an issue that two put into a lane": (
        Members(),
        [(0, 5, ("sync", "a"), (["a"], [])), (0, 5, ("sync", "a"), (["a"], []))],
    ),
    "an issue that left a lane and is in it": (
        Members(),
        [(0, 1, ("sync", "a"), (["a"], [])), (2, 3, ("sync",), ([], ["a"])), (4, 5, ("members",), ["a"])],
    ),
    "an action that two added": (
        Actions(), [(0, 5, ("add", "/a"), True), (0, 5, ("add", "/a"), True)],
    ),
    "an action that was deleted and is there": (
        Actions(),
        [(0, 1, ("add", "/a"), True), (2, 3, ("delete", "/a"), True), (4, 5, ("list",), ["/a"])],
    ),
    "two who advanced from one phase": (
        Run(9), [(0, 5, ("advance", 0), 1), (0, 5, ("advance", 0), 1)],
    ),
    "a run that went back": (Run(9), [(0, 1, ("advance",), 1), (2, 3, ("phase",), 0)]),
    "a run that went on after its end": (Run(1), [(0, 1, ("advance",), 1), (2, 3, ("advance",), 2)]),
}  # fmt: skip


@pytest.mark.parametrize("model, rows", GOOD.values(), ids=GOOD)
def test_a_history_that_can_have_happened_is_accepted(model: Model, rows: list[tuple]) -> None:
    assert is_linearizable(history(*rows), model)


@pytest.mark.parametrize("model, rows", BAD.values(), ids=BAD)
def test_a_history_that_cannot_have_happened_is_refused(model: Model, rows: list[tuple]) -> None:
    assert not is_linearizable(history(*rows), model)


def test_a_search_that_takes_too_long_says_so() -> None:
    rows = [(0, None, ("set", n), None) for n in range(30)]

    with pytest.raises(Undecided):
        is_linearizable(history(*rows, (1, 2, ("get",), 99)), Register(), steps=100)


TTL_MS = 200
OWNERS = ("a", "b", "c", "d", "e")


class Simulated:
    """A lease as it is, with a clock of whole milliseconds that is a little too fast."""

    def __init__(self) -> None:
        self.owner, self.token, self.ends, self.last = "", 0, 0, 0

    def does(self, verb: str, owner: str, at: float) -> object:
        now = int(at * 1000 * 1.0005)
        is_held = self.ends > now
        mine = is_held and self.owner == owner
        if verb == "release":
            self.ends = 0 if mine else self.ends
            return "released" if mine else 0 if is_held else "not held"
        if not mine and (is_held or verb == "renew"):
            return 0
        if not mine:
            self.last += 1
            self.token = self.last
        self.owner, self.ends = owner, now + TTL_MS
        return self.token


def simulated(rng: random.Random) -> list[Operation]:
    """What several did with it; some do not hear how it ended, and some of that happens late."""
    lease, found = Simulated(), []
    turns = [(rng.uniform(0, 0.1), number, owner, "", 0.0) for number, owner in enumerate(OWNERS)]
    heapq.heapify(turns)
    while turns and len(found) < 80:
        at, number, owner, verb, invoked = heapq.heappop(turns)
        if not verb:  # it asks
            verb = rng.choice(["acquire", "acquire", "acquire", "renew", "release"])
            acts = at + rng.choice([0.001, 0.02, 0.3]) * rng.random()
            heapq.heappush(turns, (acts, number, owner, verb, at))
            continue
        returned = at + rng.choice([0.001, 0.02, 0.3]) * rng.random()
        if verb.startswith("late "):
            lease.does(verb.removeprefix("late "), owner, at)
        elif rng.random() < 0.05:
            late = at + rng.choice([0, 0.3, 10]) * rng.random()
            found.append(Operation(owner, (verb, owner), None, invoked, UNKNOWN))
            heapq.heappush(turns, (late, number + len(OWNERS), owner, f"late {verb}", invoked))
            heapq.heappush(turns, (returned, number, owner, "", 0.0))
        else:
            answer = lease.does(verb, owner, at)
            found.append(Operation(owner, (verb, owner), answer, invoked, returned))
            heapq.heappush(turns, (returned, number, owner, "", 0.0))
    return found


@pytest.mark.parametrize("seed", range(20))
def test_whatever_a_lease_does_as_it_should_is_accepted(seed: int) -> None:
    operations = simulated(random.Random(seed))

    assert is_linearizable(operations, Lease(TTL_MS / 1000))
