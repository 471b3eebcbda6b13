"""Faults that naive daemons of this kind die of."""

import resource
import sqlite3
import sys
from pathlib import Path

import anyio
import pytest

from icd.server.stores.db_thread import DbThread
from tests.support import mounts
from tests.support.processes import Daemon, icctl, running, until

# Runs the real daemon, and ends it at once if Python itself opens the database file: POSIX would
# drop all of SQLite's locks when that descriptor is closed.
AUDITED = """
import os, sys
def audit(event, arguments):
    if event == "open" and str(arguments[0]).endswith("intercore.db") and not creating(arguments):
        os.write(2, b"the database file was opened outside SQLite")
        os._exit(99)
def creating(arguments):
    return isinstance(arguments[2], int) and arguments[2] & os.O_EXCL
sys.addaudithook(audit)
sys.argv[0] = "icd"
from icd.__main__ import main
main()
"""

# The same daemon with the mistake: it looks into the file after each batch.
NAIVE = """
import sys
import icd.server.stores.store as store
real = store.run_batch
def run_batch(database, calls, **options):
    answers = real(database, calls, **options)
    open(database.path, "rb").close()
    return answers
store.run_batch = run_batch
sys.argv[0] = "icd"
from icd.__main__ import main
main()
"""


@pytest.mark.parametrize("code", [AUDITED, NAIVE])
def test_acknowledged_writes_survive_a_crash_after_a_direct_writer_came_by(
    code: str, initialized: Path
) -> None:
    """With the stray open the direct writer removes the log of the daemon, which then recovers."""
    where = {"cwd": str(initialized), "key": "k"}
    with running(command=[sys.executable, "-c", code]) as daemon:
        daemon.call("state.set", **where, scope_id="first", payload=1)
        direct = icctl(
            "state",
            "set",
            "k",
            "direct",
            "--value=1",
            cwd=initialized,
            env={"INTERCORE_MODE": "direct"},
        )
        assert direct.returncode == 0

        for number in range(100):
            daemon.call("state.set", **where, scope_id=f"s{number}", payload=number)
        daemon.kill()

    found = icctl("state", "list", "k", cwd=initialized, env={"INTERCORE_MODE": "direct"})
    assert len(found.stdout.splitlines()) == 102


def test_a_daemon_without_descriptors_goes_on(initialized: Path) -> None:
    """anyio's own listener ends with the first EMFILE."""

    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))

    daemon = Daemon()
    try:
        daemon.start(preexec_fn=few)
        idle = [daemon.connect() for _ in range(80)]
        until(lambda: "too few descriptors" in daemon.log.read_text())
        meanwhile = icctl("health", cwd=initialized, env={"INTERCORE_SOCKET": daemon.socket})
        for sock in idle:
            sock.close()

        assert (meanwhile.returncode, meanwhile.stdout) == (0, b"ok\n")
        until(lambda: _answers(daemon))
    finally:
        daemon.close()


def _answers(daemon: Daemon) -> bool:
    try:
        return bool(daemon.call("icd.ping"))
    except (ConnectionError, ValueError):
        return False


@pytest.mark.anyio
@pytest.mark.parametrize("kind", [StopIteration, KeyError, SystemExit])
async def test_no_exception_in_the_hop_hangs_the_lane(kind: type[BaseException]) -> None:
    """A StopIteration cannot be set on a future: the naive hop waits for ever."""

    def fail() -> None:
        raise kind

    lane = await DbThread.open(lambda: sqlite3.connect(":memory:"))
    try:
        with anyio.fail_after(5), pytest.raises(RuntimeError if kind is StopIteration else kind):
            await lane.hop(fail)

        with anyio.fail_after(5):
            assert await lane.hop(lambda: 42) == 42
    finally:
        await lane.close()


@pytest.mark.anyio
async def test_a_hop_that_takes_its_time_is_waited_for_in_the_loop() -> None:
    import threading

    lane = await DbThread.open(lambda: sqlite3.connect(":memory:"))
    gate = threading.Event()
    results = []
    try:
        async with anyio.create_task_group() as tasks:

            async def slow() -> None:
                results.append(await lane.hop(gate.wait))

            tasks.start_soon(slow)
            await anyio.sleep(0.05)
            gate.set()  # would never be reached if the loop were blocked

        assert results == [True]
    finally:
        await lane.close()


def test_a_full_disk_fails_only_what_does_not_fit(initialized: Path) -> None:
    """On a real full filesystem: nothing is half-written, and reading goes on."""
    with mounts.small("600k") as small, running() as daemon:
        where = {"cwd": str(small), "key": "k"}
        daemon.call("db.init", cwd=str(small))
        daemon.call("state.set", **where, scope_id="small", payload=1)

        full = daemon.respond("state.set", **where, scope_id="large", payload=["x" * 100_000] * 9)

        assert full["error"]["data"]["name"] == "disk_full"
        assert daemon.call("state.list", **where) == [{"key": "k", "scope_id": "small"}]
        assert daemon.call("state.set", **where, scope_id="small", payload=2)["version"] > 1
        assert daemon.stop() == 0
