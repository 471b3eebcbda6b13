"""A line of a list, and how what a tab shows is asked for.

The steps of a tab yield the calls that they wait for, and are sent a result or an error for each:
the page sends them through a client that waits beside others, `--once` through one that blocks.
"""

from collections.abc import Callable, Generator
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from icctl.api import Client, Error
from icctl.api.awaiting import AsyncClient
from icctl.api.requests import Reply
from icd.app.invocation import World
from icd.app.verb import Column, Table
from icd.features.daemon.report import Report
from icd.top.projects import Project

T = TypeVar("T")

# A method and its parameters; what answers it is a result or an Error.
Asked = tuple[str, dict[str, Any]]
Steps = Generator[list[Asked], list[Any], T]
# Asks a method, and waits; what goes wrong is raised.
Ask = Callable[[str, dict[str, Any]], Any]

# Of each list of a project: what a person scrolls through, and a daemon answers in milliseconds.
MOST = 200

# Of the text that is searched, for each column: a payload may be a megabyte.
SOUGHT_CHARACTERS = 2000
# What is shown of these is not what they are.
NOT_SOUGHT = ("age", "until", "elapsed", "span", "score")


class Row(Struct):
    """`of` is what the method answers; `more` what was found out about it beside that.

    `key` tells rows of a list apart, over time.
    """

    project: Project | None
    key: tuple[Any, ...]
    of: Any
    more: Any = None
    sought: str | None = None


class Action(Struct, frozen=True):
    """What can be done to a row, once a person has confirmed it.

    `fits`: why not, or nothing.  `act` blocks, and says what was done.
    """

    key: str
    word: str
    question: Callable[[Row], str]
    act: Callable[[World, Ask, Row], str]
    fits: Callable[[Row], str] = lambda _row: ""


class Tab(Struct, frozen=True):
    """`find` asks a project for rows; `beside` adds what no method tells, and may read files."""

    name: str
    short: str
    table: Table
    find: Callable[[Project], Steps[list[Row]]] | None = None
    beside: Callable[[World, list[Row]], list[Row]] | None = None  # further rows
    of_report: Callable[[Report], list[Row]] | None = None
    actions: tuple[Action, ...] = ()
    wide: tuple[Column, ...] = ()  # further columns, where there is room


def field_of(name: str) -> Callable[[Row], Any]:
    """A field of what a row is about."""
    return lambda row: getattr(row.of, name)


def required(answer: Any) -> Any:
    if isinstance(answer, Error):
        raise answer
    return answer


def _outcomes(calls: list[Reply[Any]]) -> list[Any]:
    return [call.result() if call.error is None else call.error for call in calls]


def converse(client: Client, steps: Steps[T]) -> T:
    """Take all steps, and wait for each."""
    try:
        asked = next(steps)
        while True:
            calls = [client.prepare(name, params) for name, params in asked]
            client.carry_out(calls, None)
            asked = steps.send(_outcomes(calls))
    except StopIteration as done:
        found: T = done.value
        return found


async def converse_beside(client: AsyncClient, steps: Steps[T]) -> T:
    """The same, while others go on."""
    try:
        asked = next(steps)
        while True:
            calls = [client.prepare(name, params) for name, params in asked]
            await client.carry_out(calls, None)
            asked = steps.send(_outcomes(calls))
    except StopIteration as done:
        found: T = done.value
        return found


# --- what a person looks for ----------------------------------------------------------------------


def matching(words: str) -> Callable[[str], bool]:
    """All words must be there; those behind a `!` must not."""
    given = words.lower().split()
    wanted = [word for word in given if not word.startswith("!")]
    refused = [word[1:] for word in given if word.startswith("!") and word != "!"]

    def matches(text: str) -> bool:
        return all(word in text for word in wanted) and not any(word in text for word in refused)

    return matches


def sought(row: Row, table: Table) -> str:
    """The text of a row that a filter looks at, made once."""
    if row.sought is None:
        words = (_text(c.of, row) for c in table.columns if c.kind not in NOT_SOUGHT)
        row.sought = "\n".join(words).lower()
    return row.sought


def _text(of: str | Callable[[Any], Any], row: Row) -> str:
    value = of(row) if callable(of) else getattr(row.of, of)
    if isinstance(value, msgspec.Raw):
        return bytes(value)[:SOUGHT_CHARACTERS].decode("utf-8", "replace")
    return str(value)[:SOUGHT_CHARACTERS]
