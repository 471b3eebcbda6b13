"""`icctl metrics`: text that a real parser of OpenMetrics accepts."""

import json

import pytest
from msgspec import structs
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parsed

from icd.errors import NoDaemon
from icd.features.daemon.report import BUCKETS_MS, OpenDatabase
from tests.support.reports import REPORT


@pytest.fixture
def families(shown):
    def found(report=REPORT):
        text = shown("metrics", result=report).stdout.decode()
        assert text.endswith("\n# EOF\n")
        return {family.name: family for family in parsed(text)}

    return found


def values(family, label):
    return {sample.labels[label]: sample.value for sample in family.samples}


def test_the_daemon_is_described(families):
    found = families()

    (build,) = found["intercore_build"].samples
    assert build.labels == {"version": "0.4.0", "protocol": "1", "sqlite_version": "3.40.1"}
    assert found["intercore_uptime_seconds"].unit == "seconds"
    single = {name: one.samples[0].value for name, one in found.items() if len(one.samples) == 1}
    assert single["intercore_uptime_seconds"] == 7265
    assert single["intercore_sessions"] == 2
    assert single["intercore_subscribers"] == 1
    assert single["intercore_start_up_errors"] == 1
    assert single["intercore_slow_calls"] == 6


def test_calls_and_failures_are_counters_by_method(families):
    found = families()

    assert found["intercore_calls"].type == "counter"
    assert values(found["intercore_calls"], "method") == {"state.get": 3, "state.set": 4}
    assert values(found["intercore_failures"], "method") == {"state.get": 0, "state.set": 3}
    assert values(found["intercore_missed"], "command") == {"state.set": 3}


def test_times_are_a_histogram_by_method(families):
    family = families()["intercore_call_duration_seconds"]
    mine = [s for s in family.samples if s.labels["method"] == "state.get"]

    buckets = {float(s.labels["le"]): s.value for s in mine if s.name.endswith("_bucket")}
    others = {s.name.rpartition("_")[2]: s.value for s in mine if not s.name.endswith("_bucket")}
    assert family.type == "histogram"
    assert sorted(buckets) == [*(ms / 1000 for ms in BUCKETS_MS), float("inf")]
    assert buckets[0.000256] == 0
    assert buckets[0.001024] == 2
    assert buckets[float("inf")] == others["count"] == 3
    assert others["sum"] == 0.0045


def test_a_database_that_was_measured_has_its_size_and_its_rows(families):
    database = OpenDatabase(
        path="/p/x.db", calls=7, batches=5, own_batches=2, mean_batch=1.4, waiting=1, reopened=2, largest_batch=3,
        size_bytes=4096, wal_bytes=0, rows={"state": 12, "sentinels": 0}, hung_seconds=1.5,
    )  # fmt: skip
    found = families(structs.replace(REPORT, databases=[database]))

    for name, value in {
        "calls": 7, "batches": 5, "reopened": 2, "waiting": 1, "largest_batch": 3,
        "size_bytes": 4096, "wal_bytes": 0, "hung_seconds": 1.5,
    }.items():  # fmt: skip
        assert values(found[f"intercore_database_{name}"], "database") == {"/p/x.db": value}
    assert found["intercore_database_size_bytes"].unit == "bytes"
    assert values(found["intercore_database_rows"], "table") == {"state": 12, "sentinels": 0}


def test_what_was_not_measured_is_left_out(families):
    assert "intercore_database_size_bytes" not in families()
    assert "intercore_database_calls" not in families(structs.replace(REPORT, databases=[]))


@pytest.mark.parametrize("path", ['/p/"x"\\n\n.db', "/p/ü {a=b},#.db", "/p/\\"])
def test_any_path_comes_back_as_it_was(families, path):
    database = structs.replace(REPORT.databases[0], path=path)

    found = families(structs.replace(REPORT, databases=[database]))

    assert values(found["intercore_database_calls"], "database") == {path: 7}


def test_a_path_that_is_not_text_is_written_with_escapes(families):
    database = structs.replace(REPORT.databases[0], path="/p/\udcff.db")

    found = families(structs.replace(REPORT, databases=[database]))

    assert values(found["intercore_database_calls"], "database") == {"/p/\\udcff.db": 7}


def test_a_daemon_without_any_call_has_metrics_too(families):
    empty = structs.replace(REPORT, methods={}, missed={}, databases=[])

    assert "intercore_build" in families(empty)


def test_as_json_it_is_the_report(shown):
    assert json.loads(shown("metrics", "--json", result=REPORT).stdout)["pid"] == 7


def test_without_a_daemon_the_answer_is_an_expected_no(shown):
    assert shown("metrics", error=NoDaemon("no daemon is running")).exit == 1
