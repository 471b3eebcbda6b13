"""Locks as directories: real files, real processes."""

import contextlib
import fcntl
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from icd.errors import IcError, InvalidName, Locked, LockHeld, NotHolder, PermissionRefused
from icd.features.locks import directory, owners, store
from icd.features.locks.directory import Place
from icd.features.locks.owners import Owner
from tests.support.processes import until, watches

HERE = owners.here()
# Takes and releases the lock of a place, so many times.
CHURN = """
import os, sys, time
from icd.features.locks import owners, store
from icd.features.locks.directory import Place
owner = owners.of_process(os.getpid(), owners.here(), 1)
for _ in range(int(sys.argv[2])):
    store.acquire(Place(sys.argv[1]), "n", "s", owner, deadline=time.monotonic() + 40)
    store.release(Place(sys.argv[1]), "n", "s", owner)
"""


def living(pid: int | None = None) -> Owner:
    return owners.of_process(pid or os.getpid(), HERE, int(time.time()))


def dead() -> Owner:
    process = subprocess.Popen(["sleep", "60"])
    owner = living(process.pid)
    process.kill()
    process.wait()
    return owner


def held(place: Place, name: str = "n", scope: str = "s") -> Path:
    return Path(place.lock(name, scope))


def take(place: Place, owner: Owner | None = None, seconds: float = 0.0) -> None:
    store.acquire(place, "n", "s", owner or living(), deadline=time.monotonic() + seconds)


def test_a_lock_is_a_private_directory_with_its_owner_in_it(place: Place) -> None:
    take(place)

    found = json.loads((held(place) / "owner.json").read_bytes())
    assert found["pid"] == os.getpid()
    assert found["owner"] == f"{os.getpid()}:{found['host']}"
    assert {"pid", "host", "owner", "created", "start", "boot", "pidns"} == found.keys()
    assert (held(place) / "owner.json").stat().st_mode & 0o777 == 0o600
    for path in (place.base, place.name("n"), place.lock("n", "s")):
        assert os.stat(path).st_mode & 0o777 == 0o700


def test_a_lock_that_is_held_is_refused_with_holder_age_and_liveness(place: Place) -> None:
    old = msgspec.structs.replace(living(), created=int(time.time()) - 3600)
    take(place, old)

    with pytest.raises(LockHeld) as refused:
        take(place)

    assert f"held by process {os.getpid()} on {HERE.host}" in refused.value.message
    assert "for 3600 s, which is alive" in refused.value.message


def test_a_lock_is_as_old_as_its_holding_not_as_the_wait_for_it() -> None:
    asked = living()

    assert store._older(asked, 0.9).created == asked.created
    assert store._older(asked, 600.5).created == asked.created + 600


def test_a_live_holder_keeps_its_lock_however_old_it_is(place: Place) -> None:
    take(place, msgspec.structs.replace(living(), created=1))

    with pytest.raises(LockHeld):
        take(place, living(os.getppid()))

    assert store.clean(place, 0) == 0
    store.release(place, "n", "s", living())


def test_a_dead_holders_lock_is_broken_at_once(place: Place) -> None:
    take(place, dead())

    take(place)

    (lock,) = store.every(place)
    assert lock.owner is not None
    assert lock.owner.pid == os.getpid()


def test_a_lock_of_another_host_is_never_broken(place: Place) -> None:
    take(place, Owner(1, "elsewhere", "1:elsewhere", 1))

    with pytest.raises(LockHeld, match="whether it is alive is unknown"):
        take(place)

    assert store.clean(place, 0) == 0


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]"])
def test_a_lock_without_a_readable_owner_is_never_broken_by_acquire(
    place: Place, content: bytes | None
) -> None:
    place.make("n")
    held(place).mkdir(mode=0o700)
    if content is not None:
        (held(place) / "owner.json").write_bytes(content)

    with pytest.raises(LockHeld, match="no readable owner"):
        take(place)

    assert held(place).is_dir()


def test_clean_removes_nameless_locks_when_they_are_old_enough(place: Place) -> None:
    place.make("n", "young")
    held(place).mkdir(mode=0o700)
    held(place, "young").mkdir(mode=0o700)
    os.utime(held(place), (1, 1))

    gone = store.clean(place, 0)

    assert gone == 1
    assert held(place, "young").is_dir()


def test_clean_removes_what_killed_processes_left_and_nothing_that_is_in_use(place: Place) -> None:
    place.make("n")
    old = dead()
    left, used, young = (
        Path(f"{place.work}/{owner.pid}.{owner.start}.{number}")
        for number, owner in enumerate((old, living(), old))
    )
    for path in (left, used, young):
        path.mkdir()
        (path / "owner.json").touch()
    for path in (left, used):
        os.utime(path, (1, 1))

    store.clean(place, 0)

    assert sorted(Path(place.work).iterdir()) == sorted([used, young])


def test_release_needs_the_owner(place: Place) -> None:
    take(place)

    with pytest.raises(NotHolder, match=f"held by process {os.getpid()}"):
        store.release(place, "n", "s", living(os.getppid()))
    store.release(place, "n", "s", living())
    with pytest.raises(NotHolder, match="is not held"):
        store.release(place, "n", "s", living())

    assert Path(place.name("n")).is_dir()
    assert os.listdir(place.work) == []


def test_a_recycled_number_does_not_release_the_lock_of_its_predecessor(place: Place) -> None:
    before = msgspec.structs.replace(living(), start=1)
    take(place, before)

    with pytest.raises(NotHolder):
        store.release(place, "n", "s", living())


def test_a_breaker_that_judged_too_early_leaves_the_fresh_lock_alone(place: Place) -> None:
    """The race of the original: judge a dead lock, be overtaken, remove the successor's."""
    take(place, dead())
    judged = store.look(place, "n", "s", HERE)
    take(place)  # somebody was faster

    removed = owners.run(store._breaking(place, "n", "s"))

    assert judged is not None
    assert judged.liveness == "dead"
    assert not removed
    assert held(place).is_dir()


@contextlib.contextmanager
def stopped_decider(place: Place) -> Iterator[None]:
    """Somebody was stopped between judging a lock and removing it."""
    place.make("n")
    fd = os.open(place.name("n"), os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(fd)


def test_nobody_removes_a_lock_while_another_decides(place: Place) -> None:
    take(place, dead())
    with stopped_decider(place):
        with pytest.raises(LockHeld, match="which is dead"):
            take(place, seconds=0.05)
        with pytest.raises(Locked, match="keeps"):
            store.release(place, "n", "s", living(), seconds=0.05)

        assert held(place).is_dir()

    take(place)


def test_a_decider_that_is_stopped_keeps_nobody_from_a_free_lock(place: Place) -> None:
    with stopped_decider(place):
        take(place)

    store.release(place, "n", "s", living())


def test_a_waiter_goes_on_when_a_stopped_decider_does(place: Place) -> None:
    take(place, dead())
    with stopped_decider(place):
        waiter = subprocess.Popen([sys.executable, "-c", CHURN, place.base, "1"])
        until(lambda: watches(waiter.pid))

    assert waiter.wait(45) == 0


def test_an_empty_directory_made_by_mkdir_is_not_replaced(place: Place) -> None:
    place.make("n")
    draft = Path(f"{place.work}/1.1.draft")
    draft.mkdir()
    held(place).mkdir()

    assert not store._rename_to_nothing(str(draft), str(held(place)))
    assert draft.is_dir()


@pytest.mark.parametrize("word", ["", ".", "..", "a..b", "a/b", "a\\b", "a\tb", "a\nb", "x" * 256])
def test_words_that_are_no_names_of_directories_are_refused(place: Place, word: str) -> None:
    for name, scope in ((word, "s"), ("n", word), (".work", "s")):
        with pytest.raises(InvalidName):
            store.acquire(place, name, scope, living(), deadline=0)
        with pytest.raises(InvalidName):
            store.release(place, name, scope, living())


def test_odd_words_are_fine(place: Place) -> None:
    for scope in ("-rf", ".hidden", "ünïcödé", "with space", "x" * 255, "$(id)", "'"):
        store.acquire(place, "n", scope, living(), deadline=0)

    assert len(store.every(place)) == 7


def test_directories_that_are_not_ours_alone_are_refused(place: Place, unfit: Path) -> None:
    with pytest.raises(IcError) as refused:
        take(place)

    assert refused.value.exit == 2
    assert str(unfit) in refused.value.message


def test_a_symbolic_link_in_the_place_of_a_lock_is_a_lock_that_nobody_follows(
    place: Place, tmp_path: Path
) -> None:
    target = tmp_path / "precious"
    target.mkdir()
    (target / "file").touch()
    place.make("n")
    held(place).symlink_to(target)

    with pytest.raises(LockHeld):
        take(place)
    os.utime(held(place), (1, 1), follow_symlinks=False)
    gone = store.clean(place, 0)

    assert gone == 1
    assert not os.path.lexists(held(place))
    assert (target / "file").exists()


@pytest.mark.parametrize("kind", ["link", "pipe", "directory"])
def test_an_owner_that_is_no_plain_file_is_none(place: Place, tmp_path: Path, kind: str) -> None:
    take(place, dead())
    record = held(place) / "owner.json"
    content = record.read_bytes()
    record.unlink()
    if kind == "link":
        (tmp_path / "record").write_bytes(content)
        record.symlink_to(tmp_path / "record")
    elif kind == "pipe":
        os.mkfifo(record)
    else:
        record.mkdir()

    with pytest.raises(LockHeld, match="no readable owner"):
        take(place)


def test_the_place_comes_from_the_environment_and_must_be_absolute() -> None:
    assert directory.place({}).base == "/tmp/intercore/locks"
    assert directory.place({"INTERCORE_LOCK_DIR": "/x/y/"}).base == "/x/y"
    with pytest.raises(IcError, match="absolute"):
        directory.place({"INTERCORE_LOCK_DIR": "x"})


def test_a_holder_that_is_killed_at_any_moment_leaves_nothing_that_lasts(place: Place) -> None:
    for attempt in range(12):
        with subprocess.Popen([sys.executable, "-c", CHURN, place.base, "1000000"]) as worker:
            until(lambda: os.path.isdir(place.name("n")))
            until(lambda worker=worker: _is_at_it(place, worker.pid))
            time.sleep(attempt / 4000)  # any moment will do
            worker.kill()

        take(place)
        store.release(place, "n", "s", living())


def _is_at_it(place: Place, pid: int) -> bool:
    found = store.look(place, "n", "s", HERE)
    return found is not None and found.owner is not None and found.owner.pid == pid


# --- what the file system may do to us ---


def test_a_full_disk_is_told_and_leaves_neither_a_lock_nor_debris(place: Place) -> None:
    """The limit of a file's size stands for the disk: the owner's record cannot be written."""
    place.make("n")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        with pytest.raises(IcError) as refused:
            take(place)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert refused.value.exit == 2
    assert os.listdir(place.work) == os.listdir(place.name("n")) == []


def test_a_base_that_is_gone_is_made_again(place: Place) -> None:
    take(place)
    shutil.rmtree(place.base)

    take(place)

    assert held(place).is_dir()


def test_a_draft_that_is_taken_away_is_made_again(place: Place) -> None:
    """Whoever tidies up may take a maker for dead that was only stopped for long."""
    take(place)
    store.release(place, "n", "s", living())
    shutil.rmtree(place.work)

    take(place)

    assert held(place).is_dir()


# Takes and releases a lock, and is killed before its Nth step that others can see.
KILLED = """
import os, sys
from icd.features.locks import owners, store
from icd.features.locks.directory import Place
step, last = 0, int(sys.argv[2])
def count(event, _arguments):
    global step
    if event.partition(".")[0] in ("open", "os", "fcntl", "shutil", "ctypes"):
        step += 1
        if step == last:
            os.kill(os.getpid(), 9)
owner = owners.of_process(os.getpid(), owners.here(), 1)
sys.addaudithook(count)
store.acquire(Place(sys.argv[1]), "n", "s", owner, deadline=0)
store.release(Place(sys.argv[1]), "n", "s", owner)
"""


@pytest.mark.parametrize("before", ["nothing", "a dead owner"])
def test_whoever_is_killed_at_any_step_leaves_a_lock_that_the_next_one_gets(
    place: Place, before: str
) -> None:
    steps = 0
    status = -9
    while status == -9:
        if before == "a dead owner":
            take(place, dead())
        steps += 1
        status = subprocess.run(
            [sys.executable, "-c", KILLED, place.base, str(steps)], check=False
        ).returncode

        take(place)
        store.release(place, "n", "s", living())

    assert status == 0
    assert steps > 15
    assert os.listdir(place.name("n")) == []


def test_a_place_that_cannot_be_written_to_is_refused_with_what_to_do() -> None:
    with pytest.raises(IcError, match="/sys/intercore-locks") as refused:
        take(Place("/sys/intercore-locks"))

    assert refused.value.exit == 2
    assert refused.value.hint


def test_a_directory_of_another_user_is_refused(place: Place) -> None:
    place.make()
    if os.geteuid() == 0:
        os.chown(place.base, 12345, -1)
    else:
        place = Place("/usr")

    with pytest.raises(PermissionRefused, match="belongs to user"):
        take(place)
