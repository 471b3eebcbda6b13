"""The models hold for our code, and notice code that was broken on purpose."""

from pathlib import Path

import pytest

from tests.torture import model
from tests.torture.code import broken
from tests.torture.machines.leases import Leases
from tests.torture.machines.log import Log
from tests.torture.machines.machine import Machine
from tests.torture.machines.runs import Runs
from tests.torture.machines.sentinels import Sentinels
from tests.torture.machines.state import State
from tests.torture.suite import SHORT_SEED, Broken, Run

SECONDS = 10.0
# What a mutation is given to be found: it takes a second or two.
PATIENCE_SECONDS = 60.0


def test_every_noun_is_what_its_model_says_on_every_host(tmp_path: Path) -> None:
    run = Run(tmp_path, SECONDS, SHORT_SEED)
    print(f"again with: make torture SUITES=model SEED={run.seed} SECONDS={SECONDS}")

    model.run(run)

    assert run.figures["examples"] > 0


MUTATIONS: dict[str, tuple[type[Machine], str, str, str]] = {
    "expired rows are visible": (
        State,
        "icd/core/state.py",
        "WHERE key = ? AND scope_id = ? AND (expires_ms IS NULL OR expires_ms > ?)",
        "WHERE key = ? AND scope_id = ? AND (expires_ms IS NULL OR expires_ms > ? OR 1)",
    ),
    "a deleted row is still remembered": (
        State,
        "icd/rpc/methods/state.py",
        "        ctx.recent.forget(p.key, p.scope_id)\n",
        "        pass\n",
    ),
    "a bad payload is written": (
        State,
        "icd/rpc/methods/state.py",
        "    p.payload = Raw(payloads.check(bytes(p.payload)))\n",
        "    pass\n",
    ),
    "a clock that steps back is not noticed": (
        Sentinels,
        "icd/core/sentinels.py",
        "fired_ms = min(row.fired_ms, now_ms)",
        "fired_ms = row.fired_ms",
    ),
    "a cursor goes back": (
        Log,
        "icd/core/cursors.py",
        "max(seq, found.seq if found else 0), now_ms",
        "seq, now_ms",
    ),
    "a lease is given to two": (
        Leases,
        "icd/core/leases.py",
        "        if before.owner != owner:",
        "        if not owner:",
    ),
    "a closed gate lets runs through": (
        Runs,
        "icd/core/transitions.py",
        'is_blocked = verdict.tier == "hard" and verdict.result == "fail"',
        "is_blocked = False",
    ),
}


@pytest.mark.parametrize("what", MUTATIONS)
def test_a_noun_that_is_broken_on_purpose_is_found(tmp_path: Path, what: str) -> None:
    find(tmp_path, what, "core")


@pytest.mark.parametrize("host", ["direct", "socket"])
def test_what_is_broken_on_purpose_is_found_on_the_other_hosts_too(
    tmp_path: Path, host: str
) -> None:
    find(tmp_path, "a lease is given to two", host)


def find(tmp_path: Path, what: str, host: str) -> None:
    machine, file, old, new = MUTATIONS[what]
    code = broken(tmp_path, file, old, new)
    run = Run(tmp_path / "run", PATIENCE_SECONDS, SHORT_SEED, code=code)

    with pytest.raises(Broken, match=f"{machine.__name__} on the host {host}"):
        model.run(run, [machine], [host])
