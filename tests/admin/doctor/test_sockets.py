"""What lies where a daemon listens, and what it means."""

import fcntl
import os
import socket
import tempfile
from pathlib import Path

import pytest

from icd.admin.doctor import processes
from icd.admin.doctor.context import Seen
from icd.admin.doctor.findings import Repair
from icd.admin.doctor.sockets import sockets


@pytest.fixture
def place():
    """A private directory with a name that is short enough."""
    with tempfile.TemporaryDirectory(prefix="icd-", dir="/tmp") as made:
        yield Path(made)


@pytest.fixture
def judged(scene, place, told):
    def findings(outcome, **facts):
        seen = [Seen(str(place / "icd.sock"), outcome, **facts)]
        return told(sockets(scene(uid=os.geteuid()), seen))

    return findings


@pytest.fixture
def stale(place):
    """A socket that nobody listens at any more."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(place / "icd.sock"))
    return str(place / "icd.sock")


@pytest.mark.parametrize("outcome", ["answers", "absent"])
def test_a_daemon_or_none_is_fine(judged, outcome):
    assert judged(outcome) == []


@pytest.mark.parametrize(
    ("outcome", "part"),
    [
        ("too long", "is too long for a socket"),
        ("stranger", "belongs to a daemon of another user"),
        ("nonsense", "is no icd"),
        ("failed", "cannot connect to"),
        ("silent", "does not answer"),
    ],
)
def test_what_keeps_calls_away_is_an_error(judged, outcome, part):
    ((check, severity, message),) = judged(outcome)

    assert (check, severity) == ("socket", "error")
    assert part in message


def test_a_sandbox_is_worth_a_note(judged):
    ((_, severity, message),) = judged("forbidden", error="Operation not permitted")

    assert severity == "note"
    assert message.startswith("Unix sockets may not be used here (Operation not permitted)")


def test_a_stale_socket_can_be_removed(scene, stale):
    (finding,) = sockets(scene(uid=os.geteuid()), [Seen(stale, "refused")])

    assert (finding.severity, finding.repair) == ("warning", Repair("remove socket", stale))


def test_a_socket_whose_owner_lives_is_not_stale(judged, stale):
    with open(stale.removesuffix(".sock") + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        ((_, severity, message),) = judged("refused")

    assert severity == "warning"
    assert (
        message == f"{processes.find(os.getpid())} is about to listen at {stale}, or about to end"
    )


def test_a_file_in_its_place_is_an_error(judged, place):
    (place / "icd.sock").touch()

    ((_, severity, message),) = judged("refused")

    assert severity == "error"
    assert message == f"{place / 'icd.sock'} is not a socket: no daemon starts there"


def test_a_listener_whose_socket_was_removed_is_told(judged, place):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(place / "icd.sock"))
        sock.listen()
        assert judged("answers") == []
        (place / "icd.sock").unlink()

        ((_, severity, message),) = judged("absent")

    assert severity == "error"
    assert message.startswith(f"a daemon listens at {place / 'icd.sock'}, but its socket was")


def test_a_directory_that_others_can_enter_is_an_error(judged, place):
    place.chmod(0o755)

    ((_, severity, message),) = judged("absent")

    assert severity == "error"
    assert message == f"{place} is open to other users (mode 0755): no daemon starts there"


def test_two_daemons_are_an_error(scene, told):
    seen = [Seen("/nonexistent/a.sock", "answers"), Seen("/nonexistent/b.sock", "answers")]

    ((_, severity, message),) = told(sockets(scene(), seen))

    assert severity == "error"
    assert message.startswith("two daemons answer, at /nonexistent/a.sock and at /nonexistent/b.s")
