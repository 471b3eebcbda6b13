"""What `icctl init --adopt` prints."""

import json
from pathlib import Path

from tests.data import later
from tests.support.processes import icctl

DIRECT = {"INTERCORE_MODE": "direct"}


def test_it_prints_what_was_taken_what_was_left_and_where_the_old_file_is(project: Path) -> None:
    (project / ".clavain").mkdir()
    later.write(str(project / ".clavain" / "intercore.db"))

    done = icctl("init", "--adopt", cwd=project, env=DIRECT)

    first, kept, *lines = done.stdout.decode().splitlines()
    untrusted = b"icctl: init: warning: the database is not trusted, so it starts no programs; "
    assert (done.returncode, done.stderr) == (0, untrusted + b"accept it with 'icctl trust'\n")
    assert first.startswith("adopted .clavain/intercore.db (schema v12 of the original, now v")
    assert (project / kept.removeprefix("kept ")).exists()
    assert "took 5 rows of state" in lines
    assert lines[-5:] == [
        "left the table lanes: 2 rows",
        'left the table odd "name: 0 rows',
        "left the column runs.tenant: 1 row",
        "left the column state.nobody: 0 rows",
        "left 1 row of run_artifacts",
    ]


def test_a_program_reads_the_same(project: Path) -> None:
    (project / ".clavain").mkdir()
    later.write(str(project / ".clavain" / "intercore.db"))

    found = json.loads(icctl("init", "--adopt", "--json", cwd=project, env=DIRECT).stdout)

    left = {(one["kind"], one["table"], one["column"], one["rows"]) for one in found["left"]}
    assert (found["original"], found["still_open"]) == (later.SCHEMA, [])
    assert found["taken"] == later.TAKEN
    assert left == set(later.LEFT)
