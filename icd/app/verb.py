"""The row of a verb: everything that is known about it, in one place.

A noun's `VERBS` is a literal list of rows, and from a row come the method that hosts run, the
command that people type, its help, its completion, the reference, OpenRPC and its tests.

    Verb      a method and the command that calls it: what is typed are its parameters
    Method    a method without a command of its own
    Command   a command that is not one method: it asks one of several, or acts by itself

Parameters are structs.  `Annotated` says of a field how it is typed (`Argument`, `Option`), its
bounds (msgspec's `Meta`), how a word becomes a value (a `Kind`), and the rules that it must
keep (functions, which run before anything is locked).

Write `VERBS = [...]` without an annotation: with one, mypy would infer Any and check no row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from types import FunctionType, UnionType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Union, get_args, get_origin

from msgspec import Struct

from icd.app.call import Context, Params, Topic, Whole
from icd.app.invocation import Ask, Local, Output, World

P = TypeVar("P", bound=Params)
R = TypeVar("R")
F = TypeVar("F", bound=Struct)

# Of the rows of state, by key and scope, those that a call may change.
Rows = Callable[[Any], tuple[tuple[str, str], ...]] | tuple[()]
# For methods that write, but never to state.
no_rows: Rows = ()


# --- how a field is typed -------------------------------------------------------------------------


class Argument(Struct, frozen=True):
    """A field that is typed as a word in its place; `metavar` is its name in the usage line."""

    metavar: str
    help: str
    # Makes a value of each word, after they were counted; a ValueError is a usage error.
    read: Callable[[str], Any] | None = None
    nargs: int = 1  # -1: as many as are typed
    # The usage line shows it like this, where brackets around the name would not do.
    usage: str | None = None


class Option(Struct, frozen=True):
    """A field that is typed behind a name; of a bool, a switch."""

    name: str
    help: str
    metavar: str | None = None
    aliases: Sequence[str] = ()
    nargs: int = 1
    # Makes the value of what was typed, or of None, where that takes the caller's world.
    resolve: Callable[[World, Any], Any] | None = None
    # The value where only the name is typed; another one follows an equals sign.
    bare: str | None = None
    # A path that is seen from the caller's directory, which is the parameter `cwd`.
    is_from_cwd: bool = False


# --- what a person sees ---------------------------------------------------------------------------


class Column:
    """A column of a list, or a line of a card: its heading, where its value is, and its kind.

    `of` is the name of a field, or a function of the row.  The kinds are those of
    icd/app/human/kinds.py.  A `spare` column may be missing, where there is no room or no value.
    """

    __slots__ = ("head", "kind", "of", "spare")

    def __init__(
        self, head: str, of: str | Callable[[Any], Any], kind: str = "text", *, spare: bool = False
    ) -> None:
        self.head = head
        self.of = of
        self.kind = kind
        self.spare = spare


class Table:
    """A list: a line for each row of the result, or of its field `of`.

    `empty` says what to do next where there is none.  `filtered`: options of the command choose
    among the rows, and are named instead where they leave none.
    """

    __slots__ = ("columns", "empty", "filtered", "of")

    def __init__(
        self, *columns: Column, empty: str = "", of: str = "", filtered: bool = False
    ) -> None:
        self.columns = columns
        self.empty = empty
        self.of = of
        self.filtered = filtered


class Card:
    """A thing: a line for each field that says something, then lists of what belongs to it."""

    __slots__ = ("columns", "empty", "parts")

    def __init__(
        self,
        *columns: Column,
        # Heading, where the rows are, and how they are shown.
        parts: Sequence[tuple[str, str | Callable[[Any], Any], Table]] = (),
        empty: str = "",
    ) -> None:
        self.columns = columns
        self.parts = parts
        self.empty = empty


# --- rows -----------------------------------------------------------------------------------------


class Writes(Struct, frozen=True):
    """What a call may change."""

    # None: it is not known which rows of state.
    rows: Rows | None = None
    # It may append to the log of events.
    appends: bool = False
    # Its first changing statement decides everything: a failure leaves nothing to undo, so a
    # savepoint (a fifth of the cost of a claim) would buy nothing.
    atomic: bool = False
    # A retried write is answered from `app.idempotency`; False where the verb keeps ids itself.
    keeps_effects: bool = True


class Runs(Struct, frozen=True):
    """Where a method runs, if not in the shared transaction of a batch."""

    # On the database as a whole: alone, and given a `Whole`.
    whole: bool = False
    # In the caller's own process only, because it touches files that the caller names: a daemon
    # would lend its reach to a caller in a sandbox.
    local: bool = False
    # It computes for longer than others may wait: the daemon answers it in several hops, and
    # computes beside the database's thread; a direct call runs it like any other.
    apart: bool = False
    # It makes the database if there is none.
    creates: bool = False
    # What it is doing, such as "vacuuming", if that can take seconds: on a terminal it runs in the
    # caller's own process, which shows how far it is (icctl/progress.py).
    long: str = ""
    # The parameter that makes it long; empty: it always may be.
    long_if: str = ""

    def is_long(self, params: Struct) -> bool:
        """Of one that may be: whether this call is."""
        return not self.long_if or bool(getattr(params, self.long_if))


_BATCHED = Runs()


class Stream(Struct, frozen=True):
    """For what is asked again and again: what concerns a call, and the notification that brings
    what each `Look` of a typed stream has found."""

    hears: Callable[[Any], Topic]
    notifies: str = ""


# Rows are plain classes: to make a generic Struct costs each process five times as much.
class Method(Generic[P, R]):
    """A method: how it is called, what it runs, what it answers.

    The docstring of the parameters describes it.
    """

    def __init__(
        self,
        name: str,
        params: type[P],
        result: Any,
        # Given a Context, or a Whole.  None: the daemon answers it itself.
        run: Callable[[Any, P], R] | None,
        *,
        # Rules between fields; those of one field stand with it.
        check: Callable[[P], None] | None = None,
        writes: Writes | None = None,
        stream: Stream | None = None,
        runs: Runs = _BATCHED,
        # Loads what takes a while to load, if a call needs it: a process that is there for this
        # call alone does so before it takes the lock.
        warm_up: Callable[[P], None] | None = None,
    ) -> None:
        self.name = name
        self.params = params
        self.result = result
        self.run = run
        self.writes = writes
        self.stream = stream
        self.runs = runs
        self.warm_up = warm_up
        self._check = check

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @cached_property
    def check(self) -> Callable[[P], None] | None:
        """Judges the parameters before anything is locked: each field, then what is between."""
        rules = [
            (name, mark)
            for name, hint in hints(self.params).items()
            for mark in parts(hint)[1]
            if isinstance(mark, FunctionType)
        ]
        between = self._check
        if not rules:
            return between

        def judge(params: P) -> None:
            for name, rule in rules:
                value = getattr(params, name)
                if value is not None:
                    rule(value)
            if between is not None:
                between(params)

        return judge


class Verb(Method[P, R]):
    """A method and the command that calls it: what is typed are its parameters."""

    def __init__(
        self,
        name: str,
        params: type[P],
        result: Any,
        run: Callable[[Context, P], R] | Callable[[Whole, P], R] | None,
        *,
        summary: str,
        examples: Sequence[str],
        # Lines for scripts and people, given what was typed.  None has no lines, and exit status 1.
        show: Callable[[R, P], Iterable[str] | Output],
        exit: Callable[[R], int] | None = None,  # noqa: A002
        json: Callable[[R, P], Output] | None = None,
        # What a terminal gets instead of the lines; the third is a `Screen`.
        human: Table | Card | Callable[[R, P, Any], Iterable[str]] | None = None,
        # Of the options in the help, where it is not that of the parameters.
        order: Sequence[str] = (),
        # Says what is wrong with a command line in the words of the command line.
        usage: Callable[[P], None] | None = None,
        # What the method is called, if not as the command.
        method: str = "",
        check: Callable[[P], None] | None = None,
        writes: Writes | None = None,
        runs: Runs = _BATCHED,
        warm_up: Callable[[P], None] | None = None,
    ) -> None:
        called = method or name.replace(" ", ".").replace("-", "_")
        super().__init__(
            called, params, result, run, check=check, writes=writes, runs=runs, warm_up=warm_up
        )
        self.command = name
        self.summary = summary
        self.examples = examples
        self.show = show
        self.exit = exit
        self.json = json
        self.human = human
        self.order = order
        self.usage = usage

    @property
    def form(self) -> type[P]:
        return self.params


class Command(Generic[F]):
    """A command that is not one method.  The docstring of the form is its help."""

    def __init__(
        self,
        name: str,
        form: type[F],
        # An Ask without `render` is shown as is said here.
        ask: Callable[[World, F], Ask | Local | Output],
        *,
        summary: str,
        examples: Sequence[str],
        show: Callable[[Any, F], Iterable[str] | Output] | None = None,
        exit: Callable[[Any], int] | None = None,  # noqa: A002
        json: Callable[[Any, F], Output] | None = None,
        human: Table | Card | Callable[[Any, F, Any], Iterable[str]] | None = None,
        order: Sequence[str] = (),
    ) -> None:
        self.command = name
        self.form = form
        self.ask = ask
        self.summary = summary
        self.examples = examples
        self.show = show
        self.exit = exit
        self.json = json
        self.human = human
        self.order = order


if TYPE_CHECKING:
    Row = Method[Any, Any] | Command[Any]
    Typed = Verb[Any, Any] | Command[Any]


# --- reading a struct of parameters ---------------------------------------------------------------


def narrow(form: Struct, kind: type[P], **changes: Any) -> P:
    """The parameters within a form that extends them."""
    return kind(**{name: getattr(form, name) for name in kind.__struct_fields__} | changes)


def hints(form: type[Struct]) -> dict[str, Any]:
    """What is noted about each field; a form may extend parameters."""
    found: dict[str, Any] = {}
    for kind in reversed(form.__mro__):
        if kind not in (object, Struct, Params):
            found |= getattr(kind, "__annotations__", {})
    return found


def parts(hint: Any) -> tuple[Any, list[Any]]:
    """A type without `Annotated` and `| None`, and all that was noted about it."""
    marks: list[Any] = []
    while True:
        if hasattr(hint, "__metadata__"):
            marks += hint.__metadata__
            hint = hint.__origin__
        elif get_origin(hint) in (Union, UnionType):
            some = [part for part in get_args(hint) if part is not type(None)]
            if len(some) > 1:
                return hint, marks
            (hint,) = some
        else:
            return hint, marks
