"""The daemon: what lies where it listens, and what its report means.

Fields of other versions may be there or not.
"""

import fcntl
import os
import socket
import tempfile
from pathlib import Path

import pytest

from icd import __version__
from icd.admin.doctor import context
from icd.admin.doctor.context import Repair, Seen
from icd.admin.doctor.daemon import daemon, judge, missed, sockets
from icd.features.daemon.verbs import PROTOCOL
from tests.conftest import NOW_MS

NOW = NOW_MS // 1000
HEALTHY = {"version": __version__, "protocol": PROTOCOL, "pid": 7, "sqlite_version": "3.40.1"}


@pytest.fixture
def judged(told):
    return lambda **facts: told(judge("/run/icd.sock", HEALTHY | facts, NOW))


def test_a_daemon_of_the_same_version_is_fine(judged):
    assert judged() == []


def test_an_old_sqlite_is_fine_and_the_reason_is_told():
    (about,) = [f for f in judge("/run/icd.sock", HEALTHY, NOW) if f.check == "sqlite"]

    assert about.severity == "ok"
    assert "intercore's lock lets only one" in about.message


@pytest.mark.parametrize(
    ("facts", "check", "severity", "part"),
    [
        ({"version": "0.0.1"}, "daemon", "warning", "icd 0.0.1, process 7, answers at"),
        ({"protocol": 99}, "daemon", "error", "speaks protocol 99"),
        ({"start_up_errors": ["no room"]}, "daemon", "warning", "last day: no room"),
        (
            {"start_up_errors": [{"sentence": "no room", "at": 1_800_000_000}]},
            "daemon",
            "warning",
            "last day: no room (2027-01-15T08:00:00Z)",
        ),
        ({"failures": {"a": 1, "b": 3}}, "failures", "note", "started: b 3, a 1"),
        (
            {"failures": {"a": 1}, "last_error": {"message": "disk full"}},
            "failures",
            "note",
            "a 1; the last one: disk full",
        ),
        ({"mirror": {"failed": 2, "last_error": "no room"}}, "mirror", "note", "no room"),
        ({"hooks": {"failed": 2, "last_error": "exited with 3"}}, "hooks", "note", "exited with 3"),
        ({"databases": [{"path": "/p", "reopened": 1}]}, "replaced", "note", "/p was replaced"),
        ({"databases": [{"path": "/p", "hung_seconds": 9}]}, "hung", "error", "hangs in /p"),
    ],
)
def test_what_a_report_complains_about_is_told(judged, facts, check, severity, part):
    ((found, how, message),) = judged(**facts)

    assert (found, how) == (check, severity)
    assert part in message


def test_callers_that_failed_in_the_last_day_are_named(judged):
    callers = [
        {"method": "state.set", "caller": "/hooks/stop.sh", "count": 2, "last_at": NOW - 3600},
        {"method": "state.get", "caller": "bash", "count": 9, "last_at": NOW - 2 * 86_400},
    ]

    ((check, severity, message),) = judged(failures={"a": 11}, failures_by_caller=callers)

    assert (check, severity) == ("failures", "note")
    assert message.endswith("in the last day: state.set by /hooks/stop.sh 2")
    assert judged(failures={"a": 9}, failures_by_caller=callers[1:]) == []


def test_no_daemon_is_worth_a_note_and_no_more(scene, told):
    found = told(daemon(scene(), [Seen("/a", "absent"), Seen("/b", "refused")]))

    assert [(check, severity) for check, severity, _ in found] == [("daemon", "note")]


def test_of_a_daemon_that_is_silent_it_is_not_said_that_there_is_none(scene, told):
    assert told(daemon(scene(), [Seen("/a", "silent"), Seen("/b", "absent")])) == []


@pytest.mark.parametrize(("age", "count"), [(3600, 1), (2 * 86_400, 0)])
def test_failures_of_the_last_day_are_counted(scene, told, tmp_path, age, count):
    file = tmp_path / "failures"
    file.write_text("state.set\nsentinel.check\nstate.set\n")
    os.utime(file, (NOW_MS // 1000 - age,) * 2)

    found = told(missed(scene(), [Seen(str(tmp_path / "icd.sock"), "absent")]))

    assert len(found) == count
    assert all(message.endswith(": state.set 2, sentinel.check 1") for _, _, message in found)


def test_a_pipe_in_place_of_the_failures_is_not_waited_for(told, scene, tmp_path):
    os.mkfifo(tmp_path / "failures")

    assert told(missed(scene(), [Seen(str(tmp_path / "icd.sock"), "absent")])) == []


# --- where it listens -----------------------------------------------------------------------------


@pytest.fixture
def place():
    """A private directory with a name that is short enough."""
    with tempfile.TemporaryDirectory(prefix="icd-", dir="/tmp") as made:
        yield Path(made)


@pytest.fixture
def asked(scene, place, told):
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
def test_a_daemon_or_none_is_fine(asked, outcome):
    assert asked(outcome) == []


@pytest.mark.parametrize(
    ("outcome", "part"),
    [
        ("too long", "is too long for a socket"),
        ("stranger", "belongs to a daemon of another user"),
        ("nonsense", "is not icd"),
        ("failed", "cannot connect to"),
        ("silent", "does not answer"),
    ],
)
def test_what_keeps_calls_away_is_an_error(asked, outcome, part):
    ((check, severity, message),) = asked(outcome)

    assert (check, severity) == ("socket", "error")
    assert part in message


def test_a_sandbox_is_worth_a_note(asked):
    ((_, severity, message),) = asked("forbidden", error="Operation not permitted")

    assert severity == "note"
    assert message.startswith("Unix sockets may not be used here (Operation not permitted)")


def test_a_stale_socket_can_be_removed(scene, stale):
    (finding,) = sockets(scene(uid=os.geteuid()), [Seen(stale, "refused")])

    assert (finding.severity, finding.repair) == ("warning", Repair("remove socket", stale))


def test_a_socket_whose_owner_lives_is_not_stale(asked, stale):
    with open(stale.removesuffix(".sock") + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        ((_, severity, message),) = asked("refused")

    assert severity == "warning"
    assert (
        message == f"{context.find_process(os.getpid())} is about to listen at {stale}, or to exit"
    )


def test_a_file_in_its_place_is_an_error(asked, place):
    (place / "icd.sock").touch()

    ((_, severity, message),) = asked("refused")

    assert severity == "error"
    assert message == f"{place / 'icd.sock'} is not a socket: no daemon starts there"


def test_a_listener_whose_socket_was_removed_is_told(asked, place):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(place / "icd.sock"))
        sock.listen()
        assert asked("answers") == []
        (place / "icd.sock").unlink()

        ((_, severity, message),) = asked("absent")

    assert severity == "error"
    assert message.startswith(f"a daemon listens at {place / 'icd.sock'}, but its socket was")


def test_a_directory_that_others_can_enter_is_an_error(asked, place):
    place.chmod(0o755)

    ((_, severity, message),) = asked("absent")

    assert severity == "error"
    assert message == f"{place} is open to other users (mode 0755): no daemon starts there"


def test_two_daemons_are_an_error(scene, told):
    seen = [Seen("/nonexistent/a.sock", "answers"), Seen("/nonexistent/b.sock", "answers")]

    ((_, severity, message),) = told(sockets(scene(), seen))

    assert severity == "error"
    assert message.startswith("two daemons answer, at /nonexistent/a.sock and at /nonexistent/b.s")
