"""Where a stream is: what it asks next, so that it goes on after a break with nothing missed.

A notification says what is new; a place makes of it what the caller gets, and notes how far that
is.  The daemon remembers nothing: on another connection, of another daemon or without one, the same
question goes on from the same place.
"""

import time
from collections import deque
from collections.abc import Mapping
from typing import Any, NoReturn

import msgspec

from icctl.api import here
from icctl.api.errors import from_error
from icctl.api.requests import Reply, Response, Target, spec
from icd.app.invocation import LOOK_AGAIN_SECONDS
from icd.errors import NoDaemon
from icd.features.database.watch import Written
from icd.features.dispatches.store import Dispatch
from icd.features.events.store import Batch, Event
from icd.features.events.watch import Appended
from icd.features.state.watch import Changed, Gone

# Notifications have the id of their request beside their own fields; some of them have an `id`,
# too, and both must be texts.
TAG = b'"stream"'
# Between a break and the next question.
BREAK_SECONDS = 0.05
# After these the same question goes on; any other error is the end.
PASSING = frozenset({"slow_consumer", "overloaded", "locked", "deadline_exceeded"})


class Place:
    """The question of a stream, and what was found and not handed out yet."""

    news: Any

    def __init__(self, name: str, params: Mapping[str, Any], target: Target) -> None:
        self.found: deque[Any] = deque()
        self.is_closed = False
        self._spec = spec(name)
        self._params = dict(params)
        self._target = target
        self._is_first = True
        self._absent_since = 0.0

    def question(self) -> Reply[Any]:
        return Reply(self._spec, self._params, self._target, None)

    def hear(self, response: Response) -> bool:
        """Take what the daemon says; False: this answer was its last, ask again."""
        if response.method:
            self._absent_since = 0.0
            self._read(response.params)
            return True
        call = self.question()
        call.take(response)
        if call.error is not None:
            self._pass_over(call)
        return False

    def look(self, limit: float) -> float:
        """Look without a daemon; how long to wait until the next look."""
        call = self.question()
        answer = here.ask(call, self._target, time.monotonic() + limit)
        if answer.error is not None:
            call.fail(answer.error)
            self._pass_over(call)
            return BREAK_SECONDS
        if self._is_first or not answer.result.is_empty:
            self._read(msgspec.json.encode(answer.result.news))
        after_ms = answer.result.patience_ms
        return LOOK_AGAIN_SECONDS if after_ms is None else min(after_ms / 1000, LOOK_AGAIN_SECONDS)

    def miss(self, limit: float) -> float:
        """There is no daemon, and there must be one; how long to wait until it is asked again."""
        now = time.monotonic()
        self._absent_since = self._absent_since or now
        if now - self._absent_since > limit:
            self.is_closed = True
            raise from_error(NoDaemon("no daemon is running, and the mode is daemon"))
        return BREAK_SECONDS

    def misread(self) -> NoReturn:
        """What was said is not of our protocol."""
        call = self.question()
        call.misread()
        self.is_closed = True
        assert call.error is not None
        raise call.error

    def _pass_over(self, call: Reply[Any]) -> None:
        assert call.error is not None
        if self._is_first or call.error.name not in PASSING:
            self.is_closed = True
            raise call.error

    def _read(self, news: bytes | msgspec.Raw) -> None:
        self.found += self._take(msgspec.json.decode(news, type=self.news))
        self._is_first = False

    def _take(self, news: Any) -> list[Any]:
        """What the caller gets of a notification."""
        raise NotImplementedError


class EventPlace(Place):
    news = Appended

    def _take(self, news: Appended) -> list[Any]:
        self._params["since"] = news.seq
        return [*news.events]


class StatePlace(Place):
    news = Changed

    def _take(self, news: Changed) -> list[Any]:
        known = dict(self._params.get("known") or {})
        known |= {row.scope_id: row.version for row in news.rows}
        for scope_id in news.gone:
            known.pop(scope_id, None)
        self._params["known"] = known
        gone, scope = news.gone, self._params.get("scope_id")
        if self._is_first and scope is not None and not (news.rows or gone):
            gone = [scope]  # a watched row that is not there is news at the start
        return [*news.rows, *(Gone(news.key, scope_id) for scope_id in gone)]


class DispatchPlace(Place):
    news = Dispatch

    def _take(self, news: Dispatch) -> list[Any]:
        is_new = self._is_first or news.version != self._params.get("version")
        self._params["version"] = news.version
        return [news] if is_new else []


class WritePlace(Place):
    news = Written

    def _take(self, news: Written) -> list[Any]:
        return [news]


PLACES = {
    "events.watch": EventPlace,
    "state.watch": StatePlace,
    "dispatch.watch": DispatchPlace,
    "db.watch": WritePlace,
}


class Bookmark:
    """How far a consumer is: an event is done once the next one is asked for."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        self.params = dict(params)
        self.done = 0  # the last event that the caller is done with
        self.acknowledged = 0
        self.is_closed = False
        self._found: deque[Event] = deque()
        self._shown: Event | None = None

    def turn(self) -> Event | None:
        """The next event; None: ask for more, and acknowledge up to `done`."""
        if self._shown is not None:
            self.done, self._shown = self._shown.seq, None
        if self._found:
            self._shown = self._found.popleft()
        return self._shown

    def question(self) -> dict[str, Any]:
        is_owed = self.done > self.acknowledged
        return {**self.params, "acked": self.done if is_owed else None}

    def fill(self, batch: Batch) -> None:
        self.acknowledged = self.done
        self._found += batch.events

    def news_after(self, batch: Batch) -> dict[str, Any]:
        """What to wait for."""
        wanted = {name: self.params.get(name) for name in ("run_id", "source", "type")}
        return {**wanted, "since": batch.through}

    def receipt(self) -> dict[str, Any] | None:
        """What is still to be acknowledged at the end."""
        if self.done <= self.acknowledged:
            return None
        named = {name: self.params[name] for name in ("consumer", "run_id")}
        return {**named, "seq": self.done}
