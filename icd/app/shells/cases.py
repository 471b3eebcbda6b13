"""What bash and zsh look up in `case` statements: what to offer in which place.

A place is the command as far as it is written: nothing, a noun, or a whole command.
"""

from collections.abc import Callable
from shlex import quote
from typing import Literal, TypeVar

from msgspec import Struct

from icd.app.command_tree import Leaf, Option, Slot, beginnings, everywhere, leaves, verbs
from icd.app.registry import GROUPS

T = TypeVar("T")

NOWHERE = "nowhere"


class Offer(Struct, frozen=True):
    """Words, with what each is about; or files."""

    words: tuple[tuple[str, str], ...] = ()
    kind: Literal["word", "file", "directory"] = "word"


def valued() -> str:
    """The global flags that take a value, as a pattern."""
    return "|".join(option.name for option in everywhere() if option.slot is not None)


def places(found: list[Leaf]) -> list[tuple[str, str]]:
    """What the next word makes of a place, by `place:word`; an unknown one leads nowhere."""
    ways = []
    for name in [*GROUPS, *(leaf.name for leaf in found)]:
        above, _, word = name.rpartition(" ")
        ways.append((f"{_place(above)}:{word}", name))
    return [*ways, *((f"{_place(noun)}:*", NOWHERE) for noun in ["", *GROUPS])]


def values(found: list[Leaf]) -> list[tuple[str, Offer]]:
    """What is offered as the value of an option, by `place:option`."""
    options = [("*", option) for option in everywhere()]
    options += [(quote(leaf.name), option) for leaf in found for option in leaf.options]
    return [
        (f"{place}:{option.name}", _offer(option.slot))
        for place, option in options
        if option.slot is not None
    ]


def options(found: list[Leaf]) -> list[tuple[str, Offer]]:
    """The options of each command, beside those that every command has."""
    return [(quote(leaf.name), named(leaf.options)) for leaf in found if leaf.options]


def arguments(found: list[Leaf]) -> list[tuple[str, Offer]]:
    """Nouns, verbs, and the arguments of a command that are no words of the caller's own."""
    offers = [("''", Offer(tuple(beginnings())))]
    offers += [(quote(noun), Offer(tuple(verbs(noun)))) for noun in GROUPS]
    offers += [(quote(leaf.name), _offer(slot)) for leaf in found for slot in leaf.slots]
    return [(place, offer) for place, offer in offers if offer != Offer()]


def named(options: tuple[Option, ...]) -> Offer:
    return Offer(tuple((option.name, option.about) for option in options))


def fill(
    script: str, *, opening: str, assign: Callable[[Offer], str], add: Callable[[Offer], str]
) -> str:
    """Put all cases into a script; `opening` is what a shell writes before a pattern."""
    found = leaves()

    def cases(indent: int, pairs: list[tuple[str, T]], say: Callable[[T], str]) -> str:
        return "\n".join(f"{' ' * indent}{opening}{at}) {say(to)} ;;" for at, to in pairs)

    return script.format(
        valued=valued(),
        places=cases(20, places(found), lambda place: f"place='{place}'"),
        values=cases(8, values(found), assign),
        everywhere=assign(named(tuple(everywhere()))),
        options=cases(20, options(found), add),
        arguments=cases(20, arguments(found), assign),
    )


def _place(noun: str) -> str:
    return quote(noun) if noun else ""


def _offer(slot: Slot) -> Offer:
    return Offer(tuple((word, "") for word in slot.words), slot.kind)
