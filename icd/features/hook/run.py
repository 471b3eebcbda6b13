"""hook run: whether a hook's command runs now, and running it.

When → debounce → serial → claim → COMMAND, in this order: what costs nothing is asked first, and a
claim is made only by one who then runs.  The claim is a sentinel's, so one of all who ask wins it;
the lock is that of `hold`, so it belongs to the command itself and ends with it.

Without an option that throttles nothing of ours can fail: the command always runs.
"""

import os
import time
from collections.abc import Callable
from fnmatch import fnmatchcase

from msgspec import Struct

from icd import files
from icd.app.invocation import SESSION_VARIABLES, Caller, Output, World, advice
from icd.db import paths
from icd.db.paths import Where
from icd.errors import IcError, LockHeld, UnreadableInput
from icd.features.hook import event as events
from icd.features.hook.event import Event
from icd.features.hook.tickets import Tickets, state_home
from icd.features.locks import directory
from icd.features.locks.hold import Child, take
from icd.features.sentinels.verbs import Check, Checked
from icd.printable import escaped

LOG = "hook.log"
LINE_CHARACTERS = 1000
# As long as the most patient agent waits for its hook; it ends a hook that takes longer.
PATIENCE_MS = 10 * 60 * 1000
BLOCKED = 2  # the exit status by which an agent knows that it may not go on

Condition = tuple[str, list[str]]


class Wish(Struct):
    """What the options say; None and empty: they do not."""

    command: tuple[str, ...]
    name: str
    scope: str | None
    interval_s: int | None
    serial: str | None
    skip: bool
    debounce_ms: int | None
    when: list[Condition]
    fail_closed: bool


class Hook:
    """One call of a hook."""

    def __init__(self, world: World, wish: Wish, ask: Caller) -> None:
        self._world = world
        self._wish = wish
        self._ask = ask
        self._event = Event()

    def run(self) -> Output:
        try:
            self._read()
            admitted = self._admit()
        except (IcError, OSError) as exc:
            return self._failed(exc)
        if admitted is None:
            return Output(0)
        child, afterwards = admitted
        return Output(child.run(afterwards), borrowed=True)

    def _read(self) -> None:
        data = events.take()
        found = Event() if data == b"" else events.read(data) if data else None
        if found is None and self._wish.when and self._wish.fail_closed:
            raise UnreadableInput("the event on stdin is too long, or is not JSON", hint="")
        self._event = found or Event()
        env = self._world.env
        known = next(filter(None, map(env.get, SESSION_VARIABLES)), "")
        self._event.session = self._event.session or known
        os.environ.update(self._event.environment())
        self._world.where = Where(self._project(), self._world.db, env.get("INTERCORE_DB"))

    def _project(self) -> str:
        given = (self._event.cwd, self._world.env.get("CLAUDE_PROJECT_DIR", ""))
        found = (path for path in given if path.startswith("/") and os.path.isdir(path))
        return next(found, self._world.cwd)

    def _admit(self) -> tuple[Child, Callable[[], None]] | None:
        """The process that may become the command, and what is to be done after it."""
        wish = self._wish
        if not all(matches(self._event, *condition) for condition in wish.when):
            return None
        if wish.debounce_ms is not None and not self._is_last(wish.debounce_ms):
            return None
        child = Child([*wish.command])
        afterwards = _nothing
        if wish.serial is not None:
            try:
                afterwards = self._take(wish.serial, child)
            except LockHeld:
                if wish.skip:
                    return None
                raise
        try:
            if wish.interval_s is None or self._claim(wish.interval_s):
                return child, afterwards
        except BaseException:
            _leave(child, afterwards)
            raise
        _leave(child, afterwards)
        return None

    def _is_last(self, debounce_ms: int) -> bool:
        scope = self._scope(self._wish.scope or "session")
        return Tickets(self._world.env).is_last(self._wish.name, scope, debounce_ms / 1000)

    def _take(self, name: str, child: Child) -> Callable[[], None]:
        wait_ms = 0 if self._wish.skip else self._world.timeout_ms or PATIENCE_MS
        deadline = time.monotonic() + wait_ms / 1000
        try:
            place = directory.place(self._world.env)
        except BaseException:
            child.dismiss()
            raise
        scope = self._scope(self._wish.scope or "project")
        return take(place, f"hook-{name}", scope, child, deadline=deadline)

    def _claim(self, interval_s: int) -> bool:
        wish, name = self._wish, f"hook-{self._wish.name}"
        if wish.scope == "user":  # no database of a project is the user's
            now_ms = time.time_ns() // 1_000_000
            return Tickets(self._world.env).claim(wish.name, interval_s, now_ms=now_ms)
        scope = "project" if wish.scope == "project" else self._scope(wish.scope or "session")
        found: Checked = self._ask("sentinel.check", Check(name, scope, interval_s))
        return found.allowed

    def _scope(self, kind: str) -> str:
        """Where others are meant, too, in places that know of no project."""
        if kind == "project":
            return f"p-{events.hashed(paths.project_identity(self._world.where.cwd))}"
        if kind == "file":
            return events.file_scope(self._event)
        return "user" if kind == "user" else events.session_scope(self._event)

    def _failed(self, exc: IcError | OSError) -> Output:
        """A failure of ours: no reason to stop an agent, unless it was said to be one."""
        told = f"{exc.filename}: {exc.strerror}" if isinstance(exc, OSError) else exc.message
        if isinstance(exc, IcError) and exc.hint:
            told = f"{told}; {advice(self._world.program, exc.hint)}"
        if self._wish.fail_closed:
            text = f"{self._world.program}: hook {self._wish.name} fails closed: {told}\n"
            return Output(BLOCKED, b"", text.encode("utf-8", "backslashreplace"), borrowed=True)
        note(self._world, self._wish.name, told)
        return Output(0)


def _nothing() -> None:
    """There is no lock."""


def _leave(child: Child, afterwards: Callable[[], None]) -> None:
    child.dismiss()
    afterwards()


def note(world: World, name: str, told: str) -> None:
    """Leave a line in the user's log; where that cannot be, there is none to tell."""
    clock = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    line = escaped(f"{clock} hook {name}: {told}")[:LINE_CHARACTERS] + "\n"
    try:
        path = f"{state_home(world.env)}/{LOG}"
    except IcError:
        return
    files.append_log(path, line.encode("utf-8", "backslashreplace"))


def matches(event: Event, key: str, globs: list[str]) -> bool:
    """Whether a field is there, and fits one of the globs; both are bytes, as Latin-1."""
    value = {
        "tool": event.tool,
        "path": event.file,
        "event": event.event,
        "agent": event.agent,
    }[key]
    told = os.fsencode(value).decode("latin-1")
    last = told.rpartition("/")[2] if key == "path" else told
    return told != "" and any(fnmatchcase(told, g) or fnmatchcase(last, g) for g in globs)
