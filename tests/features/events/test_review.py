"""`icctl events emit`, `icctl events list-review`: what came of the findings of reviews."""

import json

import pytest

from icd.features.events import store
from icd.features.events.store import Fact
from icd.values.processes import Writer
from tests.conftest import NOW_MS

CONTEXT = {
    "finding_id": "f1",
    "agents": {"fd-safety": "P1", "fd-style": "P3"},
    "resolution": "accepted",
    "chosen_severity": "P1",
    "impact": "decision_changed",
}


def emit(ic, context, *more):
    return ic(
        "events", "emit", "--source=review", "--type=disagreement_resolved",
        f"--context={json.dumps(context)}", *more,
    )  # fmt: skip


def test_an_event_of_a_review_is_listed_in_the_fields_of_the_original(ic, stdout):
    first = emit(
        ic, CONTEXT | {"dismissal_reason": "agent_wrong"}, "--run=r1", "--session=s", "--project=/p"
    )
    second = stdout("events", "emit", "--type=execution_defect", "--context=@c", "--project=/p",
                    files={"c": json.dumps(CONTEXT).encode()})  # fmt: skip

    lines = stdout("events", "list-review").splitlines()

    assert (first.exit, first.stdout, second) == (0, b"1\n", "2\n")
    assert lines[0] == (
        '{"id":1,"run_id":"r1","finding_id":"f1",'
        '"agents_json":"{\\"fd-safety\\":\\"P1\\",\\"fd-style\\":\\"P3\\"}",'
        '"resolution":"accepted","dismissal_reason":"agent_wrong","chosen_severity":"P1",'
        '"impact":"decision_changed","event_type":"disagreement_resolved","session_id":"s",'
        '"project_dir":"/p","timestamp":"2027-01-15T08:00:00Z"}'
    )
    assert json.loads(lines[1]).keys() == {
        "id", "finding_id", "agents_json", "resolution", "chosen_severity", "impact", "event_type",
        "project_dir", "timestamp",
    }  # fmt: skip
    assert stdout("events", "list-review", "--json").splitlines() == lines


def test_the_last_id_is_where_the_next_call_goes_on(ic, stdout):
    for _ in range(3):
        emit(ic, CONTEXT)
    stdout("events", "record", "--source=ci", "--type=done")

    def ids(*options):
        lines = stdout("events", "list-review", *options).splitlines()
        return [json.loads(line)["id"] for line in lines]

    assert ids("--limit=2") == [1, 2]
    assert ids("--since=2") == [3]
    assert ids("--since=3") == ids("--since=99") == []
    assert ids("--limit=0") == ids("--limit=-5") == [1, 2, 3]


@pytest.mark.parametrize(
    "context, told",
    [
        (CONTEXT | {"agents": {}}, "agents in the context is empty"),
        (CONTEXT | {"agents": ["a"]}, "agents in the payload is not an object"),
        ({"agents": {"a": "P1"}}, "lacks finding_id, resolution, chosen_severity, impact"),
        (CONTEXT | {"finding_id": ""}, "lacks finding_id"),
        ([1], "needs an object"),
        (CONTEXT | {"impact": "ghp_" + "a1" * 18}, "secret"),
    ],
)
def test_a_context_that_says_too_little_is_refused_with_the_reason(ic, stdout, context, told):
    output = emit(ic, context)

    assert (output.exit, output.stdout) == (2, b"")
    assert told in output.stderr.decode()
    assert stdout("events", "list-review") == ""


def test_emit_asks_for_a_context_and_a_type_that_it_knows(ic):
    context = f"--context={json.dumps(CONTEXT)}"

    assert ic("events", "emit", "--type=execution_defect").exit == 2
    assert ic("events", "emit", context).exit == 3
    assert ic("events", "emit", "--source=ci", "--type=execution_defect", context).exit == 3
    assert ic("events", "emit", "--type=other", context).exit == 2
    assert ic("events", "emit", "--type=execution_defect", "--context={").exit == 2


@pytest.mark.parametrize(
    "payload",
    [None, "[1]", "7", '{"agents":7,"finding_id":["x"],"impact":"\\ud800"}', '{"agents":1e999}'],
)
def test_events_that_were_imported_may_lack_anything(conn, stdout, payload):
    fact = Fact("review", "odd", payload=payload)
    store.append(conn, fact, actor=Writer(), now_ms=NOW_MS)

    (line,) = stdout("events", "list-review").splitlines()

    found = json.loads(line)
    assert (found["event_type"], found["agents_json"], found["finding_id"]) == ("odd", "{}", "")
