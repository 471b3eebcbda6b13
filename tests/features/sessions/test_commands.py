"""Which project a session is recorded for: that of the directory, whatever it is called."""

import json
import os
from pathlib import Path

import pytest

from tests.support.processes import icctl

ABSENT = {"INTERCORE_SOCKET": "/nonexistent/icd.sock"}


def said(*argv: str, cwd: str | bytes) -> dict[str, str]:
    done = icctl(*argv, "--json", cwd=cwd, env=ABSENT)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.fixture
def odd(tmp_path: Path) -> str:
    """A checkout whose name is no UTF-8, with a database."""
    place = os.path.join(str(tmp_path), os.fsdecode(b"caf\xe9"))
    os.makedirs(os.path.join(place, "below"))
    os.mkdir(os.path.join(place, ".git"))
    assert icctl("init", cwd=place, env=ABSENT).returncode == 0
    return place


def test_a_directory_whose_name_is_no_text_is_the_project_that_a_run_there_has(odd: str) -> None:
    below = os.path.join(odd, "below")
    run = said("run", "create", "--goal=g", cwd=below)

    started = said("session", "start", "--session=s1", cwd=below)

    assert started["project"] == said("run", "status", run["id"], cwd=odd)["project_dir"]
    assert started["project"].endswith("/caf\\udce9")


def test_what_stands_above_a_link_is_above_what_it_leads_to(tmp_path: Path) -> None:
    for name in ("one/.git", "one/below", "two/.git"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "two" / "link").symlink_to(tmp_path / "one" / "below")
    assert icctl("init", cwd=tmp_path / "one", env=ABSENT).returncode == 0
    database = str(tmp_path / "one" / ".clavain" / "intercore.db")

    started = said(
        *("session", "start", "--session=s1", "--project=link/..", "--db", database),
        cwd=tmp_path / "two",
    )

    assert started["project"] == os.path.realpath(tmp_path / "one")
