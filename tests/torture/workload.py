"""A mix of operations for suites that then look for them: see `Ledger`."""

import random
from collections.abc import Callable

from tests.torture.ledger import ANCHOR, CHAIN, SOURCE, Ledger, Operation

# Large enough that a few of them fill pages of their own, and that commits differ in size.
FILLING = 3000
ROWS = 5


class Workload:
    """`lane` tells those apart who use the same database: rows are theirs, `total` is not."""

    def __init__(self, rng: random.Random, ledger: Ledger, lane: str) -> None:
        self._rng = rng
        self._ledger = ledger
        self._lane = lane
        self._run: Operation | None = None
        self._left = 0
        self._swaps: dict[str, Operation] = {}

    def burst(self, most: int = 4) -> list[Operation]:
        """To be sent at once: often they share a commit."""
        kinds: list[Callable[[], list[Operation]]] = [
            self._set, self._set, self._incr, self._incr, self._swap, self._stale, self._claim,
            self._claims, self._spoiled, self._event, self._event, self._lease, self._move,
            self._reserve, self._reserve_all, self._session,
        ]  # fmt: skip
        chosen = [self._rng.choice(kinds) for _ in range(self._rng.randint(1, most))]
        if chosen.count(self._swap) > 1:  # the second would need the answer to the first
            chosen = [self._swap]
        return [operation for kind in chosen for operation in kind()]

    def _ask(self, method: str, *, refusal: str = "", id_: str = "", **params: object) -> Operation:
        id_ = id_ or self._id()
        return self._ledger.add(Operation(id_, method, params, refusal))

    def _id(self) -> str:
        return f"{self._rng.getrandbits(64):016x}"

    def _put(self, key: str, scope: str, **params: object) -> Operation:
        id_ = self._id()
        filling = "x" * self._rng.choice((0, 0, 0, FILLING))
        payload = {"op": id_, "filling": filling}
        return self._ask("state.set", id_=id_, key=key, scope_id=scope, payload=payload, **params)

    def _set(self) -> list[Operation]:
        key = self._rng.choice(("phase", "bead"))  # rows of the second one are mirrored
        return [self._put(key, f"{self._lane}-{self._rng.randrange(ROWS)}")]

    def _incr(self) -> list[Operation]:
        scope = self._rng.choice(("all", self._lane))
        return [self._ask("state.incr", key="total", scope_id=scope)]

    def _swap(self) -> list[Operation]:
        """Over the version that the last swap of the row was told, if it was told any."""
        scope = f"{self._lane}-{self._rng.randrange(ROWS)}"
        last = self._swaps.get(scope)
        if last is not None and not last.outcome:
            return self._set()
        version = 0 if last is None or last.outcome is None else last.outcome["result"]["version"]
        self._swaps[scope] = self._put("swap", scope, if_version=version)
        return [self._swaps[scope]]

    def _stale(self) -> list[Operation]:
        scope, version = f"{self._lane}-stale", 2**40
        refused = self._put("swap", scope, if_version=version)
        refused.refusal = "version_conflict"
        return [refused]

    def _claim(self) -> list[Operation]:
        return [self._ask("sentinel.check", name="once", scope_id=self._id(), interval=0)]

    def _claims(self) -> list[Operation]:
        guards = [
            {"name": f"guard{number}", "scope_id": self._id(), "interval": 0} for number in range(3)
        ]
        return [self._ask("sentinel.check_many", guards=guards)]

    def _spoiled(self) -> list[Operation]:
        """Claims of which the second must fail, and with it the first, which was granted by then."""
        id_, scope = self._id(), self._id()
        anchor = {"name": ANCHOR, "scope_id": scope}
        guards = [{"name": "half", "scope_id": scope, "interval": 0}, {**anchor, "interval": 7200}]
        return [
            self._ask("sentinel.check", id_=f"{id_}#1", interval=3600, **anchor),
            self._ask("sentinel.check_many", id_=id_, guards=guards, refusal="request_id_mismatch"),
        ]

    def _event(self) -> list[Operation]:
        id_ = self._id()
        payload = {"op": id_, "filling": "x" * self._rng.choice((0, 0, FILLING))}
        return [self._ask("events.record", id_=id_, source=SOURCE, type="done", payload=payload)]

    def _lease(self) -> list[Operation]:
        params = {"name": "work", "scope_id": self._id(), "owner": self._lane}
        return [self._ask("lease.acquire", ttl_ms=3_600_000, **params)]

    def _reserve(self) -> list[Operation]:
        return [self._ask("coordination.reserve", pattern=f"{self._id()}/*", owner=self._lane)]

    def _reserve_all(self) -> list[Operation]:
        paths = [f"{self._id()}/{name}" for name in "abc"]
        return [self._ask("coordination.reserve_many", paths=paths, owner=self._lane)]

    def _session(self) -> list[Operation]:
        """Which is continued, and counts one token."""
        who = {"session_id": self._lane}
        return [self._ask("session.start", **who), self._ask("session.tokens", input=1, **who)]

    def _move(self) -> list[Operation]:
        """To the next phase of a run, or a new one, if the last is at its end."""
        if self._run is None or not self._left:
            self._left = len(CHAIN) - 2  # the last one would complete it
            self._run = self._ask("run.create", goal="to be killed", phases=CHAIN)
            return [self._run]
        if not self._run.outcome:  # its id is not known yet
            return self._incr()
        self._left -= 1
        run_id = self._run.outcome["result"]["id"]
        return [self._ask("run.advance", run_id=run_id, disable_gates=True)]
