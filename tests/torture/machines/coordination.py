"""Reservations: never two owners of one path, unless both share it."""

from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from tests.torture.hosts import ME
from tests.torture.machines.machine import Machine

# Each pattern with the paths of this small world that match it, written down by hand.
PATTERNS = {
    "a": {"a"},
    "b": {"b"},
    "?": {"a", "b", "e"},
    "d/a": {"d/a"},
    "d/b": {"d/b"},
    "d/*": {"d/a", "d/b"},
    "*/b": {"d/b", "e/b"},
    "**/a": {"a", "d/a", "e/f/a"},
    "e/**": {"e", "e/b", "e/f/a"},
    "[!a]": {"b", "e"},
    "**": {"a", "b", "d/a", "d/b", "e", "e/b", "e/f/a"},
}
# With no process, and with one that outlives the test.
PIDS = st.sampled_from([None, ME])
OWNERS = st.sampled_from(["ann", "bob", "cy"])
TEXTS = st.sampled_from(sorted(PATTERNS))
PATHS = st.lists(st.sampled_from(["a", "b", "d/a", "d/b"]), min_size=1, max_size=3, unique=True)
TTLS = st.sampled_from([None, 1, 1000, 60_000])
STEPS = st.sampled_from([1, 999, 1000, 60_000, -500])


@dataclass
class Held:
    id: str
    owner: str
    pattern: str
    exclusive: bool
    ttl: int | None
    pid: int | None
    until: int | None = None


class Coordination(Machine):
    def __init__(self) -> None:
        super().__init__()
        self.held: list[Held] = []

    def standing(self):
        return [each for each in self.held if each.until is None or each.until > self.now]

    def in_the_way(self, owner, pattern, *, exclusive):
        return [
            each
            for each in self.standing()
            if each.owner != owner
            and (exclusive or each.exclusive)
            and PATTERNS[each.pattern] & PATTERNS[pattern]
        ]

    @rule(owner=OWNERS, pattern=TEXTS, exclusive=st.booleans(), ttl=TTLS, pid=PIDS)
    def reserve(self, owner, pattern, exclusive, ttl, pid):
        asked = {"owner": owner, "exclusive": exclusive, "ttl_ms": ttl, "pid": pid}
        found = self.result("coordination.reserve", pattern=pattern, **asked)
        blockers = self.in_the_way(owner, pattern, exclusive=exclusive)
        assert bool(blockers) == ("conflict" in found), f"{owner} {pattern}: {found}"
        if blockers:
            assert found["conflict"]["blocker_id"] in {each.id for each in blockers}
            return
        self.took(Held(found["lock"]["id"], owner, pattern, exclusive, ttl, pid))
        self.forget_what_was_swept()

    @rule(owner=OWNERS, paths=PATHS, exclusive=st.booleans(), ttl=TTLS)
    def reserve_many(self, owner, paths, exclusive, ttl):
        asked = {"owner": owner, "exclusive": exclusive, "ttl_ms": ttl}
        found = self.result("coordination.reserve_many", paths=paths, **asked)
        blockers = [e for p in paths for e in self.in_the_way(owner, p, exclusive=exclusive)]
        assert bool(blockers) == ("conflict" in found), f"{owner} {paths}: {found}"
        if blockers:
            assert found["conflict"]["blocker_id"] in {each.id for each in blockers}
            assert found["locks"] == []
        else:
            assert [lock["pattern"] for lock in found["locks"]] == paths
            for lock in found["locks"]:
                self.took(Held(lock["id"], owner, lock["pattern"], exclusive, ttl, None))
        self.forget_what_was_swept()

    def forget_what_was_swept(self):
        """What had ended is gone, so that a clock that is set back brings nothing back; of what was
        in nobody's way, so many are swept."""
        there = {each["id"] for each in self.result("coordination.list")}
        lost = [each for each in self.held if each.id not in there]
        assert not [each for each in lost if each in self.standing()]
        self.held = [each for each in self.held if each.id in there]

    def took(self, new):
        mine = [e for e in self.standing() if e.id == new.id]
        same = [
            e
            for e in self.standing()
            if (e.owner, e.pattern, e.exclusive, e.pid)
            == (new.owner, new.pattern, new.exclusive, new.pid)
        ]
        assert bool(same) == bool(mine), "the same again has the same id"
        if mine:
            self.extend(mine[0], new.ttl)
        else:
            new.until = None if new.ttl is None else self.now + new.ttl
            self.held.append(new)

    def extend(self, each, ttl):
        if each.until is None or ttl is None:
            each.until = each.ttl = None
        else:
            each.ttl, each.until = ttl, max(each.until, self.now + ttl)

    @rule(owner=OWNERS, ttl=TTLS)
    def renew(self, owner, ttl):
        mine = [each for each in self.standing() if each.owner == owner]
        if not mine:
            self.refused("reservation_lost", "coordination.renew", owner=owner, ttl_ms=ttl)
            return
        assert self.result("coordination.renew", owner=owner, ttl_ms=ttl) == {"renewed": len(mine)}
        for each in mine:
            self.extend(each, each.ttl if ttl is None else ttl)

    @rule(owner=OWNERS)
    def release_all(self, owner):
        count = sum(each.owner == owner for each in self.standing())
        assert self.result("coordination.release", owner=owner) == {"released": count}
        self.held = [each for each in self.held if each.owner != owner]

    @rule(number=st.integers(0, 20))
    def release_one(self, number):
        if self.standing():
            one = self.standing()[number % len(self.standing())]
            assert self.result("coordination.release", id=one.id) == {"released": 1}
            self.held.remove(one)

    @rule(giver=OWNERS, taker=OWNERS)
    def transfer(self, giver, taker):
        given = [each for each in self.standing() if each.owner == giver]
        found = self.result("coordination.transfer", from_owner=giver, to_owner=taker)
        assert found == {"transferred": len(given)}
        for each in given:
            each.owner = taker
        self.held = [e for e in self.held if e in given or e.owner != giver]

    @rule()
    def sweep(self):
        self.result("coordination.sweep")
        self.held = self.standing()

    @rule(pattern=TEXTS)
    def check(self, pattern):
        found = self.result("coordination.check", pattern=pattern)
        assert {each["id"] for each in found} == {
            each.id for each in self.in_the_way("", pattern, exclusive=True)
        }

    @rule(owner=OWNERS)
    def check_many(self, owner):
        paths = sorted(PATTERNS["**"])
        found = self.result("coordination.check_many", paths=paths, exclude_owner=owner)
        others = [each for each in self.standing() if each.owner != owner]
        covered = {path for each in others for path in PATTERNS[each.pattern]}
        assert {each["path"] for each in found} == covered

    @rule(step=STEPS)
    def time_passes(self, step):
        self.host.wall.move(step)

    @invariant()
    def no_path_has_two_owners_unless_they_share(self):
        found = [e for e in self.result("coordination.list") if e["active"]]
        assert sorted(e["id"] for e in found) == sorted(e.id for e in self.standing())
        for path in PATTERNS["**"]:
            there = [e for e in found if path in PATTERNS[e["pattern"]]]
            if any(e["exclusive"] for e in there):
                assert len({e["owner"] for e in there}) == 1, f"{path} has two holders"
