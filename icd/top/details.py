"""What is shown of one row: what its command shows, and what belongs to it.

A detail is asked for like a list; what comes of it draws itself on a screen of any width.
"""

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Raw

from icd.app import registry
from icd.app.human.screen import Screen
from icd.app.human.text import clean
from icd.app.invocation import World
from icd.app.verb import Card, Column, Table
from icd.errors import IcError
from icd.features.dispatches import logs
from icd.features.events.store import Event
from icd.top.rows import Row, Steps, Tab, required
from icd.top.work import is_trusted

Drawn = Callable[[Screen], Iterable[str]]

EVENT = Card(
    Column("Event", "seq", "number"),
    Column("When", lambda e: e.at_ms // 1000, "age"),
    Column("Source", "source"),
    Column("Type", "type"),
    Column("Run", "run_id", "id"),
    Column("About", "subject_id", "id"),
    Column("From", "from_state"),
    Column("To", "to_state"),
    Column("Reason", "reason"),
    Column("Session", "session"),
    Column("Process", "pid"),
    Column("User", "uid"),
    Column("Project", "project_dir", "path"),
    Column("Trace", "trace_id"),
    Column("Key", "idempotency_key"),
)
FAILURE = Card(
    Column("Script", "caller"),
    Column("Call", "method"),
    Column("Times", "count", "number"),
    Column("Last", "last_at", "age"),
    Column("Error", "error"),
    Column("Sentence", "sentence"),
)
SENTINEL = Card(
    Column("Sentinel", "name"),
    Column("Scope", "scope_id"),
    Column("Fired", "last_fired", "age"),
    Column("Interval", lambda s: None if s.once else s.interval, "span"),
    Column("May fire", lambda s: None if s.once else s.last_fired + s.interval, "until"),
    Column("Once", lambda s: "yes: it fires again only after a reset" if s.once else None),
)
HELD = Card(
    Column("Kind", "kind"),
    Column("What", "what"),
    Column("Holder", "holder"),
    Column("Alive", "alive", "state"),
    Column("Since", lambda h: h.since or None, "age"),
    Column("Expires", "expires", "until"),
    Column("Why", "why"),
    Column("Process", lambda h: h.pid),
    Column("Session", lambda h: h.session),
    Column("Token", lambda h: getattr(h.of, "token", None)),
)
SESSION = Card(
    Column("Session", "session_id"),
    Column("Agent", "agent_type"),
    Column("Model", "model"),
    Column("Directory", "project_dir"),
    Column("Started", "started_at", "age"),
    Column("Ended", "ended_at", "age"),
    Column("Input", "input_tokens", "number"),
    Column("Output", "output_tokens", "number"),
    Column("Cache read", "cache_read_tokens", "number"),
    Column("Cache made", "cache_creation_tokens", "number"),
    Column("Metadata", "metadata"),
)
# What else a command shows, by tab.
_COMMANDS = {
    "Runs": ("run snapshot", "run.snapshot", "run_id"),
    "Dispatches": ("dispatch status", "dispatch.get", "id"),
    "Discoveries": ("discovery status", "discovery.get", "id"),
}
_CARDS = {"Sentinels": SENTINEL, "Held": HELD, "Sessions": SESSION, "Failures": FAILURE}
OUTPUT_LINES = 12  # that a small screen has room for, below the card


def title(tab: Tab, row: Row) -> str:
    return clean(f"{tab.name}: {' '.join(str(part) for part in row.key[1:])}")


def find(world: World, tab: Tab, row: Row) -> Steps[Drawn]:
    """What to draw of a row; what it says is asked anew."""
    if tab.name in _COMMANDS:
        command, method, parameter = _COMMANDS[tab.name]
        (found,) = yield [(method, {parameter: row.of.id})]
        human = registry.commands()[command].row.human
        output = _output(world, row) if tab.name == "Dispatches" else []
        return lambda screen: [*_shown(screen, human, required(found)), *output]
    if tab.name == "State":
        name = {"key": row.of.key, "scope_id": row.of.scope_id}
        (found,) = yield [("state.get", name)]
        return lambda screen: _document(screen, required(found))
    yield from ()
    if tab.name == "Events":
        return lambda screen: _event(screen, row.of)
    return lambda screen: screen.show(_CARDS[tab.name], row.of)


def _shown(screen: Screen, human: Any, found: Any) -> Iterable[str]:
    if found is None:
        return screen.hint("It is not there any more.")
    if isinstance(human, Card | Table):
        return screen.show(human, found)
    drawn: Iterable[str] = human(found, None, screen)
    return drawn


def _document(screen: Screen, found: Any) -> Iterable[str]:
    from icd.features.state.verbs import META

    if found is None:
        return screen.hint("The row is not there any more.")
    return [*screen.show(META, found), "", *screen.document(found.payload)]


def _event(screen: Screen, event: Event) -> Iterable[str]:
    yield from screen.show(EVENT, event)
    if isinstance(event.payload, Raw):
        yield ""
        yield from screen.document(event.payload)


def _output(world: World, row: Row) -> list[str]:
    """What an agent printed, of a database that is trusted."""
    if not row.of.output_file or not is_trusted(world, row):
        return []
    try:
        found = logs.last_lines(row.of.output_file, OUTPUT_LINES)
    except IcError as exc:
        return ["", clean(exc.message)]
    return ["", *map(clean, found), f"… icctl dispatch logs {clean(row.of.id)}"] if found else []
