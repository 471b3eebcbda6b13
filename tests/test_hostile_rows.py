"""A stranger's rows under our schema: every command ends with an answer, or names the row."""

import json
import shutil
import sqlite3
import time
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from icd import config
from icd.app.dispatch import Clock, run_batch
from icd.app.invocation import Errand, Output, World
from icd.app.planner import advance, plan, run_errand
from icd.db.database import Database
from icd.errors import DamagedRow, Internal
from icd.printable import printable
from tests.support import hostile_rows
from tests.support.hostile_rows import BREAKS, COMMANDS, NOT_UTF8, NOW_MS, columns, make, plant
from tests.support.processes import icctl, read_line

# Commands by the tables that they read; the last ones read every table.
RUNS = """
run list --all-projects; run list --all-projects --json; run status run00001; run status run00001 --json; run events run00001; run list
run tokens run00001; run budget run00001; run agent list run00001; run artifact list run00001
run artifact list run00001 --json; run phase run00001; run current; run snapshot run00001
run action list run00001; run action list run00001 --json
run action update run00001 --phase=plan --command=/work --mode=both
run action add run00001 --phase=plan --command=/more; run advance run00001 --json
run snapshot run00001 --json; gate check run00001; gate check run00001 --json
gate rules --run=run00001; run set run00001 --metadata-merge={}; run set run00001 --max-agents=8
events tail run00001; dispatch list; dispatch list --json; dispatch status disp0001
dispatch status disp0001 --json; dispatch tokens disp0001 --in=5; run set run00001 --complexity=4
run agent add run00001 --type=codex; run skip run00001 plan --reason=x; run advance run00001
run rollback run00001 --to-phase=brainstorm --reason=x; run create --goal=x --project=.
run cancel run00001
"""
STATE = """
state get dispatch s1; state get dispatch s1 --meta; state get dispatch s1 --json
state list dispatch; config list; config get x; state list --prefix=; state list dispatch --json; state watch dispatch s1
compat status; state incr dispatch s1; state set dispatch s1 --value 1
state set dispatch s1 --value 2 --if-version=2; state set other s1 --value 1; state prune
state delete dispatch s1
"""
SENTINELS = """
sentinel list; sentinel list --json; compat status; sentinel check guard s1 --interval=5
sentinel check fresh s1 --interval=5; sentinel prune --older-than=1s; sentinel reset guard s1
"""
EVENTS = """
events tail --all; events tail --all --json; events tail run00001; events cursor list
events cursor get reader; interspect query; run events run00001; run snapshot run00001
interspect record --agent=a --type=x; events list-review; gate signals; events prune --keep=1
"""
LEASES = """
lease list; lease list --json; lease acquire lease s1 --owner=you --ttl=5s
lease acquire other s1 --owner=you --ttl=5s; lease renew lease s1 --owner=me --token=1
"""
RESERVATIONS = """
coordination list; coordination list --json; coordination check --path=src/a
coordination check --pattern=** --json; coordination check-many src/a src/b
coordination reserve --owner=you --path=src/a; coordination renew --owner=me --ttl=5s
coordination reserve --owner=me --pattern=src/*; coordination sweep --dry-run
coordination transfer --from=me --to=you; coordination release --owner=you
"""
SESSIONS = """
session list; session list --json; session list --active-only --session=s1; session current --session=s1
session current --session=s1 --json; session attribute --session=s1 --phase=plan
session tokens --session=s1 --input=5; session start --session=s1; session start --session=s9
session end --session=s1
"""
LANES = """
lane list; lane list --json; lane status kernel; lane status lane0001 --json; lane members kernel
lane members kernel --json; lane velocity; lane velocity --json; lane events kernel
lane sync kernel --bead-ids=B-2; lane update --name=kernel --metadata-merge={}
lane update --name=kernel --intent=x; lane create --name=other; lane close kernel
"""
DISCOVERIES = """
discovery list; discovery list --json; discovery status disc0001; discovery profile
discovery profile --json; discovery search --like=disc0001; discovery rank
discovery rank --json; discovery score disc0001 --score=0.5; discovery promote disc0001 --bead-id=b
discovery feedback disc0001 --signal=promote; discovery decay --rate=0.1
discovery submit --source=scan --source-id=2 --title=t --score=0.5
"""
EVERYTHING = """
statusline --session s1; statusline --session s1 --format=sh; statusline --session s1 --format=tsv
statusline --session s1 --format=json; health; health --check; db check; hooks list; export OUT
"""
READERS = {
    "migrations": "version", "counters": STATE + LEASES + SESSIONS + EVENTS + DISCOVERIES, "state": STATE,
    "sentinels": SENTINELS, "requests": STATE, "events": EVENTS, "cursors": EVENTS,
    "hook_positions": EVENTS, "runs": RUNS, "run_skips": RUNS, "run_agents": RUNS,
    "run_artifacts": RUNS, "dispatches": RUNS, "leases": LEASES, "reservations": RESERVATIONS,
    "sessions": SESSIONS, "attributions": SESSIONS, "lanes": LANES, "lane_members": LANES,
    "run_actions": RUNS,
    "discoveries": DISCOVERIES,
    "embeddings": DISCOVERIES, "embedding_sources": DISCOVERIES,
    "feedback_signals": DISCOVERIES, "interest_profile": DISCOVERIES,
}  # fmt: skip
# One of each kind for each column; the suite `intruders` tries all of `CASES`.
TRIED: dict[str, list[object]] = {
    "TEXT": [7, NOT_UTF8, COMMANDS, "{"],
    "INTEGER": ["word", None, 2**63 - 1],
    "BLOB": ["word", None, b"\x00"],
}
SECONDS = 20


class StillClock(Clock):
    def now_ms(self):
        return NOW_MS + 1000


def lines(text):
    return [line.split() for line in text.replace("\n", ";").split(";") if line.strip()]


def run(path, *argv):
    """One command in this process; the errors of its calls, and what it prints."""
    with opened(path) as database:
        return run_on(database, *argv)


@contextmanager
def opened(path):
    database = Database(str(path), config.DEFAULTS)
    try:
        yield database
    finally:
        with database.hold(time.monotonic() + SECONDS):
            database.close()
        database.lock.close()


def run_on(database, *argv):
    errors = []

    def answer(call):
        (found,) = run_batch(database, [call], clock=StillClock())
        errors.extend([found.error] if found.error is not None else [])
        return found

    project = Path(database.path).parent.parent
    invocation = World(
        argv=[str(project / "dump") if word == "OUT" else word for word in argv],
        cwd=str(project), deadline=time.monotonic() + SECONDS, pid=41, host="direct",
        env={"HOME": str(project)},
    )  # fmt: skip
    planned = plan(invocation)
    if isinstance(planned, Output):
        output = planned
    elif isinstance(planned, Errand):
        output = run_errand(planned, answer)
    else:
        output, _ = advance(planned, answer(planned.call))
    return output, errors


@pytest.fixture
def template(tmp_path):
    project = tmp_path / "template"
    (project / ".git").mkdir(parents=True)
    make(project / ".clavain" / "intercore.db")
    return project


@pytest.fixture
def planted(template, tmp_path):
    """A fresh project with a value in a place where it does not belong."""
    made = []

    def path(table, column, value):
        project = tmp_path / f"project{len(made)}"
        made.append(shutil.copytree(template, project))
        found = project / ".clavain" / "intercore.db"
        plant(found, table, column, value)
        return found

    return path


def is_wrong(output, errors):
    """A bug of ours, a character that commands a terminal, or a mistake in this test."""
    said = output.stdout + output.stderr
    is_bug = output.bug is not None or any(isinstance(each, Internal) for each in errors)
    return is_bug or printable(said) != said or output.exit == 3


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("table", columns())
def test_no_row_is_a_bug_of_ours_or_commands_a_terminal(table, planted):
    wrong = []
    for column, kind in columns()[table].items():
        for value in TRIED[kind]:
            try:
                path = planted(table, column, value)
            except sqlite3.IntegrityError:
                continue  # no file can hold that
            with opened(path) as database:
                for argv in lines(READERS[table] + ";" + EVERYTHING):
                    found = run_on(database, *argv)
                    if is_wrong(*found):
                        wrong.append((argv, column, value, found))
            shutil.rmtree(path.parent.parent)

    assert wrong == []


def test_the_schema_of_a_planted_database_is_ours(planted, template):
    def schema(path):
        with closing(sqlite3.connect(path)) as conn:
            return conn.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema").fetchall()

    path = planted("runs", "status", b"\x00")

    assert schema(path) == schema(template / ".clavain" / "intercore.db")


@pytest.mark.parametrize(
    ("place", "argv", "problem"),
    [
        (("state", "payload", 7), "state get dispatch s1", "state is damaged: payload is INTEGER"),
        (("sentinels", "name", NOT_UTF8), "sentinel list", "damaged: name is not UTF-8"),
        (("leases", "owner", None), "lease list", "leases is damaged: owner is NULL"),
        (
            ("runs", "updated_at", 2**63 - 1),
            "run list --all-projects",
            "updated_at is 922337203685",
        ),
        (("counters", "value", 2**63 - 1), "state set a b --value 1", "value is 92233720368547"),
    ],
)
def test_a_damaged_row_is_named(planted, place, argv, problem):
    output, (error,) = run(planted(*place), *argv.split())

    assert (type(error), output.exit, output.stdout) == (DamagedRow, 2, b"")
    assert problem in output.stderr.decode()
    assert "icctl db check" in output.stderr.decode()


@pytest.mark.parametrize(
    ("statement", "argv", "problem"),
    [
        ("DELETE FROM counters", "state set a b --value 1", "row discoveries of table counters is"),
        ("DELETE FROM counters WHERE name = 'leases'", "lease acquire a b --owner=me --ttl=5s",
         "row leases of table counters is missing"),
        ("UPDATE sqlite_sequence SET seq = 'x'", "events cursor list", "seq is TEXT, not INTEGER"),
        (f"UPDATE sqlite_sequence SET seq = {2**63 - 1}", "db check", "seq is 9223372036854775807"),
    ],
)  # fmt: skip
def test_what_only_one_row_can_say_is_missed(template, statement, argv, problem):
    path = template / ".clavain" / "intercore.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        assert conn.execute(statement).rowcount

    output, errors = run(path, *argv.split())

    assert output.exit == 2
    assert all(isinstance(error, DamagedRow) for error in errors)
    assert problem in (output.stdout + output.stderr).decode()


@pytest.mark.parametrize(
    ("table", "column", "value", "finding"),
    [
        ("state", "payload", NOT_UTF8, "row dispatch/s1 of table state is damaged: payload is not"),
        ("state", "payload", "{", "row dispatch/s1 of table state is damaged: payload is not JSON"),
        ("events", "at", 2**63 - 1, "row 1 of table events is damaged: at is"),
        ("runs", "status", "gone", "row run00001 of table runs is damaged: violated constraint:"),
        ("dispatches", "turns", "x", "row disp0001 of table dispatches is damaged: turns is TEXT"),
    ],
)
def test_whatever_examines_a_database_finds_the_row(planted, table, column, value, finding):
    path = planted(table, column, value)

    checked, _ = run(path, "db", "check")
    health, _ = run(path, "health", "--check")
    doctor = icctl("doctor", cwd=path.parent.parent, env={"INTERCORE_MODE": "direct"})

    assert (checked.exit, health.exit, doctor.returncode) == (2, 2, 1)
    assert all(finding in said for said in (checked.stdout.decode(), health.stderr.decode()))
    assert finding in doctor.stdout.decode()


def test_a_sound_database_has_no_damaged_rows(template):
    output, _ = run(template / ".clavain" / "intercore.db", "db", "check")

    assert (output.exit, output.stdout) == (0, b"ok\n")


def test_a_payload_that_is_no_json_becomes_a_string(planted, daemon):
    """Else it would put a frame of its own into the answers of the daemon."""
    forged = '1},"id":9}\n{"jsonrpc":"2.0","id":9,"result":"forged"}'
    project = planted("state", "payload", forged).parent.parent
    params = {"key": "dispatch", "scope_id": "s1", "cwd": str(project)}
    request = {"jsonrpc": "2.0", "id": 9, "method": "state.get", "params": params}

    with daemon.connect() as sock:
        sock.sendall(json.dumps(request).encode() + b"\n")
        answer = json.loads(read_line(sock))

    assert answer["result"]["payload"] == forged


@pytest.mark.parametrize(
    ("table", "column", "argv"),
    [
        ("state", "scope_id", "state list dispatch"),
        ("sentinels", "scope_id", "sentinel list"),
        ("runs", "phase", "run list --all-projects"),
        ("run_agents", "name", "run agent list run00001"),
        ("leases", "owner", "lease list"),
        ("discoveries", "source", "discovery list"),
    ],
)
def test_no_value_forges_a_column_or_a_line(planted, table, column, argv):
    output, _ = run(planted(table, column, BREAKS), *argv.split())

    shown = r"planted\u0009column\u000aline\u000dover"
    assert output.stdout.count(b"\n") == 1
    assert shown in output.stdout.decode()


def test_json_keeps_the_value_of_what_it_spells_out(planted):
    text = "\x1b[31m\x9b\x7f\u202e é→"
    stored = json.dumps({"a": text}, ensure_ascii=False).replace("\x1b", "\\u001b")

    output, _ = run(planted("state", "payload", stored), "state", "get", "dispatch", "s1")

    assert json.loads(output.stdout) == {"a": text}
    assert output.stdout.decode() == '{"a":"\\u001b[31m\\u009b\\u007f\\u202e é→"}\n'.replace(
        '":"', '": "'
    )


@pytest.mark.parametrize("mode", ["daemon", "direct"])
def test_both_hosts_name_the_row_and_log_no_traceback(planted, daemon, mode):
    project = planted("run_artifacts", "path", NOT_UTF8).parent.parent
    env = {"INTERCORE_SOCKET": daemon.socket, "INTERCORE_MODE": mode}

    found = icctl("run", "artifact", "list", hostile_rows.RUN, cwd=project, env=env)

    assert (found.returncode, found.stdout) == (2, b"")
    assert b"row arti0001 of table run_artifacts is damaged: path is not UTF-8" in found.stderr
    assert "Traceback" not in daemon.log.read_text()
    assert not (project / ".local").exists()
