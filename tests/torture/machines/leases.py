"""Leases: at most one holder, a token for each, and a deadline."""

from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from tests.torture.machines.machine import Machine

NAMES = st.sampled_from(["n", "m"])
OWNERS = st.sampled_from(["ann", "bob"])
TTLS = st.sampled_from([1, 1000, 60_000])
# Which token: none, the one that the lease has, another one.
TOKENS = st.sampled_from([None, 0, 0, 1])
STEPS = st.sampled_from([1, 999, 1000, 60_000, -500])


@dataclass
class Lease:
    owner: str
    token: int
    ttl: int
    until: int  # 0: released


class Leases(Machine):
    def __init__(self) -> None:
        super().__init__()
        self.leases: dict[str, Lease] = {}
        self.last = 0
        self.told: list[str] = []

    def is_held(self, lease):
        return lease is not None and lease.until > self.now

    @rule(name=NAMES, owner=OWNERS, ttl=TTLS)
    def acquire(self, name, owner, ttl):
        given = {"name": name, "scope_id": "s", "owner": owner, "ttl_ms": ttl}
        lease = self.leases.get(name)
        if self.is_held(lease) and lease.owner != owner:
            self.refused("lease_held", "lease.acquire", **given)
            return
        found = self.result("lease.acquire", **given)
        if self.is_held(lease):
            self.extend(lease, ttl)
            change = "renewed"
        else:
            taken = lease is not None and lease.until and lease.owner != owner
            change = "taken_over" if taken else "acquired"
            assert found["token"] > self.last, "a token came again"
            self.last = found["token"]
            self.leases[name] = lease = Lease(owner, found["token"], ttl, self.now + ttl)
            self.told.append(change)
        assert (found["change"], found["token"], found["expires_ms"]) == (
            change,
            lease.token,
            lease.until,
        )

    def extend(self, lease, ttl):
        lease.ttl, lease.until = ttl, max(lease.until, self.now + ttl)
        self.told.append("renewed")

    @rule(name=NAMES, owner=OWNERS, ttl=st.one_of(st.none(), TTLS), off=TOKENS)
    def renew(self, name, owner, ttl, off):
        lease = self.leases.get(name)
        token = None if off is None else (lease.token if lease else 1) + off
        given = {"name": name, "scope_id": "s", "owner": owner, "ttl_ms": ttl, "token": token}
        if not self.is_held(lease) or lease.owner != owner or token not in (None, lease.token):
            self.refused("lease_lost", "lease.renew", **given)
            return
        found = self.result("lease.renew", **given)
        self.extend(lease, lease.ttl if ttl is None else ttl)
        assert (found["token"], found["expires_ms"]) == (lease.token, lease.until)

    @rule(name=NAMES, owner=OWNERS, off=TOKENS)
    def release(self, name, owner, off):
        lease = self.leases.get(name)
        token = None if off is None else (lease.token if lease else 1) + off
        given = {"name": name, "scope_id": "s", "owner": owner, "token": token}
        if token is not None and (lease is None or lease.token != token):
            self.refused("lease_lost", "lease.release", **given)
        elif not self.is_held(lease):
            assert self.result("lease.release", **given) == {"released": False}
        elif lease.owner != owner:
            self.refused("lease_lost", "lease.release", **given)
        else:
            assert self.result("lease.release", **given) == {"released": True}
            lease.until = 0
            self.told.append("released")

    @rule(ttl=st.sampled_from([0, -1, 10**12]))
    def acquire_for_an_impossible_time(self, ttl):
        self.refused(
            "invalid_ttl", "lease.acquire", name="n", scope_id="s", owner="ann", ttl_ms=ttl
        )

    @rule(step=STEPS)
    def time_passes(self, step):
        self.host.wall.move(step)

    @invariant()
    def lists_what_is_held(self):
        found = self.result("lease.list")
        shown = [(each["name"], each["owner"], each["token"]) for each in found]
        held = sorted((n, each) for n, each in self.leases.items() if self.is_held(each))
        assert shown == [(name, each.owner, each.token) for name, each in held]

    def teardown(self) -> None:
        found = self.result("events.tail", source="lease", limit=10_000)["events"]
        assert [event["type"] for event in found] == self.told
