"""`icctl ping`, `icctl status`."""

import json

import pytest
from msgspec import structs

from icd.app.invocation import Output
from icd.errors import NoDaemon
from icd.features.daemon import report as reports
from icd.features.daemon.report import (
    OpenDatabase,
)
from icd.features.daemon.verbs import Pong
from tests.support.reports import NOW, REPORT

WELL = structs.replace(
    REPORT, failures_by_caller=[], failures={}, missed={}, start_up_errors=[], last_error=None
)


def status(shown, report):
    return shown("status", result=report).stdout.decode().splitlines()


def test_ping_prints_pong(shown):
    assert shown("ping", result=Pong(pid=1, version="0.4.0")) == Output(0, b"pong\n")


def test_ping_as_json(shown):
    found = json.loads(shown("ping", "--json", result=Pong(pid=1, version="0.4.0")).stdout)

    assert found == {"pid": 1, "version": "0.4.0"}


def test_ping_tells_both_versions_if_it_is_verbose(shown):
    pong, world = Pong(pid=1, version="0.4.0"), {"client_version": "0.5.0"}

    text = shown("ping", "--verbose", result=pong, **world)
    found = json.loads(shown("ping", "--verbose", "--json", result=pong, **world).stdout)

    assert text.stdout == b"pong\nicctl 0.5.0\nicd 0.4.0, pid 1\n"
    assert found == {"pid": 1, "version": "0.4.0", "client": "0.5.0"}


@pytest.mark.parametrize("command", ["ping", "status"])
def test_without_a_daemon_the_answer_is_an_expected_no(shown, command):
    output = shown(command, error=NoDaemon("no daemon is running"))

    assert (output.exit, output.stdout) == (1, b"")
    assert output.stderr == (
        f"icctl: {command}: no daemon is running; start it with: icctl service start\n".encode()
    )


@pytest.mark.parametrize("command", ["ping", "status"])
def test_the_daemon_answers_these_without_a_database(invoke, command):
    assert invoke(command).call.method.run is None


def test_status_sums_up_what_the_daemon_does(shown):
    assert status(shown, REPORT) == [
        "icd 0.4.0, pid 7, up 2h1m, 3 warnings",
        "  since     2027-01-15T05:58:55Z",
        "  socket    /run/x.sock",
        "  protocol  1",
        "  sqlite    3.40.1",
        "            harmless here",
        "  sessions  2, subscribers 1",
        "  calls     7, failed 3, slow 6",
        "  rate      1.50/s in the last minute, 0.25/s in the last 15",
        "! failed to start 2027-01-15T07:59:51Z: broken",
        "! failed without the daemon: state.set 3",
        "! failed: state.set 3, by /p/hook.sh",
        "    last 2027-01-15T07:59:00Z: locked: held",
        "method         calls   failed     p50 ms     p99 ms",
        "state.get          3        0       0.40       3.00",
        "state.set          4        3       0.40      12.35",
        "database /p/x.db",
        "  7 calls in 5 batches (mean 1.40), 1 waiting",
        "mirror: 9 written, 2 removed, 1 kept, 3 waiting, 0 failed",
        "hooks: 8 delivered (1 retried), 0 failed",
    ]


def test_where_all_is_well_nothing_is_marked(shown):
    lines = status(shown, WELL)

    assert lines[0] == "icd 0.4.0, pid 7, up 2h1m, all is well"
    assert not [line for line in lines if "!" in line]


def test_what_failed_days_ago_is_told_without_a_mark(shown):
    (row,) = REPORT.failures_by_caller
    old = [structs.replace(row, last_at=NOW - 90_000)]
    report = structs.replace(
        WELL, missed={"state.set": 3}, missed_at=NOW - 90_000, failures_by_caller=old
    )

    lines = status(shown, report)

    assert lines[0].endswith(", all is well")
    assert "  failed without the daemon: state.set 3" in lines
    assert "  failed: state.set 3, by /p/hook.sh" in lines


def test_of_many_callers_that_fail_the_latest_are_shown(shown):
    (row,) = REPORT.failures_by_caller
    many = [structs.replace(row, caller=f"/p/{n}.sh") for n in range(13)]

    lines = status(shown, structs.replace(REPORT, failures_by_caller=many))

    assert sum(line.startswith("! failed: ") for line in lines) == 10
    assert "  and 3 more, see --json" in lines


def test_a_measured_database_shows_its_size_and_one_that_hangs_is_marked(shown):
    database = OpenDatabase(
        path="/p/x.db", calls=7, batches=5, own_batches=2, mean_batch=1.4, waiting=1, reopened=2, largest_batch=3,
        size_bytes=2_097_152, wal_bytes=17, rows={"state": 12, "sentinels": 1}, hung_seconds=61.5,
    )  # fmt: skip

    lines = status(shown, structs.replace(WELL, databases=[database]))

    assert lines[0].endswith(", 1 warning")
    assert lines[-7:-2] == [
        "database /p/x.db",
        "  7 calls in 5 batches (mean 1.40, largest 3), 1 waiting",
        "  2 048 KiB, log 17 bytes, 13 rows",
        "  replaced and reopened 2 times",
        "! hangs for 1m1s; check its disk and the process that holds it",
    ]


@pytest.mark.parametrize(
    "seconds, text",
    [(0, "0s"), (59.9, "59s"), (60, "1m"), (3605, "1h5s"), (90_061, "1d1h")],
)
def test_a_span_is_told_in_its_two_largest_units(seconds, text):
    assert reports.span(seconds) == text


def test_status_says_why_a_mirror_failed(shown):
    broken = structs.replace(REPORT.mirror, failed=4, last_error="bead s1: No space left")

    lines = status(shown, structs.replace(REPORT, mirror=broken))

    assert lines[-3:-1] == [
        "! mirror: 9 written, 2 removed, 1 kept, 3 waiting, 4 failed",
        "    last error: bead s1: No space left",
    ]


def test_status_says_why_a_hook_failed(shown):
    broken = structs.replace(REPORT.hooks, failed=2, last_error="/p/x.db: on-event exited with 1")

    lines = status(shown, structs.replace(REPORT, hooks=broken))

    assert lines[-2:] == [
        "! hooks: 8 delivered (1 retried), 2 failed",
        "    last error: /p/x.db: on-event exited with 1",
    ]


def test_status_as_json_holds_everything(shown):
    found = json.loads(shown("status", "--json", result=REPORT).stdout)

    assert list(found) == sorted(found)
    assert found["databases"][0]["path"] == "/p/x.db"
    assert found["failures"] == {"state.set": 3}
    assert found["methods"]["state.get"]["p99_ms"] == 3.0
    assert found["last_error"]["caller"] == "/p/hook.sh"
    assert "size_bytes" not in found["databases"][0]
