"""Which projects are meant: one that the user names, or all that the user's daemon has open."""

import os

from msgspec import Struct

from icctl.api import AsyncClient, Client
from icctl.api.requests import Mode
from icd.db import paths
from icd.db.paths import DIRECTORY, FILE, Where
from icd.errors import BadPath, NoDatabase
from icd.features.daemon.report import Report
from icd.printable import spelled

# That are followed at once, each by two streams: the busiest ones.
MOST = 16


class Project(Struct, frozen=True):
    """`database`: its file, under the path that the daemon has it open by."""

    database: str

    @property
    def directory(self) -> str:
        above, name = os.path.split(os.path.dirname(self.database))
        return above if name == DIRECTORY else os.path.join(above, name)

    @property
    def where(self) -> Where:
        usual = os.path.join(self.directory, DIRECTORY, FILE)
        return Where(self.directory, None if usual == self.database else self.database)

    @property
    def name(self) -> str:
        return spelled(os.path.basename(self.directory)) or "/"


class Choice(Struct, frozen=True):
    """`own`: the project of the caller, if it has one; `is_only`: no other is wanted."""

    own: Project | None
    is_only: bool
    # How projects are asked; None: through the daemon, else in this process.
    mode: Mode | None = None

    def among(self, report: Report | None) -> list[Project]:
        """The caller's own first, then the others that the daemon has open, the busiest first."""
        found = [] if self.own is None else [self.own]
        if not self.is_only and report is not None:
            busy = sorted(report.databases, key=lambda each: (-each.calls, each.path))
            found += [each for row in busy if (each := Project(row.path)) != self.own]
        return found[:MOST]

    def client(self, project: Project | None) -> Client:
        directory, database = _target(project)
        return Client(directory, db=database, mode=self.mode)

    def async_client(self, project: Project | None) -> AsyncClient:
        directory, database = _target(project)
        return AsyncClient(directory, db=database, mode=self.mode)


def _target(project: Project | None) -> tuple[str, str | None]:
    """A directory, and its database if that lies elsewhere; None: it is about the daemon only."""
    if project is None:
        return "/", None
    where = project.where
    return where.cwd, where.db


def choose(where: Where, given: str | None, *, no_daemon: bool) -> Choice:
    """`given`: the directory that the user named."""
    if given is not None:
        if not os.path.isdir(given):
            raise BadPath(f"there is no directory {given}", hint="check --project")
        where = Where(given, where.db)
    is_only = given is not None or where.db is not None
    try:
        own = Project(paths.canonical(paths.resolve(where)))
    except NoDatabase:
        if is_only or no_daemon:
            raise
        own = None
    return Choice(own, is_only, "direct" if no_daemon else None)


def names(projects: list[Project]) -> dict[Project, str]:
    """What each is called: as short as tells them apart."""
    short = [each.name for each in projects]
    return {
        each: each.name if short.count(each.name) == 1 else spelled(each.directory)
        for each in projects
    }
