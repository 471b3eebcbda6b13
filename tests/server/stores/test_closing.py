"""Databases are closed when nobody needs them, opened again for whoever asks, and never missed."""

import os
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from icd.app import registry
from icd.app.call import Answer, Call
from icd.app.dispatch import Clock
from icd.config import Settings
from icd.db.database import Database
from icd.db.paths import Where
from icd.server.stores.maintenance import Turns
from icd.server.stores.store import Store
from icd.values.processes import Writer
from tests.support import mirrors
from tests.support.mirrors import Band
from tests.support.processes import PATIENCE, Daemon, icctl, until, vanish
from tests.support.streams import Watcher

DIRECT = {"INTERCORE_MODE": "direct"}
# Not before the dispatches were looked for (limits.OBSERVE_GAP_SECONDS): a database that is needed in
# the moment when it would be closed is looked at again only after limits.LOOK_SECONDS.
SOON = "idle_seconds = 0.05\nclose_idle_seconds = 0.15\n"
CLOSED = "database closed"


@pytest.fixture
def hasty(initialized: Path) -> Path:
    """A project whose database is closed at once."""
    (initialized / ".clavain" / "intercore.toml").write_text(SOON)
    return initialized


@pytest.fixture
def put(daemon: Daemon, hasty: Path):
    mirrors.want(daemon.home)
    mirrors.accept(daemon.home, hasty)

    def row(key: str, **params: Any) -> Any:
        where = {"cwd": str(hasty), "key": key, "scope_id": "s"}
        return daemon.call("state.set", **where, payload={"n": 1}, **params)

    return row


def opened(daemon: Daemon) -> list[str]:
    return [database["path"] for database in daemon.call("icd.status")["databases"]]


def files(daemon: Daemon) -> list[str]:
    """What the daemon has open."""
    directory = f"/proc/{daemon.pid}/fd"
    found = []
    for name in os.listdir(directory):
        try:
            found.append(os.readlink(f"{directory}/{name}"))
        except FileNotFoundError:  # closed meanwhile
            continue
    return found


def test_a_database_that_nobody_uses_is_closed_and_leaves_nothing_behind(
    daemon: Daemon, put, hasty: Path
) -> None:
    threads = len(os.listdir(f"/proc/{daemon.pid}/task"))
    put("k")

    until(lambda: not opened(daemon))

    assert sorted(path.name for path in (hasty / ".clavain").iterdir()) == [
        ".gitignore", "intercore.db", "intercore.db.lock", "intercore.toml",
    ]  # fmt: skip
    assert not [file for file in files(daemon) if str(hasty) in file]
    until(lambda: len(os.listdir(f"/proc/{daemon.pid}/task")) <= threads)
    assert daemon.call("state.list", cwd=str(hasty), key="k") == [{"key": "k", "scope_id": "s"}]


def test_a_database_in_use_stays_open(daemon: Daemon, initialized: Path) -> None:
    (initialized / ".clavain" / "intercore.toml").write_text("idle_seconds = 0.05\n")
    daemon.call("state.set", cwd=str(initialized), key="k", scope_id="s", payload=1)

    until(lambda: (initialized / ".clavain" / "intercore.db-wal").stat().st_size == 0)

    assert opened(daemon) == [str(initialized / ".clavain" / "intercore.db")]


@pytest.mark.long
def test_no_call_fails_or_is_lost_while_its_database_keeps_closing(
    daemon: Daemon, hasty: Path
) -> None:
    (hasty / ".clavain" / "intercore.toml").write_text(f"{SOON}mirror.enabled = false\n")
    callers, calls = 6, 25
    where = {"cwd": str(hasty), "key": "n", "scope_id": "s"}
    failed: list[Any] = []

    def count(number: int) -> None:
        for turn in range(calls):
            answer = daemon.respond("state.incr", **where, deadline_ms=15_000)
            failed.extend([answer] if "error" in answer else [])
            time.sleep(0.04 + (number * 7 + turn) % 5 * 0.01)  # about when it is closed

    workers = [threading.Thread(target=count, args=(number,)) for number in range(callers)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for _ in range(20):
        until(lambda: not opened(daemon))
        daemon.call("state.incr", **where)

    assert failed == []
    assert daemon.call("state.get", **where)["payload"] == callers * calls + 20
    assert daemon.log.read_text().count(CLOSED) >= 20


@pytest.mark.anyio
async def test_whoever_asks_in_the_moment_of_closing_is_answered(database: Database) -> None:
    """By the same store, which opens the file again."""
    method = registry.find("state.list")
    where = Where("", database.path)
    answers: list[Answer] = []

    def call() -> Call:
        params = method.params(key="k")
        return Call(method, params, where, Writer(), time.monotonic() + PATIENCE)

    settings = Settings(idle_seconds=0.05, close_idle_seconds=0.05)
    store = Store(database.path, settings, Clock(), lambda _: None, Turns())

    def when_it_is_decided() -> bool:
        if not answers:
            for _ in range(10):
                store.submit([call()], answers.extend)
        return False

    store.keep_while(when_it_is_decided)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(store.run)
        await store.ask([call()])
        first = store.database._conn
        with anyio.fail_after(PATIENCE):
            while not answers:  # noqa: ASYNC110 -- what is waited for knows no events
                await anyio.sleep(0.005)
        reopened = store.database._conn not in {first, None}
        await store.stop()

    assert reopened
    assert [answer.result for answer in answers] == [[]] * 10


def test_a_database_that_somebody_follows_stays_open(daemon: Daemon, hasty: Path) -> None:
    with Watcher(daemon, hasty) as watcher:
        watcher.line()
        daemon.call("state.set", cwd=str(hasty), key="lane", scope_id="s1", payload="x")
        assert watcher.line() == "lane x\n"
        time.sleep(1)  # long enough to be closed many times

        assert daemon.log.read_text().count(CLOSED) == 0
    until(lambda: not opened(daemon))


def test_a_database_stays_open_until_the_file_of_a_row_that_expires_is_gone(
    daemon: Daemon, put
) -> None:
    band = Band(daemon)
    file = band.file("interphase/bead", "s")
    put("bead", ttl_ms=4000)
    band.shows("interphase/bead", "s", {"n": 1})

    while file.exists():
        is_open = bool(opened(daemon))
        assert is_open or not file.exists()
        time.sleep(0.01)

    until(lambda: not opened(daemon))


def test_a_database_stays_open_while_a_file_could_not_be_written(daemon: Daemon, put) -> None:
    band = Band(daemon)
    obstacle = band.root / "interphase"
    obstacle.write_text("not a directory")
    put("bead")
    until(lambda: daemon.call("icd.status")["mirror"]["failed"])
    time.sleep(0.5)

    assert opened(daemon)
    obstacle.unlink()
    band.shows("interphase/bead", "s", {"n": 1})
    until(lambda: not opened(daemon))


def test_what_was_written_while_it_was_closed_is_mirrored_when_it_is_opened(
    daemon: Daemon, put, hasty: Path
) -> None:
    band = Band(daemon)
    put("bead")
    band.shows("interphase/bead", "s", {"n": 1})
    until(lambda: not opened(daemon))
    icctl("state", "set", "bead", "s", '--value={"n":2}', cwd=hasty, env=DIRECT)

    daemon.call("state.list", cwd=str(hasty), key="k")

    band.shows("interphase/bead", "s", {"n": 2})


def hold(project: Path) -> "subprocess.Popen[bytes]":
    """A process that has the lock of the project's database, until its input ends."""
    lock = project / ".clavain" / "intercore.db.lock"
    holder = subprocess.Popen(
        ["flock", lock, "-c", "echo; read line"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    return holder


def test_a_lock_that_somebody_holds_puts_the_closing_off(daemon: Daemon, put, hasty: Path) -> None:
    config = hasty / ".clavain" / "intercore.toml"
    config.write_text("idle_seconds = 0.05\nclose_idle_seconds = 0.5\n")
    file = str(hasty / ".clavain" / "intercore.db")
    put("k")
    holder = hold(hasty)
    # It is closed under the lock only, and what the daemon has open tells it at once: its status may
    # show a database for a moment longer.
    while file not in files(daemon):  # it was closed before we had the lock
        holder.communicate()
        put("k")
        holder = hold(hasty)
    time.sleep(1)

    held = file in files(daemon)
    holder.communicate()

    assert held
    until(lambda: not opened(daemon))


# --- files that change while nobody asks ---


@pytest.fixture
def resting(daemon: Daemon, initialized: Path) -> Path:
    """A project whose database is open, and not used."""
    (initialized / ".clavain" / "intercore.toml").write_text("idle_seconds = 0.5\n")
    daemon.call("state.set", cwd=str(initialized), key="k", scope_id="s", payload=1)
    return initialized


def test_a_deleted_database_is_closed_though_nobody_asks(daemon: Daemon, resting: Path) -> None:
    vanish(resting / ".clavain")

    until(lambda: not opened(daemon))

    assert not [file for file in files(daemon) if str(resting) in file]
    assert CLOSED in daemon.log.read_text()


def test_a_moved_database_is_closed_and_found_in_its_new_place(
    daemon: Daemon, resting: Path, tmp_path: Path
) -> None:
    moved = tmp_path / "moved"
    resting.rename(moved)

    until(lambda: not opened(daemon))

    assert not [file for file in files(daemon) if "intercore.db" in file]
    assert daemon.call("state.list", cwd=str(moved), key="k") == [{"key": "k", "scope_id": "s"}]


def test_a_replaced_database_is_noticed_though_nobody_asks(daemon: Daemon, resting: Path) -> None:
    other = resting / "other" / ".clavain" / "new.db"
    icctl("init", "--db", str(other), cwd=resting, env=DIRECT)
    os.replace(other, resting / ".clavain" / "intercore.db")

    until(lambda: "was replaced while it was in use" in daemon.log.read_text())

    until(lambda: not [file for file in files(daemon) if file.endswith("(deleted)")])
    until(lambda: not opened(daemon))
    told = daemon.respond("state.list", cwd=str(resting), key="k")
    assert told["error"]["data"]["name"] == "log_lost"
    assert daemon.call("state.list", cwd=str(resting), key="k") == []
    assert len(opened(daemon)) == 1
