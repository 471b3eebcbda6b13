"""Looking at processes and at what they leave, with real ones."""

import json
import os
import signal
import subprocess

import pytest
from msgspec import structs

from icd.features.dispatches.agent import looks
from icd.features.dispatches.observation import Progress, Subject
from icd.values import processes
from tests.support.processes import until

ID = "abcd1234"
END = {"id": ID, "status": "completed", "exit_code": 0, "verdict_status": "pass"}


@pytest.fixture
def process():
    """A process that lives until the test is over."""
    with subprocess.Popen(["sleep", "300"]) as found:
        yield processes.identify(found.pid)
        found.kill()


@pytest.fixture
def dead():
    with subprocess.Popen(["sleep", "300"]) as found:
        known = processes.identify(found.pid)
        found.kill()
    return known


@pytest.fixture
def zombie():
    """A process that has ended, and that nobody asks how."""
    with subprocess.Popen(["sleep", "300"]) as found:
        known = processes.identify(found.pid)
        os.kill(found.pid, signal.SIGKILL)
        until(lambda: b") Z " in _stat(found.pid))
        yield known


def _stat(pid):
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read()


@pytest.fixture
def database(tmp_path):
    """Only its place matters here."""
    (tmp_path / "dispatches").mkdir()
    return tmp_path / "intercore.db"


@pytest.fixture
def spool(database):
    return database.parent / "dispatches" / f"{ID}.json"


@pytest.fixture
def look(database):
    def seen(runner, agent, *, dispatch_id=ID, progress=False):
        subject = Subject(id=dispatch_id, version=3, runner=runner, agent=agent)
        return looks.look(subject, str(database), progress=progress)

    return seen


def test_living_processes_are_seen_alive(look, process):
    seen = look(process, process)

    assert (seen.version, seen.runner, seen.agent, seen.is_news) == (3, "alive", "alive", False)


def test_a_zombie_is_dead(look, zombie):
    assert look(zombie, zombie).agent == "dead"


def test_a_number_that_another_process_has_by_now_is_dead(look, process):
    recycled = structs.replace(process, start=process.start - 1)

    assert look(recycled, recycled).agent == "dead"


def test_a_process_of_another_boot_is_dead_whoever_has_its_number(look, process):
    earlier = structs.replace(process, boot="another-boot")

    assert look(earlier, earlier).runner == "dead"


def test_a_process_of_another_namespace_is_unknown(look, dead):
    elsewhere = structs.replace(dead, pidns="pid:[1]")

    seen = look(elsewhere, elsewhere)

    assert (seen.runner, seen.agent, seen.is_news) == ("unknown", "unknown", False)


def test_what_a_dead_runner_left_is_read(look, dead, process, spool):
    spool.write_text(json.dumps(END))

    seen = look(dead, process)

    assert seen.end is not None
    assert (seen.end.status, seen.end.exit_code, seen.end.verdict_status) == (
        "completed",
        0,
        "pass",
    )


def test_what_a_living_runner_leaves_is_its_own_business(look, process, spool):
    spool.write_text(json.dumps(END))

    assert look(process, None).end is None


def _link(path):
    path.with_suffix(".target").write_text(json.dumps(END))
    path.symlink_to(path.with_suffix(".target"))


BAD = {
    "nothing": lambda path: None,
    "an empty file": lambda path: path.write_text(""),
    "half a file": lambda path: path.write_text(json.dumps(END)[:20]),
    "no end": lambda path: path.write_text('{"id":"abcd1234","status":"running"}'),
    "a huge number": lambda path: path.write_text(json.dumps({**END, "turns": 2**63})),
    "another dispatch": lambda path: path.write_text(json.dumps({**END, "id": "other000"})),
    "too much": lambda path: path.write_text(json.dumps(END) + " " * looks.SPOOL_BYTES),
    "a link": _link,
    "a pipe": os.mkfifo,
    "a directory": lambda path: path.mkdir(),
}


@pytest.mark.parametrize("name", BAD)
def test_what_a_runner_cannot_have_left_is_not_there(look, dead, spool, name):
    BAD[name](spool)

    seen = look(dead, dead)

    assert (seen.runner, seen.end) == ("dead", None)


def test_a_spool_that_is_a_link_to_elsewhere_is_not_there(look, dead, spool, tmp_path):
    spool.parent.rmdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / spool.name).write_text(json.dumps(END))
    spool.parent.symlink_to(tmp_path / "elsewhere")

    seen = look(dead, dead)

    assert (seen.runner, seen.end) == ("dead", None)


def test_a_project_without_a_spool_has_nothing_in_it(look, dead, spool):
    spool.parent.rmdir()

    assert look(dead, dead).end is None


def test_a_spool_that_cannot_be_looked_at_leaves_everything_open(dead, tmp_path):
    subject = Subject(id=ID, version=3, runner=dead, agent=dead)
    too_long = tmp_path / ("x" * 300) / "intercore.db"

    seen = looks.look(subject, str(too_long))

    assert (seen.runner, seen.end, seen.is_news) == ("unknown", None, False)


@pytest.mark.parametrize("name", ["../abcd1234", "a/b", "", ".", "x" * 65])
def test_an_id_never_leads_out_of_the_spool(look, dead, database, name):
    (database.parent / "abcd1234.json").write_text(json.dumps({**END, "id": name}))

    assert look(dead, dead, dispatch_id=name).end is None


def test_what_was_taken_over_is_removed(database, spool):
    spool.write_text("{}")

    looks.forget(ID, str(database))
    looks.forget(ID, str(database))

    assert not spool.exists()


@pytest.fixture
def progress(process):
    path = looks.PROGRESS.format(process.pid)
    yield path
    if os.path.lexists(path):
        os.unlink(path)


def test_what_an_agent_counts_is_read_only_if_somebody_asks(look, process, progress):
    with open(progress, "w", encoding="utf-8") as file:
        file.write('{"name":"x","turns":3,"commands":5,"messages":8}')

    assert look(None, process, progress=True).progress == Progress(3, 5, 8)
    assert look(None, process).progress is None


DEEP = '{"x":' + "[" * 4000


@pytest.mark.parametrize("content", ["", "[]", '{"turns":"many"}', '{"turns":-1}', DEEP])
def test_counts_that_are_none_are_passed_over(look, process, progress, content):
    with open(progress, "w", encoding="utf-8") as file:
        file.write(content)

    assert look(None, process, progress=True).progress is None


def test_a_link_in_the_place_of_counts_is_passed_over(look, process, progress, tmp_path):
    (tmp_path / "counts").write_text('{"turns":3}')
    os.symlink(tmp_path / "counts", progress)

    assert look(None, process, progress=True).progress is None


def test_counts_of_a_dead_agent_are_not_read(look, dead, tmp_path):
    path = looks.PROGRESS.format(dead.pid)
    with open(path, "x", encoding="utf-8") as file:
        file.write('{"turns":3}')
    try:
        seen = look(None, dead, progress=True)
    finally:
        os.unlink(path)

    assert seen.progress is None
