"""The one lock: exclusion between processes, deadlines, and files that are swapped underneath."""

import fcntl
import os
import signal
import time

import pytest

from icd import procfs
from icd.db import lock
from icd.db.lock import FileLock
from icd.errors import InputOutput, Locked, NoDatabase
from tests.support.processes import PATIENCE, until

# pytest-timeout's own timer is SIGALRM, which `lock.block` needs for itself.
pytestmark = pytest.mark.timeout(60, method="thread")

WAITS = [lock.block, lock.poll]
SOON = 0.05
LATER = 30.0

HOLDER = """
import sys, time
from icd.db import lock
held = lock.FileLock(sys.argv[1], lock.block)
held.acquire(time.monotonic() + 30)
print("held", flush=True)
sys.stdin.read()
held.release()
print("released", flush=True)
"""

COUNTER = """
import sys, time
from icd.db import lock
path, file, wait = sys.argv[1:]
held = lock.FileLock(path, getattr(lock, wait))
sys.stdin.read()
for _ in range(200):
    held.acquire(time.monotonic() + 30)
    with open(file) as counter:
        count = int(counter.read())
    with open(file, "w") as counter:
        counter.write(str(count + 1))
    held.release()
"""

NEARLY_OVER = """
import fcntl, os, sys, threading, time
from icd.db import lock
held = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(held, fcntl.LOCK_EX)
asked = os.open(sys.argv[1], os.O_RDWR)
progress = threading.Event()
def watch():
    while progress.wait(1):
        progress.clear()
    print("blocked long after the deadline", flush=True)
    os._exit(1)
threading.Thread(target=watch, daemon=True).start()
for attempt in range(5000):
    progress.set()
    assert not lock.block(asked, time.monotonic() + attempt % 30 * 1e-6)
print("done", flush=True)
"""


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "intercore.db.lock")


@pytest.fixture
def make(path):
    """Locks on the same path, each with a descriptor of its own, as other processes would."""
    made = []

    def file_lock(wait=lock.block):
        made.append(FileLock(path, wait))
        return made[-1]

    yield file_lock
    for each in made:
        each.close()


def acquire(file_lock, seconds=LATER):
    file_lock.acquire(time.monotonic() + seconds)


def is_free(path):
    """Whether a stranger could lock the file that the path names now."""
    fd = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True


# --- exclusion ------------------------------------------------------------------------------


@pytest.mark.parametrize("wait", WAITS)
def test_what_is_held_is_not_free_until_it_is_released(path, make, wait):
    held = make(wait)

    acquire(held)
    while_held = is_free(path)
    held.release()

    assert (while_held, is_free(path)) == (False, True)


def test_a_lock_can_be_used_again_after_its_release(path, make):
    held = make()
    for _ in range(3):
        acquire(held)
        held.release()

    acquire(held)

    assert not is_free(path)


@pytest.mark.parametrize("wait", ["block", "poll"])
def test_processes_that_count_under_the_lock_lose_nothing(start, tmp_path, path, wait):
    file = tmp_path / "count"
    file.write_text("0")
    processes = [start(COUNTER, path, file, wait) for _ in range(3)]

    for process in processes:
        process.stdin.close()
    statuses = [process.wait(LATER) for process in processes]

    assert statuses == [0, 0, 0]
    assert file.read_text() == "600"


@pytest.mark.parametrize("wait", WAITS)
def test_a_waiting_process_gets_the_lock_when_the_holder_lets_go(start, path, make, wait):
    holder = start(HOLDER, path)
    holder.stdout.readline()
    waiting = make(wait)

    holder.stdin.close()
    acquire(waiting)

    assert not is_free(path)
    assert holder.stdout.readline() == "released\n"


@pytest.mark.parametrize("wait", WAITS)
def test_a_killed_holder_holds_nothing(start, path, make, wait):
    holder = start(HOLDER, path)
    holder.stdout.readline()

    holder.kill()

    acquire(make(wait))


# --- deadlines ------------------------------------------------------------------------------


@pytest.mark.parametrize("wait", WAITS)
def test_waiting_ends_at_the_deadline_and_names_the_holder(start, path, make, wait):
    holder = start(HOLDER, path)
    holder.stdout.readline()
    began = time.monotonic()

    with pytest.raises(Locked, match=rf"the database is locked by process {holder.pid} \(\S+\)"):
        acquire(make(wait), SOON)

    assert SOON <= time.monotonic() - began < PATIENCE


def test_a_holder_that_is_stopped_is_called_so_with_the_way_out(start, path, make):
    holder = start(HOLDER, path)
    holder.stdout.readline()
    holder.send_signal(signal.SIGSTOP)
    until(lambda: procfs.stat(holder.pid).is_stopped)

    with pytest.raises(Locked, match=r"which is stopped$") as told:
        acquire(make(), SOON)

    holder.send_signal(signal.SIGCONT)
    assert f"'kill -CONT {holder.pid}'" in told.value.hint


@pytest.mark.parametrize("wait", WAITS)
def test_a_deadline_in_the_past_still_takes_what_is_free(make, wait):
    acquire(make(wait), -1)


@pytest.mark.parametrize("wait", WAITS)
def test_a_deadline_in_the_past_does_not_wait_for_what_is_held(make, wait):
    acquire(make(wait))

    with pytest.raises(Locked):
        acquire(make(wait), -1)


def test_after_a_deadline_the_lock_can_be_asked_for_again(make):
    held, waiting = make(), make()
    acquire(held)
    with pytest.raises(Locked):
        acquire(waiting, SOON)

    held.release()

    acquire(waiting)


def test_a_deadline_that_is_nearly_over_still_ends_the_waiting(start, path):
    process = start(NEARLY_OVER, path)

    assert process.stdout.readline() == "done\n"


def test_waiting_too_long_for_a_poll_slows_down_but_ends(make):
    acquire(make(lock.poll))
    longer = lock.POLL_EAGERLY_FOR + 0.05
    began = time.monotonic()

    with pytest.raises(Locked):
        acquire(make(lock.poll), longer)

    assert time.monotonic() - began >= longer


def test_the_time_spent_waiting_is_known(make):
    held = make()

    acquire(held)

    assert 0 <= held.waited_ms < 5000


def test_blocking_leaves_the_signals_of_the_process_as_they_were(make):
    def mine(_signum, _frame):
        raise AssertionError("an alarm after the wait was over")

    before = signal.signal(signal.SIGALRM, mine)
    acquire(make())
    with pytest.raises(Locked):
        acquire(make(), SOON)

    handler, timer = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)

    signal.signal(signal.SIGALRM, before)
    assert (handler, timer) == (mine, (0.0, 0.0))


# --- the file -------------------------------------------------------------------------------


def test_the_file_is_private_whatever_the_umask(path, make, mode, open_umask):
    acquire(make())

    assert mode(path) == 0o600


def test_the_file_is_never_unlinked(path, make):
    held = make()
    acquire(held)
    inode = os.stat(path).st_ino

    held.release()
    held.close()

    assert os.stat(path).st_ino == inode


def test_releasing_and_closing_what_was_never_held_is_nothing(path, make):
    unused = make()

    unused.release()
    unused.close()

    assert not os.path.exists(path)


@pytest.mark.parametrize("swap", ["replaced", "deleted"])
def test_a_lock_file_that_was_swapped_between_two_uses_is_opened_anew(path, make, swap):
    held = make()
    acquire(held)
    held.release()
    if swap == "replaced":
        other = path + ".new"
        os.close(os.open(other, os.O_CREAT | os.O_RDWR))
        os.rename(other, path)
    else:
        os.unlink(path)

    acquire(held)

    assert not is_free(path)


def test_a_lock_file_that_is_swapped_while_somebody_waits_is_noticed(start, path, make):
    holder = start(HOLDER, path)
    holder.stdout.readline()
    waiting = make()
    with pytest.raises(Locked):
        acquire(waiting, SOON)
    os.unlink(path)

    holder.stdin.close()
    acquire(waiting)

    assert not is_free(path)


def test_a_symbolic_link_is_not_followed(tmp_path, path, make):
    os.symlink(tmp_path / "elsewhere", path)

    with pytest.raises(InputOutput, match="cannot open the lock file"):
        acquire(make())

    assert not os.path.exists(tmp_path / "elsewhere")


def test_a_directory_that_is_gone_holds_no_database(tmp_path):
    lost = FileLock(str(tmp_path / "gone" / "x.lock"), lock.block)

    with pytest.raises(NoDatabase, match="no database at "):
        acquire(lost)


# --- who holds it ---------------------------------------------------------------------------


def test_nobody_in_particular_holds_a_lock_that_is_free(make):
    held = make()
    acquire(held)
    held.release()

    assert procfs.lock_holder(os.fstat(held._fd).st_ino) is None
    assert held._locked().message == "the database is locked by another process"


def test_locks_on_other_files_are_not_mistaken_for_this_one(start, tmp_path, path, make):
    other = start(HOLDER, tmp_path / "other.lock")
    other.stdout.readline()
    holder = start(HOLDER, path)
    holder.stdout.readline()

    with pytest.raises(Locked, match=f"process {holder.pid} "):
        acquire(make(), -1)


def test_a_holder_that_ended_meanwhile_is_called_gone(make, monkeypatch):
    held = make()
    acquire(held)
    monkeypatch.setattr(procfs, "lock_holder", lambda _inode: 0)  # no process has that number

    assert held._locked().message == "the database is locked by process 0 (gone)"
