"""Whether a holder is dead: only where that is certain."""

import os
import subprocess
import sys

import msgspec
import pytest

from icd import procfs
from icd.features.locks import owners
from icd.features.locks.owners import Owner
from tests.support.processes import until

NOW = 1_800_000_000
HERE = owners.here()
OURS = owners.of_process(os.getpid(), HERE, NOW)


def ended() -> int:
    """The number of a process that has ended, and was waited for."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_a_process_that_runs_is_alive() -> None:
    assert owners.liveness(OURS, HERE) == "alive"


@pytest.mark.parametrize(
    "changes, expected",
    [
        ({"start": OURS.start - 1}, "dead"),  # the number was given away again
        ({"boot": "another"}, "dead"),
        ({"pidns": "pid:[1]"}, "unknown"),
        ({"host": "elsewhere"}, "alive"),  # the host was renamed: same boot, same process ids
        ({"host": "elsewhere", "boot": ""}, "unknown"),
        ({"host": "elsewhere", "pidns": ""}, "unknown"),
        ({"host": "elsewhere", "pidns": "pid:[1]"}, "unknown"),
        ({"host": "elsewhere", "start": OURS.start - 1}, "dead"),
        ({"host": "elsewhere", "boot": "another"}, "unknown"),
        ({"host": f"{OURS.host.partition('.')[0]}"}, "alive"),
        ({"start": 0, "boot": "", "pidns": ""}, "alive"),  # as the original writes it
        ({"pid": 0}, "dead"),
        ({"pid": 2**40}, "dead"),
    ],
)
def test_a_record_is_judged_by_all_that_it_tells(changes: dict, expected: str) -> None:
    record = msgspec.structs.replace(OURS, **changes)

    assert owners.liveness(record, HERE) == expected


def test_a_process_that_has_ended_is_dead_with_and_without_its_start() -> None:
    pid = ended()

    assert owners.liveness(owners.of_process(pid, HERE, NOW), HERE) == "dead"
    assert owners.liveness(Owner(pid, HERE.host, "x", NOW), HERE) == "dead"


def test_a_zombie_is_dead() -> None:
    process = subprocess.Popen(["sleep", "60"])
    owner = owners.of_process(process.pid, HERE, NOW)
    before = owners.liveness(owner, HERE)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

    after = owners.liveness(owner, HERE)

    process.wait()
    assert (before, after) == ("alive", "dead")


def test_a_process_whose_first_thread_alone_has_ended_is_alive() -> None:
    """It looks like a zombie; a lock of it must not be broken."""
    script = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(60,)).start()
print("ready", flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        owner = owners.of_process(process.pid, HERE, NOW)
        until(lambda: procfs.stat(process.pid).state == "Z")

        while_threads_run = owners.liveness(owner, HERE)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

        assert (while_threads_run, owners.liveness(owner, HERE)) == ("alive", "dead")


@pytest.mark.parametrize(
    "text, pid, host",
    [
        ("12:far", 12, "far"),
        ("word", 77, HERE.host),
        ("word:far", 77, "far"),
        ("12", 77, HERE.host),
        ("12:", 12, HERE.host),
        ("-1:far", 77, "far"),
        ("99999999999:far", 77, "far"),
    ],
)
def test_an_owner_is_a_process_or_a_word_for_the_caller(text: str, pid: int, host: str) -> None:
    found = owners.named(text, 77, HERE, NOW)

    assert (found.pid, found.host, found.owner) == (pid, host, text)


def test_the_same_number_at_another_time_is_another_owner() -> None:
    later = msgspec.structs.replace(OURS, start=OURS.start + 1)

    assert owners.is_same(OURS, OURS)
    assert not owners.is_same(OURS, later)


def test_a_word_is_the_same_owner_whoever_says_it() -> None:
    elsewhere = msgspec.structs.replace(OURS, pid=1, start=1)
    one, other = (msgspec.structs.replace(each, owner="sprint") for each in (OURS, elsewhere))

    assert owners.is_same(one, other)
    assert not owners.is_same(one, OURS)


def test_short_and_long_names_of_a_host_are_the_same_and_two_long_ones_are_not() -> None:
    assert owners.same_host("a", "a.example.org")
    assert not owners.same_host("a.example.com", "a.example.org")
    assert owners.is_same(Owner(1, "a", "1:a", 0), Owner(1, "a.b", "1:a.b", 0))


DEEP = b'{"x":' + b"[" * 4000


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"pid":"x"}', b"\xff", DEEP])
def test_what_is_no_owner_is_nobody(data: bytes) -> None:
    assert owners.decode(data) is None


def test_what_the_original_writes_is_read() -> None:
    data = b'{"pid":12,"host":"h","owner":"12:h","created":1800000000}'

    assert owners.decode(data) == Owner(12, "h", "12:h", NOW)
