"""`icctl ping`, `icctl status`."""

import json

import pytest
from msgspec import structs

from icd.cli.invocation import Output
from icd.errors import NoDaemon
from icd.rpc.methods.daemon import MirrorReport, OpenDatabase, Pong, Report

REPORT = Report(
    version="0.4.0",
    protocol=1,
    pid=7,
    uptime=60,
    socket="/run/x.sock",
    sqlite_version="3.40.1",
    sessions=2,
    calls={"state.get": 3, "state.set": 4},
    failures={"locked": 1, "corrupt": 2},
    missed={"state.set": 3},
    databases=[OpenDatabase(path="/p/x.db", calls=7, batches=5, waiting=1, reopened=0)],
    mirror=MirrorReport(written=9, removed=2, kept=1, waiting=3, failed=0, last_error=None),
)


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
        f"icctl: {command}: no daemon is running; start it with: icd serve\n".encode()
    )


@pytest.mark.parametrize("command", ["ping", "status"])
def test_the_daemon_answers_these_without_a_database(invoke, command):
    assert invoke(command).call.method.run is None


def test_status_sums_up_what_the_daemon_does(shown):
    assert shown("status", result=REPORT).stdout.decode().splitlines() == [
        "icd 0.4.0, pid 7, up 60 s",
        "socket: /run/x.sock",
        "sqlite: 3.40.1",
        "sessions: 2",
        "calls: 7, failed: 3",
        "  failed: corrupt 2",
        "  failed: locked 1",
        "  failed without the daemon: state.set 3",
        "databases: 1",
        "  /p/x.db: 7 calls in 5 batches, 1 waiting",
        "mirror: 9 written, 2 removed, 1 kept, 3 waiting, 0 failed",
    ]


def test_status_says_why_a_mirror_failed(shown):
    broken = structs.replace(REPORT.mirror, failed=4, last_error="bead s1: No space left")
    lines = shown("status", result=structs.replace(REPORT, mirror=broken)).stdout.splitlines()

    assert lines[-2:] == [
        b"mirror: 9 written, 2 removed, 1 kept, 3 waiting, 4 failed",
        b"  last error: bead s1: No space left",
    ]


def test_status_as_json_holds_everything(shown):
    found = json.loads(shown("status", "--json", result=REPORT).stdout)

    assert list(found) == sorted(found)
    assert found["databases"][0]["path"] == "/p/x.db"
    assert found["failures"] == {"corrupt": 2, "locked": 1}
