"""Waiting for a lock: told by the kernel, and ending in time whatever it tells."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from icd.errors import LockHeld
from icd.features.locks import owners, store
from icd.features.locks.directory import Place
from icd.features.locks.owners import Owner
from tests.support.processes import links, until, watches

# Waits for a lock, and says what it cost.
WAITER = """
import os, sys, time
from icd.features.locks import owners, store
from icd.features.locks.directory import Place
owners.LOOK_AGAIN_SECONDS = float(sys.argv[2])
owner = owners.of_process(os.getpid(), owners.here(), 1)
store.acquire(Place(sys.argv[1]), "n", "s", owner, deadline=time.monotonic() + 40)
print("acquired", flush=True)
"""
NEVER = 1000.0  # a waiter that is not told would wait until its deadline, and fail


def owner_of(pid: int) -> Owner:
    return owners.of_process(pid, owners.here(), int(time.time()))


def take(place: Place, owner: Owner, seconds: float = 0.0) -> None:
    store.acquire(place, "n", "s", owner, deadline=time.monotonic() + seconds)


def waiter(place: Place, look_again: float = NEVER) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-c", WAITER, place.base, str(look_again)]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def sleeps_watching(pid: int, *, holder: bool) -> bool:
    """Whether it watches the directory and, if so asked, the holder; and sleeps."""
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    knows_holder = any("pidfd" in link for link in links(pid))
    return watches(pid) and state == "S" and knows_holder == holder


def test_a_waiter_is_told_of_a_release(place: Place) -> None:
    take(place, owner_of(os.getpid()))
    with waiter(place) as process:
        until(lambda: sleeps_watching(process.pid, holder=True))

        store.release(place, "n", "s", owner_of(os.getpid()))

        assert process.communicate(timeout=45)[0] == b"acquired\n"


def test_a_waiter_is_told_of_the_holders_death(place: Place) -> None:
    with subprocess.Popen(["sleep", "60"]) as holder:
        take(place, owner_of(holder.pid))
        with waiter(place) as process:
            until(lambda: sleeps_watching(process.pid, holder=True))

            holder.kill()

            assert process.communicate(timeout=45)[0] == b"acquired\n"


def test_a_waiter_is_told_when_the_original_removes_its_lock(place: Place) -> None:
    place.make("n")
    os.mkdir(place.lock("n", "s"), 0o700)
    with waiter(place) as process:
        until(lambda: sleeps_watching(process.pid, holder=False))

        os.rmdir(place.lock("n", "s"))

        assert process.communicate(timeout=45)[0] == b"acquired\n"


def test_a_waiter_sleeps_while_others_come_and_go_beside_it(place: Place) -> None:
    watch = owners.Watch(place.name("n"), "s")
    us = owner_of(os.getpid())
    take(place, us)
    with watch:
        watch.wait(us, time.monotonic())  # from now on it watches
        for scope in ("other", "s2", "t"):
            store.acquire(place, "n", scope, us, deadline=0)
            store.release(place, "n", scope, us)
        before = time.monotonic()

        watch.wait(us, before + 0.1)

        assert time.monotonic() - before >= 0.1


def test_a_directory_that_was_made_anew_is_watched_again(place: Place) -> None:
    take(place, owner_of(os.getpid()))
    with waiter(place, look_again=0.05) as process:
        until(lambda: sleeps_watching(process.pid, holder=True))
        os.rename(place.name("n"), f"{place.base}/old")
        os.mkdir(place.name("n"), 0o700)

        assert process.communicate(timeout=45)[0] == b"acquired\n"


def test_without_inotify_waiting_is_looking_now_and_then(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owners.ctypes, "CDLL", lambda *_args, **_options: object())
    us = owner_of(os.getpid())
    place.make("n")
    naps = []
    monkeypatch.setattr(owners.time, "sleep", naps.append)

    with owners.Watch(place.name("n"), "s") as watch:
        for _ in range(10):
            watch.wait(us, time.monotonic() + 60)

    assert naps[0] == owners.FIRST_PAUSE
    assert naps[-1] == owners.LAST_PAUSE


def test_waiting_costs_no_processor(place: Place) -> None:
    us = owner_of(os.getpid())
    take(place, us)
    before = time.process_time()

    with pytest.raises(LockHeld):
        take(place, us, seconds=1.0)

    assert time.process_time() - before < 0.2  # it takes 0.002; a busy loop takes all of it


@pytest.mark.parametrize("seconds", [-1.0, 0.0, 0.05])
def test_waiting_never_ends_before_its_time_and_asks_at_least_once(
    place: Place, seconds: float
) -> None:
    us = owner_of(os.getpid())
    before = time.monotonic()
    take(place, us, seconds)

    with pytest.raises(LockHeld):
        take(place, us, seconds)

    assert time.monotonic() - before >= seconds
