"""Looking at processes and at what they leave, with real ones; and what follows from it."""

import json
import os
import signal
import subprocess

import pytest
from msgspec import structs

from icd.features.dispatches import poll
from icd.features.dispatches import store as dispatches
from icd.features.dispatches.poll import (
    HOPE,
    LOST,
    NEVER_STARTED,
    START_MS,
    UNSEEN,
    Progress,
    Seen,
)
from icd.features.dispatches.runner.output_files import PROGRESS
from icd.features.dispatches.store import Dispatch, End
from icd.features.events import store as events
from icd.values import processes
from icd.values.processes import Process, Writer
from tests.support.processes import until

ID = "abcd1234"
NOW_MS = 1_800_000_000_123
ME = Writer(pid=41)
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
def place(tmp_path):
    """Where a database would lie."""
    (tmp_path / "dispatches").mkdir()
    return tmp_path / "intercore.db"


@pytest.fixture
def spool(place):
    return place.parent / "dispatches" / f"{ID}.json"


def row(dispatch_id, runner, agent):
    """A dispatch of which only the processes matter."""
    runs = {} if runner is None else {"runner_pid": runner.pid, "runner_start": runner.start}
    runs |= {} if agent is None else {"pid": agent.pid, "pid_start": agent.start}
    known = agent or runner
    place = {"boot": known.boot, "pidns": known.pidns}
    return Dispatch(
        id=dispatch_id, status="running", agent_type="codex", project_dir="/p", turns=0,
        commands=0, messages=0, input_tokens=0, output_tokens=0, created_at=0, version=3,
        **runs, **place,
    )  # fmt: skip


@pytest.fixture
def look(place):
    def seen(runner, agent, *, dispatch_id=ID, progress=False):
        return poll.look(row(dispatch_id, runner, agent), str(place), progress=progress)

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
    "too much": lambda path: path.write_text(json.dumps(END) + " " * poll.SPOOL_BYTES),
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
    too_long = tmp_path / ("x" * 300) / "intercore.db"

    seen = poll.look(row(ID, dead, dead), str(too_long))

    assert (seen.runner, seen.end, seen.is_news) == ("unknown", None, False)


@pytest.mark.parametrize("name", ["../abcd1234", "a/b", "", ".", "x" * 65])
def test_an_id_never_leads_out_of_the_spool(look, dead, place, name):
    (place.parent / "abcd1234.json").write_text(json.dumps({**END, "id": name}))

    assert look(dead, dead, dispatch_id=name).end is None


def test_what_was_taken_over_is_removed(place, spool):
    spool.write_text("{}")

    poll.forget(ID, str(place))
    poll.forget(ID, str(place))

    assert not spool.exists()


@pytest.fixture
def progress(process):
    path = PROGRESS.format(pid=process.pid)
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
    path = PROGRESS.format(pid=dead.pid)
    with open(path, "x", encoding="utf-8") as file:
        file.write('{"turns":3}')
    try:
        seen = look(None, dead, progress=True)
    finally:
        os.unlink(path)

    assert seen.progress is None


# --- what follows from it ---


@pytest.fixture
def spawned(conn):
    return dispatches.create(
        conn,
        agent_type="codex",
        project_dir="/p",
        runner=Process(4241, 76),
        actor=ME,
        now_ms=NOW_MS,
    )


@pytest.fixture
def running(conn, spawned):
    agent, runner = Process(4242, 77), Process(4241, 76)
    return dispatches.start(conn, spawned.id, agent=agent, runner=runner, actor=ME, now_ms=NOW_MS)


@pytest.fixture
def observe(conn):
    def observed(found, now_ms=NOW_MS + 1000, **seen):
        what = Seen(**{"version": found.version, **seen})
        return poll.observe(conn, found.id, what, actor=ME, now_ms=now_ms)

    return observed


@pytest.mark.parametrize("agent", ["alive", "dead", "unknown"])
@pytest.mark.parametrize("runner", HOPE)
def test_as_long_as_a_runner_may_live_nothing_follows(observe, running, runner, agent):
    end = End(id=running.id, status="completed")

    assert observe(running, runner=runner, agent=agent, end=end) == running


@pytest.mark.parametrize("agent", ["alive", "dead", "unknown"])
@pytest.mark.parametrize("runner", [None, "dead"])
def test_what_a_dead_runner_left_is_taken_over(observe, running, runner, agent):
    end = End(id=running.id, status="timeout", exit_code=137, ended_ms=NOW_MS + 1)

    found = observe(running, runner=runner, agent=agent, end=end)

    assert (found.status, found.exit_code) == ("timeout", 137)


def test_what_is_left_of_another_dispatch_is_not_taken_over(observe, running):
    end = End(id="another0", status="completed", exit_code=0)

    found = observe(running, runner="dead", agent="dead", end=end)

    assert (found.status, found.exit_code) == ("failed", UNSEEN)


@pytest.mark.parametrize("agent", HOPE)
@pytest.mark.parametrize("runner", [None, "dead"])
def test_an_agent_without_a_runner_goes_on(observe, running, runner, agent):
    assert observe(running, runner=runner, agent=agent) == running


@pytest.mark.parametrize("runner", [None, "dead"])
def test_what_nobody_saw_end_has_failed_and_says_so(conn, observe, running, runner):
    found = observe(running, runner=runner, agent="dead")

    assert (found.status, found.exit_code, found.error_message) == ("failed", UNSEEN, LOST)
    last = events.read(conn, limit=10, source="dispatch")[-1]
    assert (last.from_state, last.to_state, last.reason) == ("running", "failed", LOST)


@pytest.mark.parametrize("runner", [None, "dead"])
def test_a_start_is_waited_for_but_not_for_ever(observe, spawned, runner):
    early = observe(spawned, NOW_MS + START_MS - 1, runner=runner)
    late = observe(spawned, NOW_MS + START_MS, runner=runner)

    assert early.status == "spawned"
    assert (late.status, late.exit_code) == ("failed", UNSEEN)
    assert late.error_message == NEVER_STARTED


def test_what_was_seen_of_an_older_version_decides_nothing(conn, observe, spawned, running):
    found = observe(spawned, NOW_MS + START_MS, runner="dead")

    assert found == running


def test_what_has_ended_is_left_alone(conn, observe, running):
    end = End(id=running.id, status="completed", exit_code=0)
    ended, _ = dispatches.end(conn, end, actor=ME, now_ms=NOW_MS)

    assert observe(ended, runner="dead", agent="dead") == ended


def test_what_a_living_agent_counts_is_noted_and_is_no_event(conn, observe, running):
    before = events.head(conn)

    found = observe(running, runner="alive", agent="alive", progress=Progress(3, 5, 8))
    again = observe(found, runner="alive", agent="alive", progress=Progress(3, 5, 8))

    assert (found.turns, found.commands, found.messages) == (3, 5, 8)
    assert found.version == running.version + 1
    assert again == found
    assert events.head(conn) == before


@pytest.mark.parametrize(
    ("seen", "is_news"),
    [
        ({"runner": "alive", "agent": "dead"}, False),
        ({"runner": "unknown", "agent": "unknown"}, False),
        ({"runner": "dead", "agent": "alive"}, False),
        ({"runner": "dead", "agent": "dead"}, True),
        ({"runner": None, "agent": None}, True),
        ({"runner": "dead", "agent": "alive", "end": End(id="x", status="failed")}, True),
        ({"runner": "alive", "agent": "alive", "progress": Progress(1)}, True),
    ],
)
def test_only_news_are_worth_a_write(seen, is_news):
    assert Seen(version=1, **seen).is_news is is_news


def test_everything_that_has_not_ended_is_looked_at(conn, spawned):
    over = dispatches.create(conn, agent_type="codex", project_dir="/p", actor=ME, now_ms=NOW_MS)
    dispatches.cancel(conn, over.id, reason="", actor=ME, now_ms=NOW_MS)

    (found,) = dispatches.live(conn)

    assert (found.id, found.version) == (spawned.id, spawned.version)
    assert (found.runner, found.agent) == (Process(4241, 76), None)
