"""Databases of every schema that there ever was, in tests/data/databases: all must keep working.

Each `.sql` there is a database, and the `.expected` beside it is what commands say about it once
it has been upgraded.  A new one is written with

    python -m tests.support.databases ours-1006

A time of the upgrade itself reads `<now>` in it.  Later versions may say more: fields that are
there keep their values, and those that are new are not compared.
"""

import json
import re
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.data.databases.make import HERE
from tests.support.processes import icctl

NAMES = sorted(path.stem for path in HERE.glob("*.sql"))
ABSENT = {"INTERCORE_SOCKET": "/nonexistent/icd.sock"}

# The first one upgrades it, whichever host runs it; the last one reads every row.
COMMANDS = [
    "state get dispatch s1",
    "state list dispatch",
    "sentinel list",
    "events cursor list",
    "run list --all-projects",
    "dispatch list",
    "discovery list",
    "export -",
]
# Lines of an export about the upgrade itself, and rows that a daemon may have pruned by then.
_PASSING = re.compile(r'\{"kind":("(header|migrations|requests)"|"state","key":"(gone|expired)")')
# What happens while the tests run; the databases are of 2020.
_NOW = re.compile(r"\b1[7-9]\d{8}(\d{3})?\b|\b2\d{9}(\d{3})?\b")


def load(name: str, project: Path) -> Path:
    """Put the database into the project."""
    path = project / ".clavain" / "intercore.db"
    path.parent.mkdir()
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        conn.execute("PRAGMA journal_mode = WAL")
        conn.executescript(f"BEGIN;\n{(HERE / f'{name}.sql').read_text('utf-8')}COMMIT;")
    path.chmod(0o600)
    return path


def read(project: Path, env: dict[str, str]) -> dict[str, list[str]]:
    """What each command says, line by line; the first line is its exit status."""
    return {line: _said(line, project, env) for line in COMMANDS}


def _said(line: str, project: Path, env: dict[str, str]) -> list[str]:
    done = icctl(*line.split(), cwd=project, env=env)
    text = done.stdout.decode().replace(str(project), "<project>")
    lines = _NOW.sub('"<now>"', text).splitlines()
    return [f"exit {done.returncode}", *(said for said in lines if not _PASSING.match(said))]


def expected(name: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in (HERE / f"{name}.expected").read_text("utf-8").splitlines():
        if line.startswith("$ "):
            last = found[line.removeprefix("$ ")] = []
        else:
            last.append(line)
    return found


def is_kept(old: str, new: str) -> bool:
    """Whether a line says what it said, and perhaps more."""
    if old == new:
        return True
    try:
        return _contains(json.loads(new), json.loads(old))
    except ValueError:
        return False


def _contains(new: Any, old: Any) -> bool:
    if isinstance(old, dict) and isinstance(new, dict):
        return all(name in new and _contains(new[name], value) for name, value in old.items())
    return bool(new == old)


def _write(name: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        project = Path(place)
        (project / ".git").mkdir()
        load(name, project)
        if name == "original-12":
            icctl("init", "--adopt", cwd=project, env=ABSENT)
        said = read(project, ABSENT)
    lines = [part for line in said for part in (f"$ {line}", *said[line])]
    (HERE / f"{name}.expected").write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    for wanted in sys.argv[1:] or NAMES:
        _write(wanted)
