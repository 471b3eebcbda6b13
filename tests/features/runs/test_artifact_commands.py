"""`icctl run artifact`, and `run rollback --layer=code`."""

import hashlib
import json

import pytest

from icd.app.dispatch import run_batch
from icd.app.invocation import INPUT_BYTES, Errand, Need
from icd.app.planner import run_errand
from icd.features.runs.store import Origin
from icd.features.runs.verbs.artifacts import ask_origins
from tests.support import rows

ADD = ("run", "artifact", "add", "run00001", "--phase=planned")


@pytest.fixture(autouse=True)
def run(conn):
    return rows.run(conn)


@pytest.fixture
def stored(conn):
    def columns():
        return conn.execute("SELECT path, content_hash FROM run_artifacts").fetchone()

    return columns


def digest(content):
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def test_an_added_artifact_is_answered_by_its_id(stdout, conn):
    text = stdout(*ADD, "--path=plan.md", files={"plan.md": b"x"})
    found = json.loads(stdout(*ADD, "--path=plan.md", "--json", files={"plan.md": b"x"}))

    ids = [row[0] for row in conn.execute("SELECT id FROM run_artifacts ORDER BY rowid")]
    assert [text, found] == [f"{ids[0]}\n", {"id": ids[1]}]


def test_the_file_is_asked_for_as_the_caller_names_it(invoke):
    asked = invoke(*ADD, "--path=docs/plan.md")

    assert asked == Need("file", "docs/plan.md")


@pytest.mark.parametrize("content", [b"", b"plan\n", b"\xff\0" * 5, b"x" * INPUT_BYTES])
def test_the_digest_is_that_of_what_the_caller_can_read(stdout, stored, content):
    stdout(*ADD, "--path=docs/plan.md", files={"docs/plan.md": content})

    assert stored() == ("docs/plan.md", digest(content))


@pytest.mark.parametrize(
    "why", ["No such file or directory", "Permission denied", "Is a directory"]
)
def test_what_the_caller_cannot_read_has_no_digest(stdout, stored, why):
    assert stdout(*ADD, "--path=docs/plan.md", files={"docs/plan.md": why})

    assert stored() == ("docs/plan.md", None)


@pytest.fixture
def large(invoke, database, clock):
    """Add what is too large to be sent, which only the caller's own process can."""

    def added(path):
        errand = invoke(*ADD, f"--path={path}", files={path: b"x" * (INPUT_BYTES + 1)})
        assert isinstance(errand, Errand)

        def answered(call):
            (answer,) = run_batch(database, [call], clock=clock)
            return answer

        return run_errand(errand, answered)

    return added


def test_a_large_file_is_read_where_the_caller_is(project, large, stored):
    (project / "large").write_bytes(b"y" * (INPUT_BYTES + 5))

    output = large("large")

    assert (output.exit, output.stderr, len(output.stdout)) == (0, b"", 9)
    assert stored() == ("large", digest(b"y" * (INPUT_BYTES + 5)))


@pytest.mark.parametrize("path", ["/dev/zero", "gone"])
def test_what_never_ends_or_vanished_meanwhile_has_no_digest(large, stored, path):
    assert large(path).exit == 0

    assert stored() == (path, None)


def test_artifacts_are_listed_in_columns_all_or_of_one_phase(stdout):
    one = stdout(*ADD, "--path=plan.md", files={"plan.md": b""}).strip()
    two = stdout(
        *ADD[:4], "--phase=x", "--path=/r.md", "--type", "review", files={"/r.md": "gone"}
    ).strip()

    assert stdout("run", "artifact", "list", "run00001") == (
        f"{one}\tplanned\tfile\tplan.md\n{two}\tx\treview\t/r.md\n"
    )
    assert stdout("run", "artifact", "list", "run00001", "--phase=x").startswith(two)
    assert stdout("run", "artifact", "list", "run00001", "--phase=y") == ""
    assert stdout("run", "artifact", "list", "nobody", "--json") == "[]\n"


def test_an_artifact_as_json_has_the_originals_fields_and_a_readable_time(stdout):
    one = stdout(*ADD, "--path=f", "--dispatch=d1", files={"f": b""}).strip()

    (found,) = json.loads(stdout("run", "artifact", "list", "run00001", "--json"))

    assert found == {
        "content_hash": digest(b""),
        "created_at": 1_800_000_000,
        "created_at_iso": "2027-01-15T08:00:00Z",
        "dispatch_id": "d1",
        "id": one,
        "path": "f",
        "phase": "planned",
        "run_id": "run00001",
        "status": "active",
        "type": "file",
    }


@pytest.mark.parametrize(
    ("argv", "exit_code", "told"),
    [
        (("add", "nobody", "--phase=p", "--path=f"), 1, b"not found: nobody; "),
        (("add", "run00001", "--phase=p"), 3, b"--path"),
        (("add", "run00001", "--path=f"), 3, b"--phase"),
        (("add", "run00001", "--phase=", "--path=f"), 3, b"must not be empty"),
        (("add", "run00001", "--phase=p", "--path="), 3, b"must not be empty"),
        (("add", "run00001", "--phase=a\tb", "--path=f"), 2, b"control characters"),
        (("list",), 3, b"RUN"),
        (("bogus",), 3, b"unknown subcommand 'bogus'"),
    ],
)
def test_what_is_refused_is_refused_with_a_reason(ic, argv, exit_code, told):
    output = ic("run", "artifact", *argv, files={"f": b""})

    assert (output.exit, output.stdout) == (exit_code, b"")
    assert told in output.stderr


ORIGINS = [
    Origin("d1", "writer", "planned", "docs/<plan>.md", "sha256:" + "ab" * 32, "file", "active"),
    Origin(None, None, "review", "notes.md", None, "file", "rolled_back"),
]


@pytest.fixture
def rollback():
    """What `run rollback --layer=code` would call, and how it would show the answer."""

    def asked(phase=None, form="json", *, result=ORIGINS):
        ask = ask_origins("run00001", phase, form)
        assert (ask.method, ask.params.run_id, ask.params.phase) == (
            "artifact.origins",
            "run00001",
            phase,
        )
        return ask.render(result).stdout.decode()

    return asked


def test_code_to_roll_back_is_indented_json_in_the_originals_order(rollback):
    text = rollback("planned")

    assert text.startswith('[\n  {\n    "dispatch_id": "d1",\n    "dispatch_name": "writer",\n')
    assert '"path": "docs/\\u003cplan\\u003e.md"' in text
    assert text.endswith('    "status": "rolled_back"\n  }\n]\n')
    assert json.loads(text)[1]["dispatch_id"] is None
    assert list(json.loads(text)[0]) == [
        "dispatch_id", "dispatch_name", "phase", "path", "content_hash", "type", "status",
    ]  # fmt: skip
    assert rollback(result=[]) == "[]\n"


def test_code_to_roll_back_is_in_columns_for_people(rollback):
    assert rollback(form="text").splitlines() == [
        f"{'planned':<20} {'active':<12} {'writer':<20} {'docs/<plan>.md':<40} sha256:ababa...",
        f"{'review':<20} {'rolled_back':<12} {'<unknown>':<20} {'notes.md':<40} <none>",
    ]
    assert rollback(form="text", result=[]) == ""
