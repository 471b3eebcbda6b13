"""Many hooks at once, as agents start them: all run in turn, or exactly one does."""

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from icd.errors import PermissionRefused
from icd.features.hook.tickets import Tickets
from tests.support.processes import CLEAN, PATIENCE, until
from tests.support.sizes import size

MANY = size(50, 20)
# Fails if another one is within, and leaves a line.
ALONE = 'mkdir busy || echo two >>wrong; echo "$1" >>ran; sleep 0.002; rmdir busy'


def start(door: Path, project: Path, world: dict[str, str], sent: bytes, *words: str):
    started = subprocess.Popen(
        [door / "icctl", "hook", *words],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        cwd=project, env={**CLEAN, **world},
    )  # fmt: skip
    assert started.stdin is not None
    started.stdin.write(sent)
    started.stdin.close()
    started.stdin = None
    return started


def ends(started) -> list[tuple[int, bytes, bytes]]:
    found = []
    for one in started:
        out, err = one.communicate(timeout=4 * PATIENCE)
        found.append((one.returncode, out, err))
    return found


@pytest.fixture
def sent(event) -> bytes:
    return json.dumps(event).encode()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_of_many_in_turn_all_run_and_never_two(door, initialized, world, sent):
    words = ["--serial=fmt", "--timeout=4m", "--", "sh", "-c", ALONE, "sh"]

    found = ends([start(door, initialized, world, sent, *words, str(n)) for n in range(MANY)])

    assert found == [(0, b"", b"")] * MANY
    assert not (initialized / "wrong").exists()
    ran = (initialized / "ran").read_text().split()
    assert sorted(map(int, ran)) == [*range(MANY)]


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "option", [["--once"], ["--every=300"], ["--every=1h", "--scope=user", "--name=n"]], ids="".join
)
def test_of_many_who_claim_one_runs(option, door, initialized, world, sent):
    words = [*option, "--", "echo", "ran"]

    found = ends([start(door, initialized, world, sent, *words) for _ in range(MANY)])

    assert sorted(found) == [(0, b"", b"")] * (MANY - 1) + [(0, b"ran\n", b"")]


def test_some_in_turn_all_run_and_never_two(door, initialized, world, sent):
    words = ["--serial=fmt", "--timeout=1m", "--", "sh", "-c", ALONE, "sh"]

    found = ends([start(door, initialized, world, sent, *words, str(n)) for n in range(6)])

    assert found == [(0, b"", b"")] * 6
    assert not (initialized / "wrong").exists()
    assert len((initialized / "ran").read_text().split()) == 6


# --- debounce -------------------------------------------------------------------------------------


def tickets_of(home: Path) -> list[str]:
    """The tickets that wait."""
    place = home / ".local" / "state" / "intercore" / "hook"
    return [file.read_text() for file in place.glob("debounce-*")]


@pytest.mark.long
def test_of_a_burst_the_last_runs(door, initialized, world, sent):
    started: list[subprocess.Popen[bytes]] = []
    for number in range(5):
        words = ["--debounce=12s", "--name=n", "--", "echo", str(number)]
        started.append(start(door, initialized, world, sent, *words))
        time.sleep(0.03)  # the kernel counts starts in hundredths of a second

    found = ends(started)

    assert found == [(0, b"", b"")] * 4 + [(0, b"4\n", b"")]
    assert len(tickets_of(initialized)) == 1


def test_one_that_started_before_the_last_leaves_however_late_it_comes(tmp_path):
    tickets = Tickets({"HOME": str(tmp_path)})
    assert tickets.is_last("n", "s", 0)
    (own,) = (tmp_path / ".local/state/intercore/hook").glob("debounce-*")
    boot, started, pid = own.read_text().split()

    own.write_text(f"{boot} {int(started) + 1:020} {pid}")
    assert not tickets.is_last("n", "s", 0)
    own.write_text(f"{'f' * len(boot)} {int(started) + 1:020} {pid}")  # before a restart
    assert tickets.is_last("n", "s", 0)


def test_one_who_is_killed_stops_no_later_one(door, initialized, world, sent):
    words = ["--debounce=60s", "--name=n", "--", "echo", "killed"]
    first = start(door, initialized, world, sent, *words)
    until(lambda: tickets_of(initialized))
    first.send_signal(signal.SIGKILL)
    ends([first])

    words = ["--debounce=10ms", "--name=n", "--", "echo", "ran"]
    found = ends([start(door, initialized, world, sent, *words)])

    assert found == [(0, b"ran\n", b"")]


def test_one_who_is_not_the_last_leaves_before_its_time(door, initialized, world, sent):
    words = ["--debounce=1h", "--name=n", "--", "echo", "never"]
    first = start(door, initialized, world, sent, *words)
    until(lambda: tickets_of(initialized))

    words = ["--debounce=1ms", "--name=n", "--", "echo", "ran"]
    found = ends([first, start(door, initialized, world, sent, *words)])

    assert found == [(0, b"", b""), (0, b"ran\n", b"")]


# --- the user's own claims ------------------------------------------------------------------------


def test_the_claim_of_a_user_keeps_the_rules_of_a_sentinel(tmp_path):
    tickets = Tickets({"XDG_STATE_HOME": str(tmp_path)})
    minute = 60_000

    said = [
        tickets.claim("n", 60, now_ms=10 * minute),
        tickets.claim("n", 60, now_ms=11 * minute - 1),
        tickets.claim("n", 60, now_ms=11 * minute),
        tickets.claim("n", 60, now_ms=5 * minute),  # the clock stepped back
        tickets.claim("n", 60, now_ms=6 * minute),
        tickets.claim("n", 0, now_ms=99 * minute),
        tickets.claim("once", 0, now_ms=0),
        tickets.claim("once", 0, now_ms=99 * minute),
        tickets.claim("once", 1, now_ms=99 * minute),
    ]

    assert said == [True, False, True, False, True, False, True, False, False]


def test_a_directory_that_others_can_write_to_is_refused(tmp_path):
    place = tmp_path / "intercore" / "hook"
    place.mkdir(parents=True)
    place.chmod(0o777)

    with pytest.raises(PermissionRefused, match="not a directory of yours alone"):
        Tickets({"XDG_STATE_HOME": str(tmp_path)}).claim("n", 0, now_ms=0)
