"""The log for people: a line an event, with when, from where, what, and who.

The columns have the same width in every batch, so that what a follower prints stays in line.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from icd.features.events.store import Batch, Event

if TYPE_CHECKING:
    from icd.app.human.screen import Screen

SOURCE, WHO = 10, 10  # cells; longer ones are cut
LEAST = 16  # of what happened, or who did it goes
EMPTY = "No such events. Record one: icctl events record --source=ci --type=built"


def log(batch: Batch, typed: Any, screen: "Screen") -> list[str]:
    if batch.events:
        return [_line(event, screen) for event in batch.events]
    return [] if typed is not None and typed.follow else screen.hint(EMPTY)


def _line(event: Event, screen: "Screen") -> str:
    from icd.app.human import kinds, text

    when = kinds.date(event.at_ms / 1000, screen.clock.offset)
    when = when if screen.clock.absolute else when[5:]  # what is looked at is of these days
    source = text.cut(text.clean(event.source), SOURCE)
    who = text.cut(text.clean(event.session or (f"pid {event.pid}" if event.pid else "")), WHO)
    room = screen.width - len(when) - SOURCE - 4
    if who and room - text.width(who) - 2 < LEAST:
        who = ""
    what = text.clean(" ".join(filter(None, _what(event))))
    what = text.cut(what, max(room - (text.width(who) + 2 if who else 0), 0))
    parts = [
        screen.paint(when, kinds.DIM),
        screen.paint(text.pad(source, SOURCE), kinds.CYAN),
        what,
        screen.paint(who, kinds.DIM) if who else "",
    ]
    return "  ".join(filter(None, parts))


def _what(event: Event) -> Iterator[str]:
    yield event.type
    yield event.run_id
    yield event.subject_id if event.subject_id != event.run_id else ""
    if event.from_state or event.to_state:
        yield f"{event.from_state or '·'} → {event.to_state or '·'}"
    payload = bytes(event.payload) if isinstance(event.payload, Raw) else b""
    yield event.reason or payload.decode("utf-8", "replace")
