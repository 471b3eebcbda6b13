"""The engine that is a server: one project's tables there, and the file here that names them.

Invariants
    - nothing is decided here while the server is away: there is no other place to write to;
    - a connection that is lost is made anew, and what was begun on it is begun again only if no
      COMMIT was sent;
    - a server that cannot be reached is not asked again for a moment, so that the calls that wait
      are told together;
    - what others wrote is noticed at the beginning of every transaction.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, cast

from icd.db import migrate, permissions
from icd.db.database import Database, Debt, identity
from icd.db.postgres import connect, schema
from icd.errors import IcError, NoDatabase, OnServer, StoreUnreachable

if TYPE_CHECKING:
    from icd.config import Settings
    from icd.db.connection import Connection as OfStores
    from icd.db.postgres.session import Session

# A batch holds the turn of the whole fleet, and each of its calls takes a few trips to the server.
BATCH_SECONDS = 0.05
# After a failure to connect, the next calls are told the same for so long.
PAUSE_SECONDS = 0.5
OPENING_SECONDS = 10.0


class Shared:
    """One project on a server.  `path` is the file that stands for it on this machine."""

    batch_seconds = BATCH_SECONDS
    steady = False

    def __init__(
        self, path: str, settings: Settings, store: str, project: str, *, careful: bool = False
    ) -> None:
        self.path = path
        self.settings = settings
        self.store = store
        self.project = project
        self.careful = careful  # a host that keeps it open tries the server's locks first
        self.stop_at = math.inf
        self.reopened = 0
        self.notes: list[str] = []
        self.debt: Debt | None = None
        self.incidents: list[str] = []
        self.identity: tuple[int, int] | None = None
        self._session: Session | None = None
        self._deadline = math.inf
        self._refused: tuple[float, IcError] | None = None

    @property
    def is_open(self) -> bool:
        return self._session is not None

    @property
    def foreign(self) -> int:
        return 0 if self._session is None else self._session.foreign

    @property
    def waited_ms(self) -> float:
        return 0.0 if self._session is None else self._session.waited_ms

    @property
    def signal(self) -> int | None:
        """A descriptor that can be read when another host wrote, or the connection is gone."""
        session = self._session
        return session.socket if session is not None and not session.lost else None

    @contextmanager
    def hold(self, deadline: float, *, create: bool = False) -> Iterator[None]:  # noqa: ARG002
        """Nothing is held here: a turn is taken where the tables are, by `begin`."""
        if not self.is_open:
            permissions.refuse_others(os.path.dirname(self.path))
        self._deadline = deadline
        yield

    def connection(self, *, create: bool = False) -> OfStores:
        found = identity(self.path)
        if found is None:
            self.close()
            raise NoDatabase(f"no database at {self.path}")
        if found != self.identity:
            self.close()  # whoever put another file there has to be trusted anew
        if self._session is None:
            self._session = self._open(create=create)
            self.identity = found
        # The stores declare the connection of SQLite; this one has the same shape.
        return cast("OfStores", self._session)

    def _open(self, *, create: bool) -> Session:
        session = self._connected()
        try:
            if self.careful:
                until = self._until()
                connect.probe(session, self.store, self.project, deadline=until)
            self._bring_up_to_date(session, create=create)
            if self.careful:
                session.listen()
        except BaseException:
            session.close()
            raise
        session.bounds.end()
        return session

    def _bring_up_to_date(self, session: Session, *, create: bool) -> None:
        """Most find a schema that is current, and only read its number."""
        session.bounds.stop_at = self._until()
        if schema.version(session) != migrate.LATEST:
            session.begin(write=True)
            schema.bring_up_to_date(session, create=create, now_ms=session.now_ms)
            session.commit()
        session.has_tables = True

    def _connected(self) -> Session:
        if self._refused is not None and time.monotonic() < self._refused[0]:
            raise self._refused[1]
        try:
            return connect.connect(self.store, self.project, deadline=self._until())
        except StoreUnreachable as exc:
            self._refused = time.monotonic() + PAUSE_SECONDS, exc
            raise

    def _until(self) -> float:
        return min(self._deadline, self.stop_at, time.monotonic() + OPENING_SECONDS)

    # --- transactions ---

    def begin(self, *, write: bool, deadline: float, now_ms: Callable[[], int]) -> int:  # noqa: ARG002
        """Take a turn, or a snapshot; the time is the server's."""
        session = self._session
        assert session is not None
        self._deadline = deadline
        if not session.lost:
            try:
                return self._begin(session, write=write, deadline=deadline)
            except StoreUnreachable:
                if not session.lost:
                    raise
        # It was lost since the last transaction: nothing of this one has happened.
        session.relink(self._connected())
        return self._begin(session, write=write, deadline=deadline)

    def _begin(self, session: Session, *, write: bool, deadline: float) -> int:
        seconds = deadline - time.monotonic()
        session.take_turn(write=write, seconds=seconds, snapshot=not write)
        return session.now_ms

    def commit(self, *, tells: bool) -> None:
        assert self._session is not None
        self._session.tells = tells
        self._session.commit()

    def roll_back(self) -> None:
        if self._session is not None:
            self._session.give_up()

    def others_wrote(self) -> bool:
        """Always perhaps: what this host remembers of rows may be behind in the next moment."""
        return True

    def is_left_alone(self) -> bool:
        return True

    def time_ms(self, now_ms: Callable[[], int]) -> int:
        """The time of the server, while it can be asked."""
        with suppress(StoreUnreachable):
            self.connection()
            if self._session is not None and not self._session.lost:
                return self._session.ask_time()
        return now_ms()

    # --- upkeep ---

    def look(self) -> None:
        pass

    def tidy(self) -> None:
        """The server does that by itself."""

    def sizes(self) -> tuple[int, int]:
        return 0, 0

    def files(self) -> Database:
        raise OnServer(f"the data of {self.path} is on a server, and this works on a file")

    def told(self) -> list[str]:
        told, self.notes = self.notes, []
        return told

    def owe(self, told: IcError) -> None:
        self.incidents.append(told.message)

    def take_incidents(self) -> list[str]:
        incidents, self.incidents = self.incidents, []
        return incidents

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
        self._session = None
        self.identity = None

    def leave(self) -> None:
        pass
