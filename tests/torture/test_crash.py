"""The suite `crash` in its short form, and that it notices what it is there to notice."""

import re
from pathlib import Path

import pytest

from icd.db import migrate
from tests.torture import crash, failing
from tests.torture.code import Code, broken
from tests.torture.suite import SHORT_SEED, Broken, Run
from tests.torture.upgrades import SCHEMAS, template

pytestmark = pytest.mark.long

SECONDS = 6
DISPATCH = "icd/app/dispatch.py"


def test_what_was_acknowledged_survives_kill_at_every_failpoint(tmp_path: Path) -> None:
    seed = SHORT_SEED
    print(f"again with: make torture SUITES=crash SEED={seed} SECONDS={SECONDS}")
    run = Run(tmp_path, SECONDS, seed)

    crash.run(run)

    assert run.figures["kills"] >= crash.DAEMONS


def test_a_database_of_every_schema_is_there_to_be_migrated(tmp_path: Path) -> None:
    for schema in SCHEMAS:
        made = template(tmp_path / str(schema), schema)

        assert made.before[0] == schema
        assert made.after[0] == migrate.LATEST


def test_an_answer_before_its_commit_is_noticed(tmp_path: Path) -> None:
    keep = "            self.answers |= answers\n"
    code = broken(tmp_path, DISPATCH, "            self._commit()\n" + keep, keep)
    begin = '        while True:\n            try:\n                self._conn.execute("BEGIN'
    commit = '            self._conn.execute("COMMIT")\n'
    late = f"        if self._conn.in_transaction:\n{commit}{begin}"
    _also(code, "icd/db/database.py", begin, late)

    _notice(tmp_path, code, ("before_commit",), "acknowledged and is lost")


def test_a_dropped_savepoint_is_noticed(tmp_path: Path) -> None:
    code = broken(tmp_path, DISPATCH, 'self._conn.execute("ROLLBACK TO call")', "pass")

    _notice(tmp_path, code, ("before_commit", "after_commit"), "refused and is there")


def test_an_operation_that_is_done_again_for_its_id_is_noticed(tmp_path: Path) -> None:
    file = "icd/app/idempotency.py"
    code = broken(tmp_path, file, "    if row is None:\n", "    if row is None or row:\n")
    _also(code, file, '"INSERT INTO requests', '"INSERT OR REPLACE INTO requests')

    _notice(tmp_path, code, ("before_reply",), "times for|for nobody|incr|phases|version_conflict")


def test_a_reservation_without_its_event_is_noticed(tmp_path: Path) -> None:
    tell = "        records.tell(conn, lock, change, actor=actor, now_ms=now_ms)\n"
    some = f"        if wish is wishes[0]:\n    {tell}"
    code = broken(tmp_path, "icd/features/coordination/store.py", tell, some)

    _notice(tmp_path, code, ("after_commit",), "events of reservations")


def test_a_migration_in_several_transactions_is_noticed(tmp_path: Path) -> None:
    step = "        for statement in statements(file):\n"
    again = '        conn.execute("COMMIT")\n        conn.execute("BEGIN IMMEDIATE")\n'
    code = broken(tmp_path, "icd/db/migrate.py", step, again + step)

    _notice(tmp_path, code, ("migration",), "half migrated")


def test_a_failpoint_whose_seam_is_gone_does_not_start(tmp_path: Path) -> None:
    code = broken(tmp_path, "icd/server/workers/mirror_files.py", "os.utime(", "os.utime (")
    daemon = code.daemon(
        env={"PYTHONPATH": f"{code.root}:{crash.ROOT}"}, module="tests.torture.failing"
    )

    with pytest.raises(AssertionError, match="mend the failpoints"):
        daemon.start()

    daemon.close()


def test_a_failpoint_that_nobody_knows_is_refused() -> None:
    with pytest.raises(AssertionError, match="no failpoint is called"):
        failing.Fuse("no_such_point:1:0")


def _also(code: Code, file: str, old: str, new: str) -> None:
    text = (code.root / file).read_text()
    assert text.count(old) == 1
    (code.root / file).write_text(text.replace(old, new))


def _notice(tmp_path: Path, code: Code, points: tuple[str, ...], how: str) -> None:
    """Chance decides what is asked and when it is killed, so a few seeds may be needed."""
    for seed in range(5):
        run = Run(tmp_path / str(seed), 4, seed, code)
        run.directory.mkdir()
        try:
            crash.run(run, points)
        except Broken as exc:
            assert re.search(how, str(exc)), exc  # noqa: PT017 -- one of several attempts
            return
    pytest.fail("nobody noticed")
