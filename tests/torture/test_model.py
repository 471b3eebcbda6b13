"""The models hold for our code, and notice code that was broken on purpose."""

from pathlib import Path

import pytest

from tests.torture import model
from tests.torture.code import broken
from tests.torture.machines.coordination import Coordination
from tests.torture.machines.discoveries import Discoveries
from tests.torture.machines.dispatches import Dispatches
from tests.torture.machines.leases import Leases
from tests.torture.machines.log import Log
from tests.torture.machines.machine import Machine
from tests.torture.machines.runs import Runs
from tests.torture.machines.sentinels import Sentinels
from tests.torture.machines.sessions import Sessions
from tests.torture.machines.state import State
from tests.torture.suite import SHORT_SEED, Broken, Run

SECONDS = 10.0
# What a mutation is given to be found: it takes a second or two.
PATIENCE_SECONDS = 60.0


@pytest.mark.long
def test_every_noun_is_what_its_model_says_on_every_host(tmp_path: Path) -> None:
    run = Run(tmp_path, SECONDS, SHORT_SEED)
    print(f"again with: make torture SUITES=model SEED={run.seed} SECONDS={SECONDS}")

    model.run(run)

    assert run.figures["examples"] > 0


MUTATIONS: dict[str, tuple[type[Machine], str, str, str]] = {
    "expired rows are visible": (
        State,
        "icd/features/state/store.py",
        "WHERE key = ? AND scope_id = ? AND (expires_ms IS NULL OR expires_ms > ?)",
        "WHERE key = ? AND scope_id = ? AND (expires_ms IS NULL OR expires_ms > ? OR 1)",
    ),
    "a deleted row is still remembered": (
        State,
        "icd/features/state/verbs.py",
        "        ctx.recent.forget(p.key, p.scope_id)\n",
        "        pass\n",
    ),
    "a bad payload is written": (
        State,
        "icd/features/state/verbs.py",
        "    p.payload = Raw(payloads.check(bytes(p.payload)))\n",
        "    pass\n",
    ),
    "a clock that steps back is not noticed": (
        Sentinels,
        "icd/features/sentinels/store.py",
        "fired_ms = min(row.fired_ms, now_ms)",
        "fired_ms = row.fired_ms",
    ),
    "a cursor goes back": (
        Log,
        "icd/features/events/cursors.py",
        "max(seq, found.seq if found else 0), now_ms",
        "seq, now_ms",
    ),
    "a lease is given to two": (
        Leases,
        "icd/features/leases/store.py",
        "        if before.owner != owner:",
        "        if not owner:",
    ),
    "two stars stand for at least one name": (
        Coordination,
        "icd/features/coordination/globs.py",
        """    if i < len(p) and p[i] is None:
        found.append((i + 1, j))
""",
        "",
    ),
    "a look by keys leaves the ends out": (
        Coordination,
        "icd/features/coordination/lookup.py",
        "keys=_json(begins + ends)",
        "keys=_json(begins)",
    ),
    "those who share are refused": (
        Coordination,
        "icd/features/coordination/lookup.py",
        "AND (:exclusive = 1 OR exclusive = 1)",
        "",
    ),
    "of several paths, those that are free are reserved": (
        Coordination,
        "icd/features/coordination/store.py",
        "            return [], blocker\n",
        "            continue\n",
    ),
    "what ends with a process is taken for what ends with none": (
        Coordination,
        "icd/features/coordination/store.py",
        "lock.process == wish.process",
        "wish.process is None",
    ),
    "a later attribution forgets the run": (
        Sessions,
        "icd/features/sessions/store.py",
        "run_id or before.run_id",
        "run_id",
    ),
    "a new run keeps the phase of the old one": (
        Sessions,
        "icd/features/sessions/store.py",
        "(before.phase if is_same_run else None)",
        "before.phase",
    ),
    "a session that starts again begins anew": (
        Sessions,
        "icd/features/sessions/store.py",
        "    if row is None:\n",
        "    if row is None or row[7] is not None:\n",
    ),
    "tokens of the cache are counted once": (
        Sessions,
        "icd/features/sessions/store.py",
        "cache_read_tokens = cache_read_tokens + min(?, {most} - cache_read_tokens)",
        "cache_read_tokens = max(?, cache_read_tokens)",
    ),
    "a closed gate lets runs through": (
        Runs,
        "icd/features/runs/transitions.py",
        'is_blocked = verdict.tier == "hard" and verdict.result == "fail"',
        "is_blocked = False",
    ),
    "the last end of a dispatch wins": (
        Dispatches,
        "icd/features/dispatches/store.py",
        "    is_first = not was.is_over\n",
        "    is_first = True\n",
    ),
    "a dispatch that is over starts": (
        Dispatches,
        "icd/features/dispatches/store.py",
        """    if was.is_over:
        raise DispatchOver(f"dispatch {dispatch_id} is already {was.status}")
    if was.status == "running":
""",
        """    if was.status == "running":
""",
    ),
    "a look that is out of date overwrites what is known": (
        Dispatches,
        "icd/features/dispatches/poll.py",
        "if was.is_over or seen.version != was.version:",
        "if was.is_over:",
    ),
    "what did not end is pruned": (
        Dispatches,
        "icd/features/dispatches/store.py",
        "WHERE created_ms <= ? AND status NOT IN ('spawned', 'running')\n",
        "WHERE created_ms <= ? AND status NOT IN ('running')\n",
    ),
    "a discovery is promoted below the threshold": (
        Discoveries,
        "icd/features/discoveries/lifecycle.py",
        "AND (:force = 1 OR relevance * decay >= :product)",
        "AND (:force = 1 OR relevance * decay >= :product / 2)",
    ),
    "what resembles a discovery is stored once more": (
        Discoveries,
        "icd/features/discoveries/lifecycle.py",
        "if given.embedding is not None and threshold > 0:",
        "if given.embedding is not None and threshold > 1:",
    ),
    "a discovery that was dismissed is scored": (
        Discoveries,
        "icd/features/discoveries/lifecycle.py",
        "WHERE id = ? AND status NOT IN ('promoted', 'dismissed')\n",
        "WHERE id = ? AND status NOT IN ('promoted')\n",
    ),
    "a discovery decays twice in a day": (
        Discoveries,
        "icd/features/discoveries/lifecycle.py",
        "abs(:now_ms - decayed_ms) >= :every_ms",
        "abs(:now_ms - decayed_ms) >= 0 * :every_ms",
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("what", MUTATIONS)
def test_a_noun_that_is_broken_on_purpose_is_found(tmp_path: Path, what: str) -> None:
    find(tmp_path, what, "core")


@pytest.mark.long
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
