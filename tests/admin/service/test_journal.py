"""Lines of the journal."""

import json

import pytest

from icd.admin.service import journal


@pytest.fixture(autouse=True)
def utc(monkeypatch):
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def entry(message, **more):
    return json.dumps({"MESSAGE": message, "__REALTIME_TIMESTAMP": "1769860800000000", **more})


def test_a_line_of_ours_shows_its_facts():
    line = entry('{"time":"t","level":"error","msg":"mirror failed","key":"bead","n":[1]}')

    assert journal.as_text(line) == "2026-01-31 12:00:00 error mirror failed key=bead n=[1]"


def test_a_traceback_stands_below_its_line():
    line = entry(json.dumps({"level": "error", "msg": "bug", "traceback": "Traceback\n  File x"}))

    assert journal.as_text(line).splitlines()[1:] == ["    Traceback", "      File x"]


@pytest.mark.parametrize(
    "message, text",
    [
        ("Stopped.", "Stopped."),
        ("[1]", "[1]"),
        ('{"level":"info"}', '{"level":"info"}'),
        (list(b"caf\xe9"), "caf\ufffd"),
        (None, ""),
        ("[" * 4000, "[" * 4000),
    ],
)
def test_a_line_of_others_is_shown_as_it_is(message, text):
    line = entry(message, PRIORITY="4", SYSLOG_IDENTIFIER="systemd")

    assert journal.as_text(line) == f"2026-01-31 12:00:00 warning {text} source=systemd"
    assert json.loads(journal.as_json(line)) == {
        "time": "2026-01-31T12:00:00Z", "level": "warning", "msg": text, "source": "systemd",
    }  # fmt: skip


def test_as_json_a_line_of_ours_is_what_the_daemon_wrote():
    ours = '{"time":"2026-01-31T12:00:00Z","level":"info","msg":"é","n":1.5}'

    assert journal.as_json(entry(ours)) == ours


def test_nothing_in_a_line_commands_the_terminal():
    line = entry('{"level":"info","msg":"a\\u001b[2Jb\\nc","path":"\\u009b0m"}')

    assert journal.as_text(line) == "2026-01-31 12:00:00 info a\\x1b[2Jb\\nc path=\\x9b0m"


@pytest.mark.parametrize("line", ["", "-- No entries --", "[]", '{"MESSAGE": 5}'])
def test_what_is_no_entry_is_passed_over(line):
    assert journal.as_text(line) is None
    assert journal.as_json(line) is None
