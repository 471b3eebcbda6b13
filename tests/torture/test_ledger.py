"""The checker of suites that kill: what it lets pass, and what it must not."""

import random
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.processes import running
from tests.torture.ledger import Ledger
from tests.torture.projects import read_answers
from tests.torture.suite import Broken
from tests.torture.workload import Workload

BURSTS = 30


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ledger]:
    """A database that agrees with its ledger, of a daemon that ended in peace."""
    project = tmp_path_factory.mktemp("worked")
    (project / ".git").mkdir()
    ledger = Ledger()
    load = Workload(random.Random(7), ledger, "0")
    with running() as daemon, daemon.connect() as peer:
        daemon.call("db.init", cwd=str(project))
        for _ in range(BURSTS):
            burst = load.burst()
            peer.sendall(b"".join(known.request(cwd=str(project)) for known in burst))
            assert read_answers(peer, burst)
        assert daemon.stop() == 0
    return project / ".clavain" / "intercore.db", ledger


@pytest.fixture
def copy(worked: tuple[Path, Ledger], tmp_path: Path) -> Path:
    return Path(shutil.copy(worked[0], tmp_path / "copy.db"))


def test_a_database_in_which_everything_happened_agrees(
    worked: tuple[Path, Ledger], copy: Path
) -> None:
    ledger = worked[1]

    there = ledger.check(copy)

    assert there == {known.id for known in ledger.operations if not known.refusal}
    assert len({known.method for known in ledger.operations}) == 12, "the mix lost something"


def test_what_is_unknown_may_be_there(worked: tuple[Path, Ledger], copy: Path) -> None:
    unknown = Ledger([replace(known, outcome=None) for known in worked[1].operations])

    assert unknown.check(copy) == worked[1].check(copy)


def test_what_is_unknown_may_be_absent(worked: tuple[Path, Ledger], copy: Path) -> None:
    ledger = Ledger(list(worked[1].operations))
    added = [*Workload(random.Random(8), ledger, "0").burst(), ledger.operations[-1]]

    there = ledger.check(copy)

    assert not there & {known.id for known in added}


LAST = "(SELECT id FROM requests WHERE method = '{}' ORDER BY at_ms DESC LIMIT 1)"
DAMAGES = {
    "an acknowledged write is lost": (
        f"DELETE FROM requests WHERE id = {LAST.format('state.set')}",
        "acknowledged and is lost",
    ),
    "a claim is lost": (
        "DELETE FROM sentinels WHERE name = 'once'",
        "acknowledged and is lost",
    ),
    "a third of the claims of a call is lost": (
        "DELETE FROM sentinels WHERE name = 'guard1'",
        "half applied",
    ),
    "a refused call left a claim": (
        (
            "INSERT INTO sentinels SELECT 'half', scope_id, last_fired, fired_ms, 0, 1, NULL, 0,"
            " substr(request_id, 1, 16) || '#0' FROM sentinels WHERE name = 'anchor' LIMIT 1"
        ),
        "refused and is there",
    ),
    "a claim is nobody's": (
        (
            "INSERT INTO sentinels SELECT 'x', scope_id, last_fired, fired_ms, 0, 1, NULL, 0, 'y'"
            " FROM sentinels LIMIT 1"
        ),
        "nobody was granted",
    ),
    "a row is lost": (
        "DELETE FROM state WHERE key = 'phase'",
        "is not there",
    ),
    "a row is an older one": (
        "UPDATE state SET version = version - 1 WHERE key = 'phase'",
        "wrote",
    ),
    "a row holds what somebody else wrote": (
        "UPDATE state SET payload = '{\"op\":\"x\"}' WHERE key = 'phase'",
        "wrote",
    ),
    "a row is nobody's": (
        "INSERT INTO state (key, scope_id, payload, version, updated_at) VALUES ('k','s','1',1,1)",
        "nobody's effect",
    ),
    "a counter was moved twice": (
        "UPDATE state SET payload = payload + 1 WHERE key = 'total'",
        "wrote",
    ),
    "a change was made for nobody": (
        "UPDATE counters SET value = value + 1 WHERE name = 'state'",
        "times for",
    ),
    "an event was recorded twice": (
        (
            "INSERT INTO events (source, type, run_id, subject_id, from_state, to_state, reason,"
            " payload, at, at_ms) SELECT source, type, run_id, subject_id, from_state, to_state,"
            " reason, payload, at, at_ms FROM events WHERE source = 'torture' LIMIT 1"
        ),
        "events: .* for nobody",
    ),
    "an event is lost": (
        "DELETE FROM events WHERE seq = (SELECT max(seq) FROM events WHERE source = 'torture')",
        "events: .* missing",
    ),
    "a lease has no event": (
        "DELETE FROM events WHERE source = 'lease'",
        "events of leases",
    ),
    "a lease is lost": ("DELETE FROM leases", "leases: "),
    "a token was given to nobody": (
        "UPDATE counters SET value = value + 1 WHERE name = 'leases'",
        "tokens were given",
    ),
    "a reservation is lost": (
        "DELETE FROM reservations WHERE id = (SELECT max(id) FROM reservations)",
        "reservations: .* missing",
    ),
    "a reservation has no event": (
        "DELETE FROM events WHERE source = 'coordination'",
        "events of reservations",
    ),
    "tokens were counted twice": (
        "UPDATE sessions SET input_tokens = input_tokens + 1 WHERE input_tokens > 0",
        "tokens: ",
    ),
    "a session has no event": (
        "DELETE FROM events WHERE source = 'session'",
        "events of sessions",
    ),
    "a phase has no event": (
        "DELETE FROM events WHERE source = 'phase'",
        "runs have moved",
    ),
    "a run moved for nobody": (
        "UPDATE runs SET phase = 'p30'",
        "runs have moved",
    ),
    "another answer was given than is recorded": (
        "UPDATE requests SET effect = replace(effect, '\"seq\":', '\"seq\":9')",
        "was told",
    ),
    "it is of another schema": ("PRAGMA user_version = 1004", "user_version is 1004"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_noticed(worked: tuple[Path, Ledger], copy: Path, damage: str) -> None:
    statement, complaint = DAMAGES[damage]
    with closing(sqlite3.connect(copy, isolation_level=None)) as conn:
        conn.execute(statement)

    with pytest.raises(Broken, match=complaint):
        worked[1].check(copy)


def test_a_torn_page_is_noticed(worked: tuple[Path, Ledger], copy: Path) -> None:
    content = bytearray(copy.read_bytes())
    with closing(sqlite3.connect(copy)) as conn:
        (page,) = conn.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name='state_by_scope'"
        ).fetchone()
    content[(page - 1) * 4096 : (page - 1) * 4096 + 512] = bytes(512)
    copy.write_bytes(content)

    with pytest.raises(Broken, match="is damaged"):
        worked[1].check(copy)
