"""Sentinels: one claim a window, also when the clock steps back."""

from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from tests.torture.machines.machine import Machine

# Few, so that what is done to one is followed by more to the same.
NAMES = st.sampled_from(["n", "n", "m"])
SCOPES = st.sampled_from(["s", "s", "t"])
INTERVALS = st.sampled_from([0, 1, 60, 60, 3600])
IDS = st.sampled_from([None, None, "r1", "r2"])
STEPS = st.sampled_from([1, 999, 1000, 59_999, 60_000, 3_600_000, -1000, -60_000, -3_600_000])


@dataclass
class Guard:
    fired: int
    longest: int
    once: bool
    request: str | None
    claimed_with: int


class Sentinels(Machine):
    def __init__(self) -> None:
        super().__init__()
        self.guards: dict[tuple[str, str], Guard] = {}

    @rule(name=NAMES, scope=SCOPES, interval=INTERVALS, request=IDS)
    def check(self, name, scope, interval, request):
        given = {"name": name, "scope_id": scope, "interval": interval}
        if request:
            given["request_id"] = request
        guard = self.guards.get((name, scope))
        if guard and request and guard.request == request:
            if guard.claimed_with != interval:
                self.refused("request_id_mismatch", "sentinel.check", **given)
                return
            self.agrees(self.result("sentinel.check", **given), guard, interval, allowed=True)
            return
        ms = interval * 1000
        due = guard is None or (not guard.once and ms and self.now - guard.fired >= ms)
        found = self.result("sentinel.check", **given)
        if due:
            longest = max(guard.longest if guard else 0, ms)
            once = guard.once if guard else ms == 0
            guard = self.guards[name, scope] = Guard(self.now, longest, once, request, interval)
        else:
            guard.fired = min(guard.fired, self.now)
            guard.longest = max(guard.longest, ms)
        self.agrees(found, guard, interval, allowed=bool(due))

    def agrees(self, found, guard, interval, *, allowed):
        retry = None
        if not guard.once and interval:
            retry = -(-max(0, guard.fired + interval * 1000 - self.now) // 1000)
        shown = (found["allowed"], found["last_fired"], found["retry_after"])
        assert shown == (allowed, guard.fired // 1000, retry), f"{found}, but {guard}"

    @rule(name=NAMES, scope=SCOPES)
    def reset(self, name, scope):
        found = self.result("sentinel.reset", name=name, scope_id=scope)["reset"]
        assert found == (self.guards.pop((name, scope), None) is not None)

    @rule(name=NAMES)
    def reset_all(self, name):
        ours = [key for key in self.guards if key[0] == name]
        assert self.result("sentinel.reset_all", name=name)["reset"] == len(ours)
        for key in ours:
            del self.guards[key]

    @rule(older=st.sampled_from([0, 1000, 60_000]), once=st.booleans(), live=st.booleans())
    def prune(self, older, once, live):
        def goes(guard):
            is_old = not older or guard.fired <= self.now - older
            throttles = guard.once or guard.fired + guard.longest > self.now
            return is_old and not (once and guard.once) and not (live and throttles)

        gone = [key for key, guard in self.guards.items() if goes(guard)]
        given = {"older_than_ms": older, "keep_once": once, "keep_live": live}
        assert self.result("sentinel.prune", **given)["pruned"] == len(gone)
        for key in gone:
            del self.guards[key]

    @rule(step=STEPS)
    def time_passes(self, step):
        self.host.wall.move(step)

    @invariant()
    def lists_what_was_claimed(self):
        found = self.result("sentinel.list")
        shown = [
            (s["name"], s["scope_id"], s["last_fired"], s["once"], s["interval"]) for s in found
        ]
        assert shown == [
            (*key, guard.fired // 1000, guard.once, guard.longest // 1000)
            for key, guard in sorted(self.guards.items())
        ]
