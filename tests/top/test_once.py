"""`icctl top --once`: one screen for scripts, and what it needs."""

import os
import re
import sys
import time
from pathlib import Path

import pytest

from icctl.api import Client
from icd.app.human import text
from icd.app.human.screen import Screen
from icd.app.invocation import Terminal, World
from icd.db.paths import Where
from icd.errors import TopNotInstalled
from icd.features.daemon.report import MethodReport
from icd.top import head, once, projects, verbs
from icd.top.rows import Row, matching, sought
from icd.top.tabs import TABS
from tests.support import screens
from tests.support.hostile_page import spoiled
from tests.support.hostile_rows import COMMANDS
from tests.support.processes import icctl


def test_the_screen_is_the_golden_one():
    expected = screens.TOP.read_text(encoding="utf-8")

    assert screens.golden_top() == expected, "look at it, then: make screens"


def test_a_screen_stays_within_its_width():
    for width in (40, 80, 120):
        shown = screens.top(screens.terminal(width), screens.seen(screens.PROJECTS))
        for line in shown.splitlines():
            assert line.isprintable()
            assert text.width(line) <= width, line


def test_the_words_of_the_option_are_those_of_the_tabs():
    assert tuple(tab.name.lower() for tab in TABS) == verbs.NAMES


def test_a_pipe_gets_plain_text_through_the_daemon_and_without_one(initialized, shared_daemon):
    env = {"INTERCORE_SOCKET": shared_daemon.socket, "INTERCORE_LOCK_DIR": str(initialized / "l")}
    with Client(initialized, socket=shared_daemon.socket) as client:
        client.run.create(goal="Parse the log", project=str(initialized))
        client.events.record(source="ci", type="built", reason="\u009b[red]")

    through = icctl("top", "--once", "--project=.", cwd=initialized, env=env)
    only = icctl("top", "--once", "--tab=runs", cwd=initialized, env={**env, "COLUMNS": "120"})
    endless = {**env, "COLUMNS": "9" * 5000}
    direct = icctl("top", "--once", "--no-daemon", cwd=initialized, env=endless)

    assert (through.returncode, through.stderr, only.stderr, direct.stderr) == (0, b"", b"", b"")
    shown = through.stdout.decode()
    assert shown.startswith("intercore ")
    assert "● live" in shown
    assert re.search(r"built +\\u009b\[red\]", shown)
    assert "LACKS" in only.stdout.decode()
    assert "no daemon" in direct.stdout.decode()
    assert "Parse the log" in direct.stdout.decode()


def test_without_textual_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "textual", None)  # what Python finds of a missing package

    with pytest.raises(TopNotInstalled) as found:
        verbs.require_textual()

    assert (found.value.name, found.value.exit) == ("top_not_installed", 2)
    assert "pip install 'intercore[top]'" in found.value.hint
    assert "icctl top --once" in found.value.hint


def test_without_a_terminal_a_project_or_textual_it_says_what_to_do(initialized, tmp_path):
    env = {"INTERCORE_MODE": "direct"}

    piped = icctl("top", cwd=initialized, env=env)
    strange = icctl("top", "--project=/nowhere", cwd=initialized, env=env)
    unknown = icctl("top", "--tab=nodes", cwd=initialized, env=env)
    nothing = icctl("top", "--once", "--project=.", cwd=tmp_path, env=env)

    assert (piped.returncode, piped.stdout) == (3, b"")
    assert b"'icctl top --once'" in piped.stderr
    assert (strange.returncode, nothing.returncode) == (2, 2)
    assert (unknown.returncode, b"discoveries, failures" in unknown.stderr) == (3, True)
    assert b"no directory /nowhere" in strange.stderr
    assert b"icctl init" in nothing.stderr


@pytest.mark.parametrize("value", [COMMANDS, -(2**63), 2**63 - 1])
def test_no_row_of_a_stranger_ends_the_screen(tmp_path, monkeypatch, value):
    """Every list is shown, or its project is named with what is wrong."""
    monkeypatch.setenv("HOME", str(tmp_path))
    spoiled(tmp_path / "project" / ".clavain" / "intercore.db", value)
    world = World([], str(tmp_path), time.monotonic() + 60, env={"INTERCORE_LOCK_DIR": "/nowhere"})
    choice = projects.choose(Where(str(tmp_path / "project")), None, no_daemon=True)

    for tab in TABS:
        screen = Screen(Terminal(80))
        for line in once.lines(screen, once.look(world, choice, [tab]), tab):
            assert line.isprintable()
            assert text.width(line) <= 80


# --- figures --------------------------------------------------------------------------------------


def report(calls: int, fast: int, **changes: object) -> head.Report:
    """Of one method; `fast` calls took less than a millisecond."""
    from msgspec.structs import replace

    buckets = [0, 0, *[fast] * 5, *[calls] * 9]
    method = MethodReport(calls, 0, 0.5, 0.5, 1.0, buckets)
    return replace(screens.STATUS, calls={"a": calls}, methods={"m": method}, **changes)


def test_figures_are_those_between_two_reports():
    now = head.figures(report(300, 200), report(100, 100), 2.0)
    quiet = head.figures(report(100, 100), report(100, 100), 2.0)
    restarted = head.figures(report(10, 10, pid=1), report(300, 300), 2.0)

    assert (now.calls, now.p99_ms > 30, quiet.calls) == (100.0, True, 0.0)
    assert restarted.calls == screens.STATUS.rates.last_minute


def test_a_filter_wants_all_words_and_none_of_those_behind_a_mark():
    row = Row(None, (1,), screens.LOG.events[1])
    found = sought(row, TABS[0].table)

    assert [matching(words)(found) for words in ("Dispatch FAILED", "!failed", "zebra failed", "!")] == [
        True, False, False, True,
    ]  # fmt: skip


def test_projects_of_one_name_are_told_apart():
    one, two = projects.Project("/a/x/.clavain/intercore.db"), projects.Project("/b/x/some.db")

    assert projects.names([one]) == {one: "x"}
    assert projects.names([one, projects.Project("/b/x/.clavain/intercore.db")]) == {
        one: "/a/x",
        projects.Project("/b/x/.clavain/intercore.db"): "/b/x",
    }
    assert (one.where.db, two.where.db) == (None, "/b/x/some.db")
    assert os.path.isabs(two.directory)
    assert Path(two.directory).is_relative_to("/b")
