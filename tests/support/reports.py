"""What a daemon may report of itself, with something in each place."""

from icd.features.daemon.report import (
    FailuresByCaller,
    HooksReport,
    LastError,
    MethodReport,
    MirrorReport,
    OpenDatabase,
    Rates,
    Report,
    StartUpError,
)

NOW = 1_800_000_000
AGO = {"last_at": NOW - 60, "last_at_iso": "2027-01-15T07:59:00Z"}
NOTE = "harmless here"
REPORT = Report(
    version="0.4.0",
    protocol=1,
    pid=7,
    started_at=NOW - 7265,
    started_at_iso="2027-01-15T05:58:55Z",
    uptime=7265,
    socket="/run/x.sock",
    sqlite_version="3.40.1",
    sqlite_note=NOTE,
    sessions=2,
    subscribers=1,
    calls={"state.get": 3, "state.set": 4},
    failures={"state.set": 3},
    missed={"state.set": 3},
    missed_at=NOW - 60,
    missed_at_iso="2027-01-15T07:59:00Z",
    slow_calls=6,
    rates=Rates(last_minute=1.5, last_15_minutes=0.254),
    methods={
        "state.set": MethodReport(
            calls=4, failures=3, p50_ms=0.4, p99_ms=12.345, total_ms=40.0, buckets=[0] * 8 + [4] * 8
        ),
        "state.get": MethodReport(
            calls=3, failures=0, p50_ms=0.4, p99_ms=3.0, total_ms=4.5, buckets=[0, 1, 2] + [3] * 13
        ),
    },
    failures_by_caller=[
        FailuresByCaller(
            method="state.set", caller="/p/hook.sh", count=3, error="locked", sentence="held", **AGO
        )
    ],
    last_error=LastError(
        at=NOW - 60, at_iso="2027-01-15T07:59:00Z", method="state.set", caller="/p/hook.sh",
        error="locked", sentence="held",
    ),
    start_up_errors=[StartUpError(at=NOW - 9, at_iso="2027-01-15T07:59:51Z", sentence="broken")],
    databases=[
        OpenDatabase(path="/p/x.db", calls=7, batches=5, own_batches=2, mean_batch=1.4, waiting=1, reopened=0)
    ],
    mirror=MirrorReport(written=9, removed=2, kept=1, waiting=3, failed=0, last_error=None),
    hooks=HooksReport(delivered=8, redelivered=1, failed=0, last_error=None),
)  # fmt: skip
