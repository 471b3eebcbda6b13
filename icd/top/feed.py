"""What the daemon pushes, and what was asked for because of it.

Each project has two streams: the log, whose events are kept in a ring, and `db.watch`, which says
that something was written; then the tab that is shown is asked for again, and no other.  Figures
of the daemon are pushed by none, and are asked for every other second.

Promises
    - whatever comes, memory is bounded: a ring of events, a few hundred rows of each list;
    - a list rests two hundred times as long as it took to answer before it is asked for again, so
      a busy project costs its daemon a small part of its time, however it is looked at;
    - when the daemon goes, what is shown stays, and says so; streams go on where they were.
"""

import time
from collections import deque
from functools import partial

import anyio
from anyio.abc import TaskGroup
from msgspec import Raw, structs

from icctl.api import AsyncClient, Error
from icd.app.invocation import World
from icd.features.daemon.report import Report
from icd.features.events.store import Event
from icd.top import head, tabs, work
from icd.top.head import Figures
from icd.top.projects import MOST, Choice, Project, names
from icd.top.rows import Row, Tab, converse_beside
from icd.top.tabs import TABS

# Events that are kept, of all projects; and of each when it is first seen.
RING, BACKLOG = 2000, 100
# Of a payload; a detail asks for all of it.
PAYLOAD_BYTES = 2000
# How often the daemon is asked for its figures, and files are looked at.
STATUS_SECONDS = 2.0
STATES = {
    "no_daemon": "no daemon, looking for it",
    "deadline_exceeded": "the daemon does not answer",
}
# After a failure, such as a daemon that is gone.
RETRY_SECONDS = 0.5
# Between two questions for the same list; see the promises.
LEAST_SECONDS, MOST_SECONDS, RATIO = 0.5, 3.0, 200


class Feed:
    """`generation` grows with whatever is new; `state` is empty while the daemon answers."""

    def __init__(self, world: World, choice: Choice) -> None:
        self.generation = 0
        self.state = "looking for the daemon"
        self.report: Report | None = None
        self.figures: Figures | None = None
        self.projects: list[Project] = []
        self.names: dict[Project, str] = {}
        self.troubles: dict[Project, Error] = {}
        self.heard = 0  # events, since the start
        self._world = world
        self._choice = choice
        self._events: deque[Row] = deque(maxlen=RING)
        self._rows: dict[tuple[str, Project], list[Row]] = {}
        self._beside: dict[str, list[Row]] = {}
        self._shown = TABS[0]
        self._wanted: dict[Project, anyio.Event] = {}
        self._moved = anyio.Event()  # to another tab
        self._hearing: dict[Project, anyio.CancelScope] = {}
        self._following: dict[Project, anyio.CancelScope] = {}
        self._asked_at = 0.0

    # --- for the page ---

    def show(self, tab: Tab) -> None:
        """Ask for the rows of this tab from now on."""
        self._shown = tab
        self._moved.set()
        self._moved = anyio.Event()
        if tab.find is None:  # what else is written is of no concern
            for scope in self._hearing.values():
                scope.cancel()
        self.look_again()

    def look_again(self) -> None:
        for project in self.projects:
            self._touch(project)

    def rows(self, tab: Tab) -> list[Row]:
        if tab.of_report is not None:
            return [] if self.report is None else tab.of_report(self.report)
        if tab.find is None:
            return tabs.in_order(reversed(self._events), tab)
        listed = [row for each in self.projects for row in self._rows.get((tab.name, each), [])]
        return listed + self._beside.get(tab.name, [])

    def is_known(self, tab: Tab) -> bool:
        """Whether there was an answer: an empty list is none before."""
        if tab.find is None:
            return self.report is not None or bool(self._events)
        return not self.projects or any((tab.name, each) in self._rows for each in self.projects)

    # --- tasks ---

    async def run(self) -> None:
        """Until it is cancelled."""
        async with anyio.create_task_group() as tasks:
            self._follow_all(tasks, None)
            tasks.start_soon(self._watch_daemon, tasks)
            tasks.start_soon(self._look_beside)

    def _follow_all(self, tasks: TaskGroup, report: Report | None) -> None:
        wanted = self._choice.among(report)
        for project in [each for each in self.projects if self._is_gone(each, wanted)]:
            self._leave(project)  # it was deleted, or moved away
        for project in wanted:
            if project not in self.projects and len(self.projects) < MOST:
                self._wanted[project] = anyio.Event()
                self.projects.append(project)
                tasks.start_soon(self._follow, project)
        self.names = names(self.projects)

    def _is_gone(self, project: Project, wanted: list[Project]) -> bool:
        return project in self.troubles and project not in wanted

    def _leave(self, project: Project) -> None:
        self._following[project].cancel()
        self.projects.remove(project)
        for kept in (self.troubles, self._wanted, self._hearing):
            kept.pop(project, None)
        self._rows = {at: rows for at, rows in self._rows.items() if at[1] != project}
        self._events = deque((r for r in self._events if r.project != project), maxlen=RING)

    async def _watch_daemon(self, tasks: TaskGroup) -> None:
        async with self._choice.async_client(None) as client:
            while True:
                try:
                    report = await client.icd.status()
                except Error as exc:
                    self.state = STATES.get(exc.name, exc.name)
                else:
                    self._take(report)
                    self._follow_all(tasks, report)
                self.generation += 1
                await anyio.sleep(RETRY_SECONDS if self.state else STATUS_SECONDS)

    def _take(self, report: Report) -> None:
        now = time.monotonic()
        self.figures = head.figures(report, self.report, now - self._asked_at)
        self.report, self._asked_at, self.state = report, now, ""

    async def _follow(self, project: Project) -> None:
        with anyio.CancelScope() as self._following[project]:
            await self._follow_until_it_goes(project)

    async def _follow_until_it_goes(self, project: Project) -> None:
        async with (
            self._choice.async_client(project) as client,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(self._follow_log, client, project)
            tasks.start_soon(self._follow_writes, client, project)
            tasks.start_soon(self._refresh, client, project)

    # --- the log ---

    async def _follow_log(self, client: AsyncClient, project: Project) -> None:
        while True:
            try:
                batch = await client.events.tail(newest=BACKLOG)
                self._begin(project, batch.events)
                async with client.events.watch(since=batch.through) as news:
                    async for event in news:
                        self._hear(project, event)
            except Error as exc:  # such as of a database that was replaced
                self._fail(project, exc)
            await anyio.sleep(RETRY_SECONDS)

    def _begin(self, project: Project, events: list[Event]) -> None:
        """What is known of the log is read anew; it may be another one."""
        kept = [row for row in self._events if row.project != project]
        kept += [_event(project, event) for event in events]
        self._events = deque(tabs.in_order(kept, TABS[0])[::-1], maxlen=RING)
        self._succeed(project)

    def _hear(self, project: Project, event: Event) -> None:
        self.heard += 1
        self._events.append(_event(project, event))
        self.generation += 1

    # --- lists ---

    async def _follow_writes(self, client: AsyncClient, project: Project) -> None:
        while True:
            if self._shown.find is None:
                await self._moved.wait()
                continue
            with anyio.CancelScope() as self._hearing[project]:
                try:
                    async with client.db.watch() as news:
                        async for _written in news:
                            self._touch(project)
                except Error:  # also of an older daemon, which cannot tell
                    self._touch(project)
                await anyio.sleep(STATUS_SECONDS)

    def _touch(self, project: Project) -> None:
        if project in self._wanted:
            self._wanted[project].set()

    async def _refresh(self, client: AsyncClient, project: Project) -> None:
        while True:
            await self._wanted[project].wait()
            self._wanted[project] = anyio.Event()
            tab, moved, began = self._shown, self._moved, time.monotonic()
            if tab.find is None:
                continue
            try:
                self._replace(tab, project, await converse_beside(client, tab.find(project)))
            except Error as exc:
                self._fail(project, exc)
            took = time.monotonic() - began
            with anyio.move_on_after(min(max(LEAST_SECONDS, took * RATIO), MOST_SECONDS)):
                await moved.wait()

    def _replace(self, tab: Tab, project: Project, rows: list[Row]) -> None:
        if tab.beside is not None:  # what files say is looked at again a little later
            known = {row.key: row.more for row in self._rows.get((tab.name, project), [])}
            for row in rows:
                row.more = known.get(row.key)
        self._rows[tab.name, project] = rows
        self._succeed(project)

    async def _look_beside(self) -> None:
        """At files, which push nothing, and cost the daemon nothing."""
        while True:
            tab, moved = self._shown, self._moved
            if tab.beside is not None:
                listed = [r for each in self.projects for r in self._rows.get((tab.name, each), [])]
                look = partial(tab.beside, self._world, listed)
                self._beside[tab.name] = await anyio.to_thread.run_sync(look)
                self.generation += 1
            with anyio.move_on_after(STATUS_SECONDS / 2):
                await moved.wait()

    def _fail(self, project: Project, error: Error) -> None:
        if project in self.projects:
            self.troubles[project] = error
        self.generation += 1

    def _succeed(self, project: Project) -> None:
        self.troubles.pop(project, None)
        self.generation += 1


def _event(project: Project, event: Event) -> Row:
    if isinstance(event.payload, Raw) and len(bytes(event.payload)) > PAYLOAD_BYTES:
        event = structs.replace(event, payload=Raw(bytes(event.payload)[:PAYLOAD_BYTES]))
    return work.event(project, event)
