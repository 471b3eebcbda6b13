"""Strangers' repositories in their short form, and that what they do is noticed."""

import hashlib
import os
import random
import shutil
import stat
from pathlib import Path

import pytest

from icd.app import registry
from tests.torture import commands_tried, library_tried, repositories_tried
from tests.torture.code import ROOT, Change, broken_by
from tests.torture.repositories import catalogue
from tests.torture.repositories.clone import OURS, Clone, template
from tests.torture.suite import SHORT_SEED, Broken, Run

DISTINCT = 200
SHARDS = 3  # for as many processors as there may be
AGAIN = 7  # of so many repositories, one is made twice
# Of so many repositories one is tried here, and each that did harm once; make torture tries all.
ONE_IN = 4


def seen() -> set[str]:
    """The repositories that did harm to an earlier version."""
    told = Path(catalogue.__file__).with_name("seen-0.4.0.txt").read_text("utf-8")
    _, *sections = told.split("\n[")
    return {
        line.split(": ")[0] for section in sections for line in section.splitlines()[1:] if line
    }


def chosen(seed: int) -> list[str]:
    every = catalogue.every(seed)
    return [name for name in every if name in seen() or name in every[::ONE_IN]]


@pytest.mark.long
@pytest.mark.timeout(900)  # half a minute on a quiet machine
@pytest.mark.parametrize("shard", range(SHARDS))
def test_nothing_outside_of_a_strangers_repository_comes_to_harm(
    shard: int, tmp_path: Path
) -> None:
    run = Run(tmp_path, 0, SHORT_SEED)
    print(f"seed {run.seed}")

    repositories_tried.run(run, chosen(run.seed)[shard::SHARDS])

    if os.geteuid() != 0:
        pytest.skip("only half of it was tried: root alone can work in the directory of another")


@pytest.mark.long
def test_the_catalogue_has_two_hundred_distinct_repositories(tmp_path: Path) -> None:
    names = catalogue.every(SHORT_SEED)

    digests = {name: _digest(name, tmp_path, SHORT_SEED) for name in names}

    assert len(set(digests.values())) >= DISTINCT, f"{len(set(digests.values()))} distinct ones"
    same = {name for name in names[::AGAIN] if _digest(name, tmp_path, SHORT_SEED) != digests[name]}
    assert not same, "the same seed makes other repositories"


def test_every_kind_of_attack_is_in_the_catalogue() -> None:
    assert set(catalogue.ORDER) == set(catalogue.KINDS)
    assert all(len(found) > len(catalogue.KINDS) for found in catalogue.KINDS.values())
    assert len(catalogue.PRIMITIVES) == sum(map(len, catalogue.KINDS.values())), "a name twice"


def test_what_an_earlier_version_did_is_told_of_repositories_that_there_are() -> None:
    assert seen()
    assert seen() - set(catalogue.PRIMITIVES) == set()


def test_every_command_is_understood_as_it_is_tried() -> None:
    assert commands_tried.misunderstood() == [], "say in MORE what it wants"


def test_what_is_known_to_write_is_a_command() -> None:
    assert registry.commands().keys() >= commands_tried.LOCAL_WRITES


def test_in_the_short_form_every_command_that_reads_has_its_turn() -> None:
    names, every = chosen(SHORT_SEED), catalogue.every(SHORT_SEED)
    lines = [repositories_tried.lines_for(every.index(name), name) for name in names]

    tried = {tuple(argv) for each in lines for argv in each}

    assert len(names) >= DISTINCT
    assert {read.argv for read in commands_tried.reads()} <= tried


def test_every_function_of_the_library_is_tried() -> None:
    known = set(library_tried.functions(ROOT / "lib-intercore.sh"))

    assert known >= set(library_tried.ARGUMENTS) | library_tried.ASKED_FOR, "a function is gone"


# --- that the suite can fail ---

NO_JOURNALS = (
    "icd/db/permissions.py",
    'end == "-journal" and found.st_size',
    "not found.st_mode",
)
NO_SCHEMA = ("icd/db/schema.py", "if digest(there) == DIGEST:", "if there:")
NO_TRUST = (
    "icd/features/dispatches/auto_spawn.py",
    "        if found:\n",
    "        if not found:\n",
)
NO_SCRIPTS = (
    "icd/features/dispatches/launch.py",
    "if script is None or trust.",
    "if script or trust.",
)
NO_PERMIT = (
    "icd/server/workers/mirror_files.py",
    "return None if trust.allows(self.home, self.path) else Refusal.UNTRUSTED",
    "return None",
)
BY_AGE = (
    "icd/server/workers/mirror_files.py",
    """elif file.endswith(".json") and f"{channel.path}/{file}" not in self._rows:
                            self._remove_ours(directory, file, outcome)
""",
    """elif 0 < channel.retention_ms < now_ms - read(directory, file)[1] * 1000:
                            remove(directory, file)
""",
)
NO_STOP = ("icd/db/connection.py", "return self.monotonic() >= self.stop_at", "return False")
# What guards against a stranger, taken away; by which repositories that must be noticed, and as
# what.  The places are those of the code as it is: what moves there is looked for here.
MUTATIONS: dict[str, tuple[list[Change], list[str], str]] = {
    "journals are not looked at": (
        [NO_JOURNALS], ["journal that names absolute"], "changed: .*precious.txt is gone"
    ),
    "schemas are not compared": ([NO_SCHEMA], ["trigger that forbids"], "internal"),
    "agents need no trust": (
        [NO_TRUST, NO_SCRIPTS], ["run that starts agents at once"], "ran: .*dispatch.sh appeared"
    ),
    "files are swept, whoever wrote them": (
        [NO_PERMIT, BY_AGE], ["settings that retire others' files"], "dispatch/s1.json is gone"
    ),
    "rows are mirrored without trust": (
        [NO_PERMIT],
        ["settings that retire others' files"],
        "changed: .*interband",
    ),
    "statements are not stopped": (
        [NO_STOP], ["pages without end of migrations"], "late|busy"
    ),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_guard_that_is_taken_away_is_missed(name: str, tmp_path: Path) -> None:
    changes, names, what = MUTATIONS[name]
    code = broken_by(tmp_path, *changes)

    with pytest.raises(Broken, match=what):
        repositories_tried.run(Run(tmp_path, 0, SHORT_SEED, code=code), names)


def _digest(name: str, directory: Path, seed: int) -> str:
    """Of all that is in a repository; it always lies in the same place."""
    home = directory / "home"
    for project in ("other", "third"):
        (home / project / ".clavain").mkdir(parents=True)
        (home / project / ".clavain" / "intercore.db").write_bytes(template(OURS))
    (home / "precious.txt").write_text("precious\n")
    root = home / "work" / "clone"
    try:
        catalogue.make(name, Clone(root, home, random.Random(f"{seed} {name}")))
        return _content(root)
    finally:
        shutil.rmtree(home)


def _content(root: Path) -> str:
    found = hashlib.sha256()
    for directory, directories, files in os.walk(root):
        directories.sort()
        for name in sorted((*directories, *files)):
            path = Path(directory, name)
            about = path.lstat()
            found.update(f"{path} {about.st_mode} {about.st_nlink} {about.st_size}\n".encode())
            if stat.S_ISLNK(about.st_mode):
                found.update(os.fsencode(os.readlink(path)))
            elif stat.S_ISREG(about.st_mode):
                with path.open("rb") as file:  # the first megabyte: the rest of a huge one is zeros
                    found.update(file.read(1 << 20))
    return found.hexdigest()
