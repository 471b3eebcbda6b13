"""Screens of every command that has one, from fixed results at a fixed moment.

`python -m tests.support.screens` writes them to tests/data/screens; tests/app/test_screens.py
compares.  ESC is written as `␛`, so that a file can be read in any editor.
"""

import re
from pathlib import Path
from typing import Any

from msgspec import Raw, structs

from icd.admin.doctor.checks import Section
from icd.admin.doctor.context import Finding
from icd.admin.service import systemd
from icd.app import registry
from icd.app.human import screen
from icd.app.invocation import Terminal
from icd.features import config, trust
from icd.features.compat.verbs import Line
from icd.features.config import Kept
from icd.features.coordination.forms import Touched
from icd.features.coordination.records import Shown as Reservation
from icd.features.daemon import report
from icd.features.daemon.verbs import Pong
from icd.features.discoveries import rank, search
from icd.features.discoveries.store import View
from icd.features.discoveries.verbs import Retired, RetireForm
from icd.features.dispatches.store import Dispatch
from icd.features.events.cursors import Place
from icd.features.events.interspect import Evidence as Said
from icd.features.events.review import Review
from icd.features.events.store import Batch, Event
from icd.features.gates import verbs as gates
from icd.features.gates.signals import Signal, Signals
from icd.features.gates.store import DEFAULT, Condition, Evidence
from icd.features.lanes.store import Document as LaneShown
from icd.features.lanes.store import Happened, Lane, Velocity
from icd.features.leases.store import Lease
from icd.features.locks.owners import Owner
from icd.features.locks.store import Lock
from icd.features.runs import phases, timeline
from icd.features.runs.actions import Action
from icd.features.runs.budget import Budget, Tokens
from icd.features.runs.history import PhaseEvent
from icd.features.runs.store import Agent, Artifact, Document
from icd.features.runs.verbs.runs import Found
from icd.features.runs.verbs.snapshot import Gate, Snapshot
from icd.features.sentinels.store import Sentinel
from icd.features.sentinels.verbs import Checked
from icd.features.sessions.store import Attribution, Session
from icd.features.state.store import Document as Row
from icd.features.state.store import Name
from icd.features.state.verbs import GetForm
from icd.top import held, once, tabs, work
from icd.top import rows as top_rows
from icd.top.projects import Project

SCREENS = Path(__file__).parents[1] / "data" / "screens"
NOW = 1_800_000_000
WIDTHS = (80, 120)
STYLES = re.compile(r"\x1b\[[0-9]{1,2}m")

GOAL = "Parse the log in one pass, so that the hooks of nine engineers wait for nothing"
WIDE = "日本語のログを一度に読む 👩‍👩‍👧 e\u0301te\u0301"
EVIL = "\x1b[2J\x1b]0;owned\x07 a\u202eb\nc\td\x9b31m"


def ago(minutes: float) -> int:
    return NOW - int(minutes * 60)


def run(number: int, **changes: Any) -> Document:
    made = Document(
        id=f"run0000{number}", project_dir="/home/ada/parser", goal=GOAL, status="active",
        phase="executing", complexity=3, force_full=False, auto_advance=True,
        created_at=ago(300), updated_at=ago(3), session="s-1", owner_pid=4242,
        owner_liveness="alive", phases=list(phases.DEFAULT), skipped=["strategized"],
        token_budget=200_000, scope_id="bead-7",
    )  # fmt: skip
    return structs.replace(made, **changes)


LANES = [
    Lane(
        "lane0001",
        "kernel",
        "standing",
        "active",
        "The core",
        "Fewer locks",
        '{"paused":true}',
        ago(9000),
        ago(20),
        None,
    ),
    Lane("lane0002", "launch", "arc", "closed", "", "", "{}", ago(90_000), ago(4000), ago(4000)),
]
RUNS = [
    run(1),
    run(2, goal=WIDE, phase="planned", scope_id=None, updated_at=ago(70)),
    run(3, goal=EVIL, status="completed", phase="done", updated_at=ago(60 * 24 * 3)),
    run(4, goal="", status="cancelled", phase="brainstorm", updated_at=ago(60 * 24 * 400)),
    run(5, goal="Write it", status="failed", phase="review", updated_at=ago(0.2)),
]


def moved(number: int, from_phase: str, to_phase: str, minutes: float, **more: Any) -> PhaseEvent:
    return PhaseEvent(
        id=number, run_id="run00001", from_phase=from_phase, to_phase=to_phase,
        created_at=ago(minutes), created_at_iso="", **{"event_type": "advance", **more},
    )  # fmt: skip


FAILED = '{"conditions":[{"check":"artifact_exists","result":"fail","detail":"no artifacts yet"}]}'
HISTORY = [
    moved(1, "brainstorm", "brainstorm-reviewed", 240, gate_result="pass"),
    moved(2, "brainstorm-reviewed", "strategized", 200, event_type="skip", reason="small"),
    moved(3, "brainstorm-reviewed", "planned", 190, gate_result="pass"),
    moved(4, "planned", "planned", 150, event_type="block", gate_result="fail", reason=FAILED),
    moved(5, "planned", "executing", 90, event_type="override", reason="read by hand"),
]
AGENTS = [
    Agent("agent001", "run00001", "claude", "active", ago(80), ago(2), "reviewer", "disp0001"),
    Agent("agent002", "run00001", "codex", "completed", ago(80), ago(20), WIDE),
]
ARTIFACTS = [
    Artifact("arti0001", "run00001", "planned", "docs/plan.md", "file", "active", ago(150)),
    Artifact("arti0002", "run00001", "executing", f"/home/ada/{'x' * 70}/notes.md", "review",
             "rolled_back", ago(5)),
]  # fmt: skip


def dispatch(number: int, status: str, **changes: Any) -> Dispatch:
    return Dispatch(
        id=f"disp000{number}", status=status, agent_type="codex", project_dir="/home/ada/parser",
        created_at=ago(12), version=1, output_file="/tmp/ic-dispatch-1.md",
        **{"run_id": "run00001", "turns": 0, "commands": 0, "messages": 0, "input_tokens": 0, "output_tokens": 0}
        | changes,
    )  # fmt: skip


DISPATCHES = [
    dispatch(1, "running", name="fixer", started_at=ago(11), turns=4, commands=17, messages=9),
    dispatch(2, "completed", started_at=ago(11), completed_at=ago(2), verdict_status="pass",
             verdict_summary="all tests pass", input_tokens=12_000, output_tokens=800),
    dispatch(3, "failed", name="tests", started_at=ago(11), completed_at=ago(10.9), exit_code=3,
             error_message=f"exit status 3: {EVIL} / 4 failed, 120 passed in 31 s"),
    dispatch(4, "timeout", started_at=ago(120), completed_at=ago(60), run_id=None),
    dispatch(5, "spawned"),
]  # fmt: skip
VIEWS = [
    View(id="k3v9x0a1b2c4", source="arxiv", source_id="2401.1", title=WIDE, relevance_score=0.93,
         confidence_tier="high", status="new", discovered_at=ago(90), base_score=0.93, decay=1.0,
         summary="A log that is read once.", url="https://example.org/1"),
    View(id="p4d8s2mm0001", source="exa", source_id="x", title=EVIL, relevance_score=0.55,
         confidence_tier="medium", status="promoted", discovered_at=ago(9000), base_score=0.6,
         decay=0.9, promoted_at=ago(80), bead_id="b-1"),
    View(id="p4d8s2mm0002", source="hackernews", source_id="y", title="Old", relevance_score=0.04,
         confidence_tier="discard", status="dismissed", discovered_at=ago(90_000), base_score=0.5,
         decay=0.08),
]  # fmt: skip
GATE = gates.Checked(
    evidence=Evidence([
        Condition(check="artifact_exists", phase="executing", result="pass", count=2),
        Condition(check="agents_complete", result="fail", count=1, detail="1 agent is active"),
        Condition(check="budget_not_exceeded", result="pass", tier="hard"),
    ]),
    from_phase="executing", result="fail", run_id="run00001", tier="hard", to_phase="review",
)  # fmt: skip
RESERVATIONS = [
    Reservation("pqwe0n9j", "file_reservation", "s-1", ".", "src/**/*.py", True, True,
                "a larger change", 900, ago(60), "", NOW + 840, None, 60, "alive", "s-1", 4242),
    Reservation("zz9x8y7w", "file_reservation", "s-0", ".", "README.md", False, False,
                "", None, ago(4000), "", None, None, 4000, "unknown", "s-0"),
]  # fmt: skip
LOCKS = [
    Lock("deploy", "web", Owner(4242, "vm", "4242:vm", ago(2)), 120, "alive"),
    Lock("sprint", "B-12", Owner(17, "vm", "17:vm", ago(90)), 5400, "dead"),
    Lock("odd", EVIL, None, 7, "unknown"),
]


def event(seq: int, minutes: float, source: str, kind: str, **more: Any) -> Event:
    facts = {"run_id": "", "from_state": "", "to_state": "", "timestamp": "", **more}
    return Event(
        id=seq, seq=seq, source=source, type=kind, at_ms=ago(minutes) * 1000, pid=4242, **facts
    )


LOG = Batch(
    [
        event(1, 60 * 30, "phase", "advance", run_id="run00001", from_state="planned",
              to_state="executing", session="s-1"),
        event(2, 90, "dispatch", "status_change", run_id="run00001", subject_id="disp0001",
              from_state="running", to_state="failed", reason="exit status 3"),
        event(3, 60, "review", "finding", payload=Raw(b'{"severity": "P1", "file": "a.py"}')),
        event(4, 30, "ci", "built", reason=GOAL, session="4f9c2c1e-6a52-4d0a-a0a5-0c2b7f1d9e11"),
        event(5, 0, "a-source-with-a-long-name", WIDE, reason=EVIL, session=EVIL),
    ],
    5,
    more=False,
)  # fmt: skip
CURSORS = [
    Place(consumer="notifier", run_id="", phase=1, dispatch=2, interspect=0, discovery=0, seq=1234,
          lag=0, durable=True, updated_at=ago(1), expires_at=None),
    Place(consumer="index", run_id="run00001", phase=1, dispatch=2, interspect=0, discovery=0,
          seq=12, lag=1222, durable=False, updated_at=ago(1), expires_at=None, behind=True),
]  # fmt: skip
MATCHES = [
    search.Match(id=v.id, source=v.source, source_id=v.source_id, title=v.title, status=v.status,
                 relevance_score=v.relevance_score, confidence_tier=v.confidence_tier,
                 discovered_at=v.discovered_at, similarity=similarity)
    for v, similarity in zip(VIEWS, (0.98, 0.4, -0.2), strict=True)
]  # fmt: skip
RANKED = [
    rank.Ranked(v.id, v.source, v.source_id, v.title, v.status, v.discovered_at, score,
                v.relevance_score, words, 0.1, None)
    for v, score, words in zip(VIEWS, (1.43, 0.5, -0.1), ({"log": 0.3, "hook": 0.1}, {}, {}),
                               strict=True)
]  # fmt: skip
STATUS = report.Report(
    version="0.5.0", protocol=1, pid=4711, uptime=93_784, socket="/run/user/1000/intercore/icd.sock",
    sqlite_version="3.51.3", sessions=4, calls={"native keyhole": 123_456, "json rpc": 17},
    failures={"native keyhole": 12}, missed={"sentinel.check": 2}, missed_at=ago(30),
    databases=[
        report.OpenDatabase("/home/ada/parser/.clavain/intercore.db", 120_000, 90_000, 5, 1.33, 2,
                            0, 40, 4_200_000, 512_000, {"events": 12_345, "state": 40},
                            {"index": 1222}, ago(1)),
        report.OpenDatabase(f"/mnt/{'hung/' * 20}intercore.db", 3, 3, 0, 1.0, 1, 0,
                            hung_seconds=75.0),
    ],
    mirror=report.MirrorReport(120, 3, 1, 0, 1, "disk full", 12, ["/srv/x/.clavain/intercore.db"]),
    hooks=report.HooksReport(7, 0, 1, f"on-event: {EVIL}"),
    started_at=NOW - 93_784, subscribers=2, slow_calls=1, rates=report.Rates(12.34, 3.21),
    methods={
        "sentinel.check": report.MethodReport(100_000, 0, 0.21, 1.9, 1.0, []),
        "state.set": report.MethodReport(20_000, 12, 0.35, 210.0, 1.0, []),
    },
    failures_by_caller=[
        report.FailuresByCaller("state.set", "hooks/stop.sh", 12, ago(4), "invalid_payload", EVIL)
    ],
    start_up_errors=[report.StartUpError(ago(100), "/tmp/hs is open to other users")],
)  # fmt: skip
SECTIONS = {
    "project": Section([
        Finding("database", "ok", "/home/ada/parser/.clavain/intercore.db, in this directory"),
        Finding("permissions", "error", f"{EVIL} is open to other users (mode 0777)",
                "run 'icctl doctor --fix'"),
        Finding("lock", "ok", "free"),
    ]),
    "daemon": Section([
        Finding("daemon", "warning", "a daemon could not start within the last day: no space left",
                "correct the cause, and start it again"),
        Finding("sqlite", "ok", "3.51.3"),
    ]),
    "environment": Section([
        Finding("units", "note", "icd.socket and icd.service: not installed",
                "run 'icctl service install'"),
        Finding("limits", "ok", "high enough"),
    ]),
}  # fmt: skip
UNITS = systemd.Report(
    works=False, socket="/run/user/1000/intercore/icd.sock",
    units=[
        systemd.Row("icd.socket", "", "current", "enabled", "active", "listening", "success"),
        systemd.Row("icd.service", "", "changed", "disabled", "failed", "failed", "exit-code"),
    ],
    daemon=Pong(4711, "0.4.0"), problems=["icd.service is of another installation"],
)  # fmt: skip
EFFECTS = trust.Effects(
    "/home/ada/parser/.clavain/intercore.db", False, "another user may write to it",
    [trust.Script("/home/ada/hub/clavain/scripts/dispatch.sh", "untrusted", "ab" * 32)],
    [trust.Agent("run00001", EVIL, "/home/ada", "prompt.md", "")],
    [trust.Channel("dispatch", 3, "~/.interband/clavain/dispatch")],
    [trust.Hook("on-event", "changed")],
)  # fmt: skip
BUDGET = Budget("run00001", 200_000, 171_000, 80)

# What is shown, and what was typed where that matters; a list has an empty screen, too.
SAMPLES: dict[str, tuple[Any, Any]] = {
    "state get": (
        Row("plan", "s-1", Raw(b'{"step": 3, "of": [1, 2], "why": "\\u001b[31m"}'), 7, ago(4), "",
            NOW + 300, "", 4242, "s-1"),
        GetForm("plan", "s-1"),
    ),
    "state list": ([Name("dispatch", "s-1"), Name("plan", WIDE)], None),
    "sentinel list": (
        [Sentinel("stop", "s-1", ago(2), False, 300), Sentinel("once", EVIL, ago(2000), True, 0),
         Sentinel("drift", "s-2", ago(90), False, 3600)],
        None,
    ),
    "sentinel check-many": (
        [Checked("stop", "s-1", True, NOW, "", 300, NOW + 300, ""),
         Checked("drift", "s-1", False, ago(3), "", 120, NOW + 120, "")],
        None,
    ),
    "events tail": (LOG, None),
    "events cursor list": (CURSORS, None),
    "events cursor get": (CURSORS[1], None),
    "interspect query": (
        [Said(id=41, run_id="run00001", agent_name="reviewer", event_type="override",
              override_reason="noise", context_json='{"a": 1}', session_id="s-1",
              timestamp="2027-01-15T07:59:00Z")],
        None,
    ),
    "events list-review": (
        [Review(id=41, run_id="run00001", finding_id="F-7", agents_json='{"safety":"P1"}',
                resolution="accepted", chosen_severity="P1", impact="decision_changed",
                event_type="disagreement_resolved", session_id="s-1",
                timestamp="2027-01-15T07:59:00Z"),
         Review(id=42, finding_id=EVIL, agents_json="{}", resolution="discarded",
                dismissal_reason="agent_wrong", chosen_severity="P3", impact="none",
                event_type="execution_defect", timestamp="2027-01-15T07:00:00Z")],
        None,
    ),
    "config get": (Kept("max_spawn_depth", Raw(b"null")), None),
    "config list": (
        [Kept("global_max_dispatches", Raw(b"4")), Kept("note", Raw(b'{"a":[1]}'))], None,
    ),
    "run status": (
        structs.replace(RUNS[0], budget_enforce=True, max_agents=3, max_dispatches=2), None,
    ),
    "run list": (RUNS, None),
    "run current": (Found(found=True, id="run00001", goal=GOAL, phase="planned"), None),
    "run events": (HISTORY, None),
    "run tokens": (Tokens("run00001", 120_000, 51_000, 9000, 171_000, 7.5), None),
    "run budget": (BUDGET, None),
    "run snapshot": (
        Snapshot(RUNS[0], HISTORY, AGENTS, ARTIFACTS, DISPATCHES,
                 Tokens("run00001", 120_000, 51_000, 9000, 171_000, 7.5), BUDGET,
                 Gate("executing", "review", "fail", "hard",
                      Raw(b'{"conditions":[{"check":"agents_complete","result":"fail",'
                          b'"detail":"1 agent is active"}]}')), []),
        None,
    ),
    "run agent list": (AGENTS, None),
    "run artifact list": (ARTIFACTS, None),
    "gate check": (GATE, None),
    "gate rules": (list(DEFAULT), None),
    "gate signals": (
        Signals([
            Signal(7, "run00001", "artifact_exists", "planned", "executing", "tn", ago(90)),
            Signal(9, "run00001", "", "executing", "review", "fp", ago(4), "justified"),
        ], 9),
        None,
    ),
    "dispatch status": (DISPATCHES[2], None),
    "dispatch list": (DISPATCHES, None),
    "dispatch poll": (DISPATCHES[0], None),
    "dispatch wait": (DISPATCHES[1], None),
    "lock list": (LOCKS, None),
    "lock stale": (LOCKS[1:], None),
    "lease list": (
        [Lease("sprint", "B-12", "ada", 3, 1_800_000, ago(12), ago(2), NOW + 1080,
               (NOW + 1080) * 1000, "s-1", 4242)],
        None,
    ),
    "coordination list": (RESERVATIONS, None),
    "coordination check": (RESERVATIONS[:1], None),
    "coordination check-many": ([Touched("src/app.py", one) for one in RESERVATIONS], None),
    "session list": (
        [Session("s-1", "/home/ada/app", 2, "codex", "gpt-5", None, ago(600), None, 1200, 340, 0, 0),
         Session("s-0", "/home/ada/app", 1, "claude-code", None, None, ago(9000), ago(4000), 0, 0, 0, 0)],
        None,
    ),
    "session current": (
        Attribution("s-1", "/home/ada/app", "B-12", "r1", "executing", ago(60)), None,
    ),
    "lane list": (LANES, None),
    "lane status": (
        LaneShown(**structs.asdict(LANES[0]), member_count=3, members=["B-1", "B-12", EVIL],
                  event_count=7),
        None,
    ),
    "lane members": (["B-1", "B-12"], None),
    "lane events": (
        [Happened(3, "lane0001", "created", '{"name":"kernel"}', ago(900)),
         Happened(9, "lane0001", "snapshot", '{"count":2,"added":["B-1","B-12"]}', ago(20))],
        None,
    ),
    "lane velocity": (
        [Velocity("lane0002", "launch", 12, 0, 0.0, 360.0),
         Velocity("lane0001", "kernel", 3, 4, 4.0, 2.25)],
        None,
    ),
    "run action list": (
        [Action(1, "run00001", "executing", "command", "/work", "both", 0, ago(90), ago(90),
                Raw(b'["${artifact:plan}"]')),
         Action(2, "run00001", "review", "hook", EVIL, "interactive", -1, ago(90), ago(2))],
        None,
    ),
    "compat status": (
        [Line("dispatch", True, True, 3, 2, 0, ago(4000), ago(5)),
         Line("bead", False, False, 0, 0, 0, None, None),
         Line("stop", None, True, None, 0, 4, None, ago(90))],
        None,
    ),
    "discovery status": (VIEWS[0], None),
    "discovery list": (VIEWS, None),
    "discovery retire": (Retired(3, False, VIEWS), RetireForm("exa", 1)),
    "discovery search": (MATCHES, None),
    "discovery profile": (
        rank.Shown(1, 3, '{"sqlite": 0.5}', '{"arxiv": 0.2}', 768, ago(80), ""), rank.ProfileForm(),
    ),
    "discovery rank": (RANKED, None),
    "triggers list": (
        [{"name": "on-event", "state": "trusted", "problem": ""},
         {"name": "on-phase-advance", "state": "refused", "problem": "it is writable by others"}],
        None,
    ),
    "config show": (
        [config.Setting("durability", "normal", "default"),
         config.Setting("mirror.channels.dispatch.retention_seconds", 21_600, "/home/ada/x:3")],
        None,
    ),
    "service status": (UNITS, None),
    "status": (STATUS, None),
    "doctor": (SECTIONS, None),
    "trust": (EFFECTS, None),
}  # fmt: skip


def terminal(width: int, *, colour: bool = False, absolute: bool = False) -> Terminal:
    return Terminal(width, 3600, colour, absolute, float(NOW))


def shown(command: str, at: Terminal, result: Any = ...) -> str:
    row = registry.commands()[command].row
    sample, typed = SAMPLES[command]
    found = sample if result is ... else result
    return screen.output(at, row.human, found, typed).stdout.decode()


def golden(command: str) -> str:
    """All screens of a command, one below the other."""
    parts = []
    for width in WIDTHS:
        for colour in (False, True):
            title = f"{width} columns, {'coloured' if colour else 'plain'}"
            parts.append((title, shown(command, terminal(width, colour=colour))))
    parts.append(("80 columns, --absolute", shown(command, terminal(80, absolute=True))))
    if isinstance(SAMPLES[command][0], list):
        parts.append(("80 columns, nothing there", shown(command, terminal(80), [])))
    return "".join(
        f"=== icctl {command}: {title}\n{text}" for title, text in parts
    ).replace("\x1b", "␛")  # fmt: skip


def picture(found: Any = ...) -> str:
    """`run snapshot --svg`."""
    return timeline.svg(SAMPLES["run snapshot"][0] if found is ... else found, NOW)


PICTURE = SCREENS / "run-snapshot.svg"

# --- icctl top --once -----------------------------------------------------------------------------

TOP = SCREENS / "top.txt"
PROJECTS = [
    Project("/home/ada/parser/.clavain/intercore.db"),
    Project(f"/home/ada/{EVIL}/.clavain/intercore.db"),
]


def _asked(steps: Any) -> Any:
    """What a tab finds where every method answers with a sample."""
    answers = {
        "run.list": RUNS, "gate.check": GATE, "dispatch.list": DISPATCHES,
        "sentinel.list": SAMPLES["sentinel list"][0], "lease.list": SAMPLES["lease list"][0],
        "coordination.list": RESERVATIONS, "session.list": SAMPLES["session list"][0],
        "state.list": SAMPLES["state list"][0], "state.get": SAMPLES["state get"][0],
        "discovery.list": VIEWS,
    }  # fmt: skip
    asked = next(steps)
    while True:
        try:
            asked = steps.send([answers[method] for method, _ in asked])
        except StopIteration as done:
            return done.value


def seen(projects: list[Project]) -> once.Seen:
    rows: dict[str, list[top_rows.Row]] = {}
    for tab in tabs.TABS:
        found = [work.event(each, event) for each in projects for event in LOG.events]
        if tab.find is not None:
            found = [row for each in projects for row in _asked(tab.find(each))]
        elif tab.of_report is not None:
            found = tab.of_report(STATUS)
        rows[tab.name] = tabs.in_order(found, tab)
    rows["Held"] += map(held.lock, LOCKS)
    return once.Seen(STATUS, projects, rows, [f"parser: untrusted_database: {EVIL}"])


def top(at: Terminal, found: once.Seen, tab: str = "") -> str:
    only = next((each for each in tabs.TABS if each.name == tab), None)
    return "".join(f"{line.rstrip()}\n" for line in once.lines(screen.Screen(at), found, only))


def golden_top() -> str:
    parts = [
        (f"{width} columns, {'coloured' if colour else 'plain'}",
         top(terminal(width, colour=colour), seen(PROJECTS[:1])))
        for width in WIDTHS for colour in (False, True)
    ]  # fmt: skip
    parts.append(("80 columns, several projects", top(terminal(80), seen(PROJECTS))))
    parts.append(("80 columns, --tab=runs", top(terminal(80), seen(PROJECTS[:1]), "Runs")))
    nothing = once.Seen(None, PROJECTS[:1], {tab.name: [] for tab in tabs.TABS}, [])
    parts.append(("80 columns, nothing there, no daemon", top(terminal(80), nothing)))
    return "".join(f"=== icctl top --once: {title}\n{text}" for title, text in parts).replace(
        "\x1b", "␛"
    )


def path(command: str) -> Path:
    return SCREENS / f"{command.replace(' ', '-')}.txt"


def main() -> None:
    SCREENS.mkdir(exist_ok=True)
    for command in SAMPLES:
        path(command).write_text(golden(command), encoding="utf-8")
    PICTURE.write_text(picture(), encoding="utf-8")
    TOP.write_text(golden_top(), encoding="utf-8")


if __name__ == "__main__":
    main()
