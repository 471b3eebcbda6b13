"""State: a register with versions, expiry and counters."""

from typing import Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from tests.torture.machines.machine import Machine

# Few, so that what is done to one row is followed by more to the same.
KEYS = st.sampled_from(["a", "a", "a.b"])
SCOPES = st.sampled_from(["s", "s", ""])
VALUES = st.sampled_from(
    [0, 1, -7, 2**63 - 1, -(2**63), "text", "ü\t", None, True, 1.5, {"k": [1]}]
)
TTLS = st.sampled_from([0, 0, 1000, 60_000])
STEPS = st.sampled_from([1, 999, 1000, 59_999, 60_000, 3_600_000])
DEEP: Any = []
for _ in range(40):
    DEEP = [DEEP]
BAD = [DEEP, "x" * 110_000, "\0", {"k": "sk-" + "a1B2" * 12}, ["password=hunter2hunter2"]]


class Row(NamedTuple):
    value: Any
    version: int
    expires_ms: int | None


class State(Machine):
    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[tuple[str, str], Row] = {}
        self.last = 0  # no version ever comes again

    def visible(self, key: str, scope: str) -> Row | None:
        row = self.rows.get((key, scope))
        return row if row and (row.expires_ms is None or row.expires_ms > self.now) else None

    def wrote(self, key: str, scope: str, value: Any, written: dict[str, Any], until: Any) -> None:
        assert written["version"] > self.last, f"version {written['version']} after {self.last}"
        self.last = written["version"]
        self.rows[key, scope] = Row(value, self.last, until)

    @rule(key=KEYS, scope=SCOPES, value=VALUES, ttl=TTLS)
    def set(self, key, scope, value, ttl):
        written = self.result("state.set", key=key, scope_id=scope, payload=value, ttl_ms=ttl)
        self.wrote(key, scope, value, written, self.now + ttl if ttl else None)

    @rule(key=KEYS, scope=SCOPES, value=VALUES, off=st.sampled_from([0, 0, 1, -1, None]))
    def compare_and_set(self, key, scope, value, off):
        row = self.visible(key, scope)
        actual = row.version if row else 0
        expected = 0 if off is None else max(0, actual + off)
        given = {"key": key, "scope_id": scope, "payload": value, "if_version": expected}
        if expected != actual:
            self.refused("version_conflict", "state.set", **given)
        else:
            self.wrote(key, scope, value, self.result("state.set", **given), None)

    @rule(key=KEYS, scope=SCOPES, value=st.sampled_from([1, 1, "text"]))
    def set_debounced(self, key, scope, value):
        given = {"key": key, "scope_id": scope, "payload": value, "session": "me"}
        written = self.result("state.set", debounce_ms=10_000_000, **given)
        if written.get("skipped"):
            assert self.visible(key, scope) == Row(value, written["version"], None)
        else:
            self.wrote(key, scope, value, written, None)

    @rule(key=KEYS, scope=SCOPES)
    def set_delete_and_set_again(self, key, scope):
        self.set_debounced(key=key, scope=scope, value=1)
        self.delete(key=key, scope=scope)
        self.set_debounced(key=key, scope=scope, value=1)

    @rule(key=KEYS, scope=SCOPES, which=st.integers(0, len(BAD) - 1))
    def set_what_is_refused(self, key, scope, which):
        reply = self.ask("state.set", key=key, scope_id=scope, payload=BAD[which])
        assert reply.error in ("invalid_payload", "payload_too_large", "secret_refused"), reply

    @rule(key=st.sampled_from(["", "A", ".a", "a b", "a\n"]), ttl=TTLS)
    def set_what_has_no_name(self, key, ttl):
        self.refused("invalid_name", "state.set", key=key, scope_id="s", payload=1, ttl_ms=ttl)

    @rule(key=KEYS, scope=SCOPES, ttl=st.sampled_from([1, 999]))
    def set_for_too_short(self, key, scope, ttl):
        self.refused("invalid_ttl", "state.set", key=key, scope_id=scope, payload=1, ttl_ms=ttl)

    @rule(key=KEYS, scope=SCOPES, by=st.sampled_from([1, -1, 5, 2**63 - 1]), ttl=TTLS)
    def incr(self, key, scope, by, ttl):
        row = self.visible(key, scope)
        given = {"key": key, "scope_id": scope, "by": by, "ttl_ms": ttl}
        value = row.value if row else 0
        if type(value) is not int or not -(2**63) <= value + by < 2**63:
            self.refused("not_an_integer", "state.incr", **given)
            return
        written = self.result("state.incr", **given)
        assert written["value"] == value + by
        until = row.expires_ms if row else self.now + ttl if ttl else None
        self.wrote(key, scope, value + by, written, until)

    @rule(key=KEYS, scope=SCOPES)
    def delete(self, key, scope):
        found = self.result("state.delete", key=key, scope_id=scope)["deleted"]
        assert found == (self.visible(key, scope) is not None)
        self.rows.pop((key, scope), None)

    @rule(key=KEYS)
    def delete_all(self, key):
        ours = [name for name in self.rows if name[0] == key]
        found = self.result("state.delete_all", key=key)["deleted"]
        assert found == sum(self.visible(*name) is not None for name in ours)
        for name in ours:
            del self.rows[name]

    @rule()
    def prune(self):
        self.result("state.prune")

    @rule(step=STEPS)
    def time_passes(self, step):
        self.host.wall.move(step)

    @rule(key=KEYS, scope=SCOPES)
    def get(self, key, scope):
        found = self.result("state.get", key=key, scope_id=scope)
        row = self.visible(key, scope)
        assert (found is None) == (row is None), f"{found} is not {row}"
        if row is not None:
            until = None if row.expires_ms is None else -(-row.expires_ms // 1000)
            shown = (found["payload"], found["version"], found["expires_at"])
            assert shown == (row.value, row.version, until), f"{found} is not {row}"

    @invariant()
    def lists_what_is_there(self):
        found = self.result("state.list", prefix="a")
        there = sorted(name for name in self.rows if self.visible(*name))
        assert [(each["key"], each["scope_id"]) for each in found] == there
