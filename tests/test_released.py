"""Scripts of the last release print what they printed: the parity table, played with it and with
this code, each through its own daemon and native client, and compared byte for byte.

A mistake (exit 3) is told otherwise on purpose, and texts for people may become better; what else
differs on purpose is listed here.
"""

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from icd.db import migrate
from tests.support import installations, parity_table
from tests.support.parity_table import Step
from tests.support.processes import Daemon, vanish
from tests.test_parity import CALLER, HOSTILE, _at, _play

pytestmark = pytest.mark.long

OLD = "0.4.0"
MISTAKE = 3
FOR_PEOPLE = {"--help", "-h", "help", "completion"}
# They consist of mistakes, of help, and of what the release does not know.
NOTHING_TO_COMPARE = {"service", "the daemon"}
# What was said of the script's step then, and is said now.
INTENDED = {
    # The database has more tables, and so more counters.
    ("exports", "export file"): (rb"exported 13 rows", rb"exported 19 rows"),
    ("exports", "export ../more --json"): (rb'"rows":13', rb'"rows":19'),
    # Words of a person's language, which name the command that repairs it.
    ("triggers", "hooks list"): (
        rb"it can be written by others; chmod go-w",
        rb"it is writable by other users; run chmod go-w",
    ),
    ("runs", "run events run00001"): (rb"no sign of life for", rb"idle for"),
}
# They ask the release for what it does not know, and then for what came of it.
NEW = {"a run has limits", "lane"}
# A field more, at the end.
for _script in ("statusline", "run budget"):
    INTENDED[_script, "statusline --session=s1 --format=sh"] = (
        b"\n",
        b" INTERCORE_STATUS_RESERVATIONS=''\n",
    )
INTENDED["statusline", "statusline --session=s1 --format=tsv"] = (b"\n", b"\t\n")
# Differ as a whole: there are more settings, and a rollback that --yes does not confirm only tells.
OTHERWISE = {
    ("config", "config show"),
    ("config", "config show --origin"),
    ("config", "config show --origin --json"),
    ("config", "state get kernel.max_spawn_depth global"),
    ("session", "events tail --all --source=session"),
    # An action without a command was kept with the run, and is refused.
    ("run advance with actions", "run create --goal=g --actions=@bad.json"),
    (
        "discoveries fade and are retired",
        "discovery rollback --source=exa --since=0 --json",
    ),
}


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[tuple[Path, Daemon]]]:
    """The clients of both, each with its daemon."""
    old = installations.released(tmp_path_factory.mktemp("old"), OLD)
    new = installations.current(tmp_path_factory.mktemp("new"), OLD)
    first, second = (Daemon(env={**HOSTILE, "PYTHONPATH": str(one.packages)}) for one in (old, new))
    with closing(first), closing(second):
        yield [
            (old.clients["native"].parent, first.start()),
            (new.clients["native"].parent, second.start()),
        ]


@pytest.mark.parametrize("name", [each for each in parity_table.SCRIPTS if each not in NEW])
def test_a_script_of_the_release_prints_what_it_printed(
    name: str, project: Path, versions: list[tuple[Path, Daemon]]
) -> None:
    script = parity_table.SCRIPTS[name]
    printed = []
    for place, daemon in versions:
        vanish(project)
        project.mkdir()
        (project / ".git").mkdir()
        env = {**CALLER, "INTERCORE_MODE": "auto", "INTERCORE_SOCKET": daemon.socket}
        printed.append(_play(script, project, env, _at(place)))

    compared = 0
    for step, was, now in zip(script, *printed, strict=True):
        if b"v%d" % migrate.LATEST in was[2]:
            break  # it was given a file of the new schema
        if was[0] != MISTAKE and not _is_for_people(step):
            line = " ".join(map(str, step.argv))
            told, tells = INTENDED.get((name, line), (b"", b""))
            if (name, line) not in OTHERWISE:
                expected = was[0], _bare(was[1].replace(told, tells))
                assert (now[0], _bare(now[1])) == expected, line
            compared += 1

    assert (compared == 0) == (name in NOTHING_TO_COMPARE)


def _is_for_people(step: Step) -> bool:
    return not step.argv or not FOR_PEOPLE.isdisjoint(step.argv)


def _bare(text: bytes) -> bytes:
    """Without the number of the schema, the size of the database, and where it is installed."""
    text = re.sub(rb"\bv?100[5-9]\b", b"<schema>", text)
    text = re.sub(rb"(?<=now )v\d+\b", b"<schema>", text)
    text = re.sub(rb"/\S+/site-packages/", b"<packages>/", text)
    return re.sub(rb'(?<="bytes":)\d+|(?<=_before":)\d+|(?<=_after":)\d+|\d+(?= bytes before)'
                  rb"|(?<=before, )\d+", b"<size>", text)  # fmt: skip
