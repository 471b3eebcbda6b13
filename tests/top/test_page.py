"""`icctl top` as a person sees it, driven by textual's pilot, with a real daemon and real data."""

import os
import shutil
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from icctl.api import Client
from icd.app.invocation import World
from icd.db.paths import Where
from icd.features.locks import directory
from icd.features.locks import store as locks
from icd.features.locks.owners import Owner
from icd.top import feed, projects, work
from icd.top.page import Page
from icd.top.rows import Tab
from icd.top.tabs import TABS
from tests.support.hostile_page import spoiled
from tests.support.hostile_rows import COMMANDS
from tests.support.processes import PATIENCE, Daemon, icctl

pytestmark = pytest.mark.anyio

SIZE = (80, 24)


@pytest.fixture
def home(initialized: Path, any_daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose daemon is the one that is found."""
    monkeypatch.setenv("HOME", str(initialized))
    monkeypatch.setenv("INTERCORE_SOCKET", any_daemon.socket)
    monkeypatch.setenv("INTERCORE_LOCK_DIR", str(initialized / "locks"))
    return initialized


@pytest.fixture
def client(home: Path) -> Iterator[Client]:
    with Client(home) as found:
        yield found


@pytest.fixture
def other(home: Path, daemon: Daemon, tmp_path: Path, initialize: Any) -> Path:
    """Another project, whose log has an event `there`."""
    found = tmp_path / "other"
    (found / ".git").mkdir(parents=True)
    initialize(found, home)
    with Client(found) as client:
        client.events.record(source="ci", type="there")
    return found


@asynccontextmanager
async def opened(
    root: Path, tab: int = 0, *, only: bool = True, size: tuple[int, int] = SIZE, **options: Any
) -> AsyncIterator[Pilot[int]]:
    world = World([], str(root), time.monotonic() + PATIENCE, env=dict(os.environ))
    choice = projects.choose(Where(str(root)), str(root) if only else None, no_daemon=False)
    page = Page(world, choice, tab, **options)
    async with page.run_test(size=size) as pilot:
        yield pilot


def lines(pilot: Pilot[int]) -> list[str]:
    compositor = pilot.app.screen._compositor
    return ["".join(part.text for part in strip) for strip in compositor.render_strips()]


async def until(pilot: Pilot[int], condition: Callable[[str], Any]) -> str:
    """Wait until the screen shows it."""
    deadline = time.monotonic() + PATIENCE
    while not condition(shown := "\n".join(lines(pilot))):
        assert time.monotonic() < deadline, shown
        await pilot.pause(0.02)
    return shown


async def shows(pilot: Pilot[int], *words: str) -> str:
    return await until(pilot, lambda shown: all(word in shown for word in words))


# --- what is pushed -------------------------------------------------------------------------------


async def test_an_event_is_shown_as_it_happens_and_the_newest_comes_first(home, client):
    client.events.record(source="ci", type="before")
    async with opened(home) as pilot:
        await shows(pilot, "before", "● live")
        client.events.record(source="ci", type="meanwhile")
        shown = await shows(pilot, "meanwhile")

    assert shown.index("meanwhile") < shown.index("before")


async def test_each_tab_shows_what_is_written_while_it_is_open(home, client):
    async with opened(home, 1) as pilot:
        await shows(pilot, "No runs yet")
        client.run.create(goal="Parse the log", project=str(home))
        await shows(pilot, "1/9 brainstorm", "✗ fail", "Parse the log")
        await pilot.press("4")
        await shows(pilot, "No claims yet")
        client.sentinel.check("drift", "s-1", interval="10m")
        await shows(pilot, "drift", "in 9m")
        await pilot.press("5")
        client.lease.acquire("sprint", "B-12", owner="ada", ttl="30m")
        await shows(pilot, "sprint B-12", "ada", "in 29m")
        await pilot.press("7")
        client.state.set("plan", "s-1", {"step": 3})
        await shows(pilot, "plan", '{"step":3}')


async def test_a_restart_is_told_and_nothing_is_missed_or_shown_twice(home, daemon):
    with Client(home, mode="daemon", timeout=PATIENCE) as client:
        client.events.record(source="ci", type="before")
        async with opened(home) as pilot:
            await shows(pilot, "before", "● live")
            daemon.kill()
            shown = await shows(pilot, "no daemon")
            assert "before" in shown
            daemon.start()
            client.events.record(source="ci", type="afterwards")
            shown = await shows(pilot, "afterwards", "● live")

    assert (shown.count("afterwards"), shown.count("before")) == (1, 1)


async def test_a_flood_of_events_is_kept_up_with_and_leaves_a_bounded_ring(home, client):
    async with opened(home) as pilot:
        await shows(pilot, "● live")
        with client.pipeline(timeout=PATIENCE) as calls:
            for number in range(feed.RING + 300):
                calls.events.record(source="ci", type=f"n{number}", payload={"x": "y" * 3000})
        await shows(pilot, f"n{feed.RING + 299} ")
        page: Any = pilot.app
        rows = page.feed.rows(page.tab)

    assert len(rows) == feed.RING
    assert max(len(bytes(row.of.payload)) for row in rows) == feed.PAYLOAD_BYTES


async def test_the_files_are_read_where_there_is_no_daemon(home, client, monkeypatch):
    client.state.set("plan", "s-1", {"step": 3})
    monkeypatch.setenv("INTERCORE_SOCKET", "/nowhere/icd.sock")
    async with opened(home, 6) as pilot:
        await shows(pilot, "no daemon", '{"step":3}')


async def test_the_newest_event_comes_first_also_of_those_of_one_millisecond(home, client):
    with client.pipeline(timeout=PATIENCE) as calls:
        for number in range(40):
            calls.events.record(source="ci", type=f"n{number}")
    async with opened(home) as pilot:
        await shows(pilot, "n39 ")
        page: Any = pilot.app
        seqs = [row.of.seq for row in page.feed.rows(page.tab)]

    assert seqs == sorted(seqs, reverse=True)


async def test_what_goes_on_is_listed_however_many_newer_ones_have_ended(home, client, monkeypatch):
    monkeypatch.setattr(work, "MOST", 3)
    old = client.run.create(goal="old", project=str(home), scope="old").id
    for number in range(4):
        client.run.cancel(client.run.create(goal="new", project=str(home), scope=f"n{number}").id)
    async with opened(home, 1) as pilot:
        await shows(pilot, old, "1/3")


async def test_a_project_that_is_deleted_leaves_the_page(home, client, other):
    client.events.record(source="ci", type="here")
    async with opened(home, only=False) as pilot:
        await shows(pilot, "2 projects", "here", "there")
        await pilot.press("p", "p")
        await until(pilot, lambda shown: " there" in shown and " here" not in shown)
        shutil.rmtree(other)
        await pilot.press("2")  # asks for a list
        await until(pilot, lambda shown: "calls/s" in shown and "other" not in shown)
        await pilot.press("1")
        shown = await shows(pilot, " here")

    assert " there" not in shown


# --- what is done ---------------------------------------------------------------------------------


async def test_nothing_is_done_without_a_yes(home, client):
    run = client.run.create(goal="Parse the log", project=str(home)).id
    async with opened(home, 1) as pilot:
        await shows(pilot, run)
        await pilot.press("a")
        await shows(pilot, f"Advance run {run} from brainstorm", "y yes")
        await pilot.press("enter")
        await until(pilot, lambda shown: "y yes" not in shown)
        assert client.run.status(run).phase == "brainstorm"
        client.artifact.add(run, phase="brainstorm", path="/etc/hostname")
        await pilot.press("a", "y")
        await shows(pilot, f"run {run} is in brainstorm-reviewed", "2/9")


async def test_what_is_held_is_released(home, client):
    client.lease.acquire("sprint", "B-12", owner="ada", ttl="30m")
    client.coordination.reserve(owner="ada", path="app.py", ttl="30m")
    place = directory.place(dict(os.environ))
    locks.acquire(place, "deploy", "web", Owner(1, "elsewhere", "1:elsewhere", 1), deadline=0)
    async with opened(home, 4) as pilot:
        await shows(pilot, "sprint B-12", "app.py", "deploy web")
        page: Any = pilot.app
        for left in (2, 1, 0):
            await pilot.press("r", "y")
            await until(pilot, lambda _, left=left: len(page.listing.rows) == left)

    assert (client.lease.list(), client.coordination.list(), locks.every(place)) == ([], [], [])


async def test_a_sentinel_is_reset_and_a_dispatch_is_killed(home, client):
    client.sentinel.check("drift", "s-1", interval="10m")
    env = {name: os.environ[name] for name in ("INTERCORE_SOCKET", "HOME")}
    line = ["dispatch", "spawn", "--name=fixer", "--", "sh", "-c", "echo 4 of 9; sleep 600"]
    made = icctl(*line, cwd=home, env=env)
    dispatch = made.stdout.decode().strip()
    async with opened(home, 3) as pilot:
        await shows(pilot, "drift")
        await pilot.press("r", "y")
        await shows(pilot, "may fire again", "No claims yet")
        await pilot.press("3")
        await shows(pilot, "fixer", "● running", "4 of 9")
        await pilot.press("enter")
        await shows(pilot, "Dispatch", "4 of 9", "esc back")
        await pilot.press("escape", "x", "y")
        await shows(pilot, f"dispatch {dispatch} is killed", "- cancelled")

    assert client.dispatch.get(dispatch).status == "cancelled"


async def test_a_refusal_is_told_and_a_page_to_read_only_offers_nothing(home, client):
    run = client.run.create(goal="Parse the log", project=str(home)).id
    client.run.cancel(run)
    async with opened(home, 1) as pilot:
        await shows(pilot, run)
        await pilot.press("a")
        await shows(pilot, f"run {run} has ended")
    (home / "locks" / "deploy" / "web").mkdir(mode=0o700, parents=True)
    (home / "locks").chmod(0o700)
    async with opened(home, 4) as pilot:
        await shows(pilot, "deploy web")
        await pilot.press("r")
        await shows(pilot, "no readable owner: icctl lock clean")
    client.lease.acquire("sprint", "B-12", owner="ada", ttl="30m")
    async with opened(home, 4, is_read_only=True) as pilot:
        assert "r release" not in await shows(pilot, "sprint")
        await pilot.press("r", "y")

    assert len(client.lease.list()) == 1


async def test_keys_of_the_list_wait_while_a_detail_lies_on_it(home, client):
    client.events.record(source="ci", type="first")
    async with opened(home) as pilot:
        await shows(pilot, "first")
        await pilot.press("enter")
        await shows(pilot, "Type", "esc back")
        await pilot.press("2", "tab", "slash", "question_mark", "escape")
        await shows(pilot, "first", "enter detail")
        page: Any = pilot.app
        assert page.tab.name == "Events"
        await pilot.press("tab", "tab", "shift+tab")
        assert page.tab.name == "Runs"


# --- finding one's way ----------------------------------------------------------------------------


async def test_a_filter_narrows_a_list_and_escape_ends_it(home, client):
    for kind in ("built", "tested"):
        client.events.record(source="ci", type=kind)
    async with opened(home) as pilot:
        await shows(pilot, "built", "tested")
        await pilot.press("slash", *"!test", "enter")
        shown = await shows(pilot, "filter: !test")
        assert ("built" in shown, "tested" in shown) == (True, False)
        await pilot.press("escape")
        await shows(pilot, "built", "tested")


async def test_a_row_stays_chosen_while_others_come(home, client):
    client.events.record(source="ci", type="first")
    client.events.record(source="ci", type="second")
    async with opened(home) as pilot:
        await shows(pilot, "first", "second")
        await pilot.press("down")
        client.events.record(source="ci", type="third")
        await shows(pilot, "third", "3/3")
        await pilot.press("enter")
        await shows(pilot, "Type", "first", "esc back")
        await pilot.press("escape", "question_mark")
        await shows(pilot, "advance, in Runs", "q ")


async def test_the_tab_that_is_shown_is_named_however_narrow_it_is(home, client):
    async with opened(home, 4, size=(20, 5)) as pilot:
        assert "5 Held" in (await shows(pilot, "Nothing is held"))


async def test_several_projects_are_shown_together_and_one_by_one(home, client, other):
    client.events.record(source="ci", type="here")
    async with opened(home, only=False) as pilot:
        await shows(pilot, "PROJECT", "2 projects", "here", "there")
        await pilot.press("p")
        shown = await until(pilot, lambda shown: "2 projects" not in shown)
        assert ("here" in shown, " there" in shown) == (True, False)
        await pilot.press("p", "p")
        await shows(pilot, "2 projects")


# --- what is hostile ------------------------------------------------------------------------------


async def test_no_row_of_a_stranger_commands_the_terminal_or_ends_the_page(home, daemon):
    (home / ".clavain" / "intercore.db").unlink()
    spoiled(home / ".clavain" / "intercore.db", COMMANDS)
    async with opened(home) as pilot:
        await shows(pilot, "\\u001b", "● live")
        page: Any = pilot.app
        for number, tab in enumerate(TABS):
            await pilot.press(str(number + 1))
            known = partial(is_drawn, page, tab)
            await until(pilot, known)
            check(pilot)
            await pilot.press("enter")
            if page.listing.rows:
                await until(pilot, lambda shown: "esc back" in shown and "asking" not in shown)
            check(pilot)
            await pilot.press("escape")


def is_drawn(page: Any, tab: Tab, _shown: str) -> bool:
    return page.feed.is_known(tab) and len(page.listing.rows) == len(page.feed.rows(tab))


def check(pilot: Pilot[int]) -> None:
    for line in lines(pilot):
        assert line.isprintable(), line


async def test_markup_in_data_is_text(home, client):
    client.events.record(source="ci", type="built", reason="[red]x[/red] [@click=app.quit]y[/]")
    client.lease.acquire("sprint", "B-12", owner="[link=file:///]ada[/link]", ttl="30m")
    async with opened(home) as pilot:
        await shows(pilot, "[red]x[/red] [@click=")
        await pilot.press("5")
        await shows(pilot, "[link=file:///]ada")
        await pilot.press("r")
        await shows(pilot, "Release the lease sprint B-12 of [link=file:///]ada[/link]?")
