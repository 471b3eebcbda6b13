"""What a daemon's report means; fields of other versions may be there or not."""

import os

import pytest

from icd import __version__
from icd.admin.doctor.context import Seen
from icd.admin.doctor.daemons import daemon, judge, missed
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
        ({"databases": [{"path": "/p", "hung_seconds": 9}]}, "hung", "error", "stuck in /p"),
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
