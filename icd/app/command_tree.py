"""The commands as plain data, for whoever describes them: completion scripts, manual pages."""

from typing import Literal

import click
from msgspec import Struct

from icd.app import help as texts
from icd.app import registry

# What stands for a file in the metavar of an option or argument.
_FILES = {"FILE", "PATH"}
_DIRECTORIES = {"DIR"}


class Slot(Struct, frozen=True):
    """What may be written in a place: one of some words, a file, or anything."""

    words: tuple[str, ...] = ()
    kind: Literal["word", "file", "directory"] = "word"


class Option(Struct, frozen=True):
    """`slot` is None for a switch."""

    name: str
    about: str
    slot: Slot | None = None


class Leaf(Struct, frozen=True):
    """A command, with what may be written behind it."""

    name: str  # all of it, as in `state set`
    about: str
    options: tuple[Option, ...]
    slots: tuple[Slot, ...]


def leaves() -> list[Leaf]:
    """All commands, in the order of the usage text."""
    return [_leaf(name, command) for name, command in registry.commands().items()]


def everywhere() -> list[Option]:
    """The options that every command understands."""
    return [_global(*entry) for entry in texts.GLOBALS]


def beginnings() -> list[tuple[str, str]]:
    """The first words of a command line, with what each is about."""
    nouns = [(noun, about) for noun, (_, about) in registry.GROUPS.items() if " " not in noun]
    singles = [(leaf.name, leaf.about) for leaf in leaves() if " " not in leaf.name]
    return [*nouns, *singles, ("help", "help for a command")]


def verbs(noun: str) -> list[tuple[str, str]]:
    """What may follow a noun: verbs, and other nouns."""
    found = [(leaf.name, leaf.about) for leaf in leaves()]
    found += [(name, about) for name, (_, about) in registry.GROUPS.items()]
    split = ((*name.rpartition(" "), about) for name, about in found)
    return [(word, about) for above, _, word, about in split if above == noun]


def _leaf(name: str, command: click.Command) -> Leaf:
    options = [param for param in command.params if isinstance(param, click.Option)]
    arguments = [param for param in command.params if isinstance(param, click.Argument)]
    return Leaf(
        name,
        command.get_short_help_str(200).rstrip("."),
        tuple(_option(option) for option in options),
        tuple(_slot(argument) for argument in arguments),
    )


def _option(option: click.Option) -> Option:
    slot = None if option.is_flag else _slot(option)
    return Option(option.opts[0], (option.help or "").rstrip("."), slot)


def _global(form: str, about: str) -> Option:
    name, _, metavar = form.partition(" ")
    return Option(name, about.rstrip("."), Slot(kind=_kind(metavar)) if metavar else None)


def _slot(param: click.Parameter) -> Slot:
    words = tuple(param.type.choices) if isinstance(param.type, click.Choice) else ()
    # Click writes the name of an argument in capitals where it has no metavar.
    return Slot(words, _kind(param.metavar or (param.name or "").upper()))


def _kind(metavar: str) -> Literal["word", "file", "directory"]:
    word = metavar.strip("[]")
    if word in _DIRECTORIES:
        return "directory"
    return "file" if word in _FILES else "word"
