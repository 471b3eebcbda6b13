"""Two sessions of fifty hooks each: never two exclusive holders, and nothing stays after kill -9."""

import itertools
import json
import multiprocessing
import os
import posix
import random
import signal
import statistics
import time
from pathlib import Path

import pytest

from icctl import client
from icd.app.invocation import LOOK_AGAIN_SECONDS
from tests.support.processes import CLEAN, Daemon, icctl, until

FORK = multiprocessing.get_context("fork")
HOOKS, AT_ONCE = 50, 5
# Each pattern with the paths that match it, expanded by hand.
EXPANDED = {
    "a/*": ["a/x", "a/y"],
    "*/x": ["a/x", "b/x"],
    "b/**": ["b/x", "b/c/z"],
    "**/z": ["b/c/z", "z"],
    "a/x": ["a/x"],
    "z": ["z"],
}


@pytest.mark.timeout(240)
@pytest.mark.parametrize("mode", ["daemon", pytest.param("direct", marks=pytest.mark.long)])
def test_two_sessions_of_fifty_hooks_never_hold_one_path_together(
    mode: str, initialized: Path, daemon: Daemon
) -> None:
    """A hook that holds a pattern marks its paths, then looks for marks of the other session: if
    both held one, at least one of them would see it."""
    sessions = [
        FORK.Process(target=_session, args=(initialized, _env(daemon.socket, mode), *owners))
        for owners in (("ann", "bob"), ("bob", "ann"))
    ]

    for session in sessions:
        session.start()
    for session in sessions:
        session.join(200)

    assert [session.exitcode for session in sessions] == [0, 0]
    env = _env(daemon.socket, mode)
    left = icctl("coordination", "list", "--active", cwd=initialized, env=env)
    assert left.stdout == b"", "what was killed holds nothing"


def _env(socket: str, mode: str) -> dict[str, str]:
    return {"INTERCORE_SOCKET": socket, "INTERCORE_MODE": mode}


def _session(project: Path, env: dict[str, str], owner: str, other: str) -> None:
    """Ten turns of an agent, each with five hooks at once; at its end, all is released."""
    os.chdir(project)
    for name, value in {**CLEAN, "HOME": str(project), **env}.items():
        posix.environ[name.encode()] = value.encode()
    for number in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), number)
    chance = random.Random(owner)
    for _ in range(HOOKS // AT_ONCE):
        patterns = chance.choices(sorted(EXPANDED), k=AT_ONCE)
        hooks = [FORK.Process(target=_hook, args=(owner, other, each)) for each in patterns]
        for hook in hooks:
            hook.start()
        for hook in hooks:
            hook.join(60)
        assert [hook.exitcode for hook in hooks] == [0] * AT_ONCE
        for path in itertools.chain(*EXPANDED.values()):
            Path(_mark(path, owner)).unlink(missing_ok=True)
        assert _call("release", f"--owner={owner}") == 0
    killed = FORK.Process(target=_killed, args=(owner,))
    killed.start()
    killed.join(60)


def _hook(owner: str, other: str, pattern: str) -> None:
    held = _call("reserve", f"--pattern={pattern}", f"--owner={owner}", "--ttl=1h")
    assert held in (0, 1)
    if held == 0:
        for path in EXPANDED[pattern]:
            Path(_mark(path, owner)).touch()
        assert not any(Path(_mark(path, other)).exists() for path in EXPANDED[pattern])


def _killed(owner: str) -> None:
    _call("reserve", "--pattern=**", f"--owner={owner}", f"--pid={os.getpid()}")
    os.kill(os.getpid(), signal.SIGKILL)


def _mark(path: str, owner: str) -> str:
    return f"held-{path.replace('/', '-')}-{owner}"


def _call(verb: str, *words: str) -> int:
    return client.main(["coordination", verb, *words, "--timeout=60s"], "icctl")


def test_who_waits_is_woken_by_the_release_and_does_not_look_for_it(
    initialized: Path, shared_daemon: Daemon
) -> None:
    """Of five waits at least three end in half the time after which each would look again."""
    where = {"cwd": str(initialized)}
    words = ["coordination", "reserve", "--owner=bob", "--path=a", "--wait=60s", "--timeout=60s"]
    run = {"argv": words, "deadline_ms": 60_000, **where}
    request = {"jsonrpc": "2.0", "id": 1, "method": "cli.run", "params": run}

    def refusals() -> int:
        told = shared_daemon.call("events.tail", source="coordination", limit=1000, **where)
        return sum(event["type"] == "conflict" for event in told["events"])

    late = []
    for number in range(1, 6):
        shared_daemon.call("coordination.reserve", owner="ann", path="a", **where)
        with shared_daemon.connect() as sock:
            sock.sendall(json.dumps(request).encode() + b"\n")
            until(lambda: refusals() == number)  # noqa: B023
            released = time.monotonic()
            shared_daemon.call("coordination.release", owner="ann", **where)
            lines = sock.makefile("rb")
            reply = next(said for said in map(json.loads, lines) if "id" in said)
            late.append(time.monotonic() - released)
        assert reply["result"]["exit"] == 0, reply
        shared_daemon.call("coordination.release", owner="bob", **where)

    assert statistics.median(late) < LOOK_AGAIN_SECONDS / 2, late
