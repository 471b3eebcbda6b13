"""A clock that jumps by an hour, ahead or back, under a daemon and between two commands."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.breakages import BREAKAGES, DIRECT, HOUR, Place, World, preloaded
from tests.support.processes import Daemon

GUARD = ("sentinel", "check", "guard", "s", "--interval=60")


@pytest.fixture(params=["daemon", "direct"])
def jump(request: pytest.FixtureRequest, initialized: Path) -> Iterator["Jumps"]:
    with preloaded() as (world, faults), contextlib.ExitStack() as stack:
        env = DIRECT
        if request.param == "daemon":
            daemon = stack.enter_context(contextlib.closing(world.daemon()))
            env = {"INTERCORE_SOCKET": daemon.start().socket, "INTERCORE_MODE": "daemon"}
        yield Jumps(world, faults, initialized, env)


class Jumps:
    """Commands in a world whose clock a test sets."""

    def __init__(self, world: World, faults: Path, project: Path, env: dict[str, str]) -> None:
        self._world, self._faults, self._project, self._env = world, faults, project, env

    def to(self, seconds: int) -> None:
        """Set the clock so far from the right time."""
        (self._faults / "clock").write_text(str(seconds))

    def run(self, *argv: str) -> tuple[int, bytes]:
        done = self._world.icctl(*argv, cwd=self._project, env=self._env)
        assert done.stderr == b""
        return done.returncode, done.stdout


@pytest.mark.parametrize("seconds", [HOUR, -HOUR])
def test_no_call_fails_because_the_clock_jumped(jump: Jumps, seconds: int) -> None:
    assert jump.run("state", "set", "k", "s", "--value=1") == (0, b"")

    jump.to(seconds)

    assert jump.run("state", "get", "k", "s", "--timeout=5s") == (0, b"1\n")
    assert jump.run("state", "set", "k", "s", "--value=2", "--timeout=5s") == (0, b"")
    assert jump.run("health") == (0, b"ok\n")
    jump.to(0)
    assert jump.run("state", "get", "k", "s") == (0, b"2\n")


def test_a_row_lives_by_the_clock_on_the_wall(jump: Jumps) -> None:
    jump.run("state", "set", "k", "s", "--value=1", "--ttl=30m")

    jump.to(-HOUR)
    before = jump.run("state", "get", "k", "s")
    jump.to(HOUR)
    after = jump.run("state", "get", "k", "s")

    assert (before, after) == ((0, b"1\n"), (1, b""))


def test_a_sentinel_is_not_fired_by_a_jump_back_and_is_by_a_jump_ahead(jump: Jumps) -> None:
    first = jump.run(*GUARD)

    jump.to(-HOUR)
    back = jump.run(*GUARD)
    jump.to(-HOUR + 61)  # one interval after it was seen: it does not wait for the lost hour
    later = jump.run(*GUARD)
    jump.to(HOUR)
    ahead = jump.run(*GUARD)

    assert [first[0], back[0], later[0], ahead[0]] == [0, 1, 0, 0]


@pytest.mark.parametrize("fault", ["clock ahead", "clock behind"])
def test_a_daemon_starts_and_stops_with_a_clock_that_is_wrong(
    fault: str, initialized: Path
) -> None:
    with BREAKAGES[fault](Place(initialized, initialized)) as world:
        daemon: Daemon = world.daemon()
        try:
            env = {"INTERCORE_SOCKET": daemon.start().socket, "INTERCORE_MODE": "daemon"}

            done = world.icctl("state", "set", "k", "s", "--value=1", cwd=initialized, env=env)

            assert (done.returncode, done.stderr) == (0, b"")
            assert daemon.stop() == 0
        finally:
            daemon.close()
