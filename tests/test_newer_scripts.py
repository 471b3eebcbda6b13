"""The calls of public scripts that were written for newer originals: each works, or is declined.

The same calls stand in docs/compatibility.md, below "What scripts of newer originals call".
"""

import json
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "compatibility.md"
RULES = json.dumps(
    {
        "brainstorm→brainstorm-reviewed": [
            {"check": "artifact_exists", "phase": "brainstorm", "tier": "hard"}
        ]
    }
)
REVIEW = json.dumps(
    {
        "finding_id": "f",
        "agents": {"a": "P1"},
        "resolution": "accepted",
        "chosen_severity": "P1",
        "impact": "decision_changed",
    }
)
FILES = {"g.json": RULES.encode(), "m.json": b'{"k":1}', "/tmp/m.json": b'{"k":1}', "c.json": b"{}"}

# In order; RUN and DISCOVERY are what was printed before.
WORK = [
    (
        "run create --goal=g --bead=B-1 --budget-enforce --max-agents=4 --max-dispatches=2 --gates",
        RULES,
    ),
    ("run create --goal=g --gates-file=g.json",),
    ("run create --project=. --bead=B-2 --session=S",),
    ("run list --project=. --bead=B-2 --status=active",),
    ("run list --bead=B-1",),
    ('run set RUN --metadata-merge={"paused":true}',),
    ("discovery submit --source=s --source-id=1 --title=t --metadata=/tmp/m.json",),
    ("discovery submit --source=s --source-id=2 --title=t --metadata=@m.json",),
    ("discovery submit --source=s --source-id=3 --title=t --metadata=m.json",),
    ('discovery submit --source=s --source-id=4 --title=t --metadata={"k":1}',),
    ("discovery feedback DISCOVERY --signal=boost --actor=a --idempotency-key=cycle-1",),
    ("discovery feedback DISCOVERY --signal=boost --actor=a --idempotency-key=cycle-1",),
    ("events emit --source=review --type=disagreement_resolved --run=RUN --context", REVIEW),
    (
        "events emit --source=review --type=execution_defect --session=S --project=/p --context",
        REVIEW,
    ),
    ("events list-review",),
    ("events list-review --since=1 --limit=1000",),
    ("run advance RUN --priority=4 --calibration-file=c.json --disable-gates",),
    ("gate override RUN --reason=r --justified",),
    ("gate signals --since-id=0 --json",),
    ("config set global_max_dispatches 5",),
    ("config get global_max_dispatches",),
    ("config list",),
    ("coordination reserve --owner=o --scope=/p --pattern=a.py --ttl=60",),
    ("coordination check --scope=/p --pattern=b.py",),
    ("coordination list --active",),
    ("coordination release --owner=o --scope=/p",),
    ("session start --session=S --project=/p",),
    ("session attribute --session=S --project=/p --run=RUN",),
    ("session current --session=S --project=/p",),
    ("session tokens --session=S --project=/p --input=1 --output=2",),
    ("session end --session=S",),
    ("session list",),
    ("lane create --name=kernel --type=arc --description=d --intent=i",),
    ("lane create --name=tools",),
    ("lane list --json",),
    ("lane list --active",),
    ("lane list --status=active --json",),
    ("lane sync kernel --bead-ids=B-1,B-2",),
    ("lane sync LANE --bead-ids=B-1",),
    ("lane status kernel --json",),
    ("lane status LANE",),
    ("lane members kernel",),
    ("lane events kernel",),
    ("lane velocity --days=7 --json",),
    ("lane update --name=kernel --intent=x",),
    ("lane close kernel",),
    (
        "run action add RUN --phase=planned --command=/plan --mode=both --priority=1 --args",
        "[]",
    ),
    ("run action add RUN --phase=planned --command=/next --type=command --json",),
    ("run action list RUN --phase=planned --json",),
    ("run action list RUN",),
    ("run action update RUN --phase=planned --command=/plan --mode=interactive",),
    ("run advance RUN --disable-gates --json",),
    ("run action delete RUN --phase=planned --command=/plan",),
]
# What scripts read of these, beside the exit status.
READ = {
    "lane status kernel --json": {"name": "kernel", "members": ["B-1"], "metadata": "{}"},
    "run advance RUN --disable-gates --json": {"to_phase": "planned", "advanced": True},
}
DECLINED = [
    "publish plugin",
    "goal create --title=x",
    "receipt add --run=r",
    "agency load x",
    "route decide --task=x",
    "situation show",
    "scheduler submit",
    "portfolio list",
    "autonomy status",
    "cost reconcile r",
    "run replay r",
    "run replay record r --kind=k",
    "run replay inputs r",
    "events list-agency --agency=a",
    "dispatch retry d --escalate --chain-key=k",
    "dispatch spawn --prompt-file=p --scheduled",
    "dispatch spawn --prompt-file=p --sandbox-spec={}",
    "run create --goal=g --projects=a,b",
    "run create --goal=g --goal-id=7",
]


def test_what_newer_scripts_call_works(ic):
    known: dict[str, str] = {}
    for words, *last in WORK:
        argv = [known.get(word, word) for word in words.split()]
        argv = [word.replace("RUN", known["RUN"]) if "=RUN" in word else word for word in argv]

        output = ic(*argv, *last, files=FILES)

        assert output.exit == 0, (words, output.stderr)
        said = output.stdout.decode().strip()
        if words in READ:
            told = json.loads(said)
            assert {name: told[name] for name in READ[words]} == READ[words]
            commands = [action["command"] for action in told.get("actions", [])]
            assert commands == (["/next", "/plan"] if words.startswith("run advance") else [])
        if words.startswith("lane create"):
            known.setdefault("LANE", said)
        if words.startswith("run create"):
            known.setdefault("RUN", said)
        if words.startswith("discovery submit"):
            known.setdefault("DISCOVERY", said)
            metadata = json.loads(ic("discovery", "status", said, "--json").stdout)["raw_metadata"]
            assert json.loads(metadata) == {"k": 1}, words


def test_feedback_with_a_known_key_is_given_once(ic, conn):
    found = ic("discovery", "submit", "--source=s", "--source-id=1", "--title=t")
    given = ["discovery", "feedback", found.stdout.decode().strip(), "--signal=boost"]

    for key in ("k1", "k1", "k2"):
        assert ic(*given, f"--idempotency-key={key}").exit == 0
    for _ in range(2):
        assert ic(*given).exit == 0

    rows = conn.execute("SELECT count(*) FROM feedback_signals").fetchone()
    told = conn.execute("SELECT count(*) FROM events WHERE type = 'feedback.recorded'").fetchone()
    assert (rows, told) == ((4,), (4,))


@pytest.mark.parametrize("path", ["/nowhere/m.json", "./m.json", "@m.json"])
def test_metadata_in_a_file_that_is_not_there_is_named(ic, path):
    missing = {path.removeprefix("@"): "No such file or directory"}
    output = ic("discovery", "submit", "--source=s", "--source-id=1", "--title=t",
                f"--metadata={path}", files=missing)  # fmt: skip

    assert output.exit == 2
    assert f"cannot read {path.removeprefix('@')}" in output.stderr.decode()


def test_metadata_that_is_neither_json_nor_a_file_is_told_as_such(ic):
    output = ic("discovery", "submit", "--source=s", "--source-id=1", "--title=t",
                "--metadata=words", files={"words": "No such file or directory"})  # fmt: skip

    assert output.exit == 2
    assert b"invalid JSON payload" in output.stderr


def test_what_is_declined_says_so_in_one_line_and_is_documented(ic):
    page = PAGE.read_text("utf-8")
    for line in DECLINED:
        output = ic(*line.split())

        assert (output.exit, output.stdout) == (3, b""), line
        told = output.stderr.decode()
        assert told.count("\n") == 1, line
        assert "is no part of intercore; " in told, line
        assert output.refused.kind.name == "declined", line
        option = next(
            (w.partition("=")[0] for w in line.split() if f"{w.partition('=')[0]} is no" in told),
            None,
        )
        named = option or output.refused.command
        assert f"`{named}`" in page, line


def test_an_option_that_is_declined_may_be_said_behind_two_dashes(ic):
    output = ic("dispatch", "retry", "--", "--escalate")

    assert b"no part of intercore" not in output.stderr


def test_an_unknown_command_says_nothing_on_stdout(ic):
    output = ic("bogus")

    assert (output.exit, output.stdout, output.stderr.count(b"\n")) == (3, b"", 1)
