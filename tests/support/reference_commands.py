"""The part of `docs/cli.md` that is made from the rows of the commands."""

from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import click

from icd import __main__ as program
from icd.admin.doctor.checks import CHECKS
from icd.app import registry
from icd.app.parser import Leaf, fields
from icd.app.reference import help as texts
from icd.app.verb import Argument, Command, Option, Verb
from tests.support.markdown import anchor, cell, titles

DOCS = Path(__file__).parents[2] / "docs"
ICD = program.commands()

# The page that tells more, by noun or by command; the longest name that fits counts.
TOPICS = {
    "state": "state.md",
    "sentinel": "sentinels.md",
    "events": "events.md",
    "interspect": "events.md",
    "wait": "events.md",
    "run": "runs.md",
    "gate": "gates.md",
    "dispatch": "dispatches.md",
    "lock": "locks.md",
    "hold": "locks.md",
    "lease": "leases.md",
    "coordination": "reservations.md",
    "session": "sessions.md",
    "lane": "lanes.md",
    "guard": "reservations.md",
    "compat": "migration.md",
    "discovery": "discoveries.md",
    "discovery search": "search.md",
    "discovery profile": "ranking.md",
    "discovery rank": "ranking.md",
    "discovery prune": "ranking.md",
    "hook": "agent-hooks.md",
    "triggers": "triggers.md",
    "trust": "security.md",
    "config": "configuration.md",
    "statusline": "statusline.md",
    "mcp": "mcp.md",
    "top": "top.md",
    "init": "databases.md",
    "health": "databases.md",
    "version": "databases.md",
    "backup": "databases.md",
    "restore": "databases.md",
    "export": "databases.md",
    "import": "databases.md",
    "db": "databases.md",
    "doctor": "doctor.md",
    "setup": "agents.md",
    "ping": "monitoring.md",
    "status": "monitoring.md",
    "metrics": "monitoring.md",
    "service": "service.md",
    "lib-path": "library.md",
    "icd serve": "service.md",
}
# As many options as a usage line spells; of more, those that are required.
SPELLED = 5
_METHODS = [method.name for method in registry.every()]


def contents() -> Iterator[str]:
    for noun, (_module, about) in registry.GROUPS.items():
        indent = "  " * noun.count(" ")
        verbs = ", ".join(_link(verb, f"{noun} {verb}") for verb in registry.verbs(noun))
        yield f"{indent}- {_link(noun)}, {about}: {verbs}"
    yield f"- {_link('Other commands')}: {', '.join(_link(name) for name in registry.SINGLES)}"
    yield f"- {_link('The daemon')}: {', '.join(_link(f'icd {name}') for name in ICD.commands)}"


def _link(text: str, title: str = "") -> str:
    return f"[{text}](#{anchor(title or text)})"


def flags() -> Iterator[str]:
    yield from ("| Flag | Meaning |", "|---|---|")
    for form, about in texts.GLOBALS:
        name = f"`{form}`, `-h`" if form == "--help" else f"`{form}`"
        yield f"| {name} | {cell(about)} |"


def commands() -> Iterator[str]:
    for noun, (_module, about) in registry.GROUPS.items():
        level = "##" + "#" * noun.count(" ")
        yield from (f"{level} {noun}", "", f"{about[0].upper()}{about[1:]}.", "")
        for verb, command in registry.verbs(noun).items():
            yield from _command(f"{level}#", f"{noun} {verb}", command)
    yield from ("## Other commands", "")
    for name in registry.SINGLES:
        yield from _command("###", name, registry.single(name))


def daemon() -> Iterator[str]:
    for name, command in ICD.commands.items():
        ctx = click.Context(command, info_name=f"icd {name}", terminal_width=texts.WIDTH)
        usage = " ".join([f"icd {name}", *command.collect_usage_pieces(ctx)])
        yield from (f"### icd {name}", "", f"    {usage}", "")
        yield from _paragraphs(command.help or "")
        options = [param for param in command.params if isinstance(param, click.Option)]
        yield from (f"- `{_form(option)}`: {option.help}" for option in options)
        yield from ("", *_more(f"icd {name}"))


def _command(level: str, name: str, leaf: Leaf) -> Iterator[str]:
    row, command = leaf.row, leaf.click
    typed = {field.name: field.typed for field in fields(row.form)}
    yield from (f"{level} {name}", "", f"    {_usage(name, command)}", "")
    yield from _paragraphs(row.form.__doc__ or "")
    for param in command.params:
        yield from _param(param, typed[str(param.name)])
    yield from ("", "```sh", *row.examples, "```", "")
    if name in TABLES:
        yield from (*TABLES[name](), "")
    methods = called(row)
    if methods:
        links = ", ".join(f"[`{found}`](protocol.md#{anchor(found)})" for found in methods)
        yield from (f"{'Method' if len(methods) == 1 else 'Methods'}: {links}.", "")
    yield from _more(name)


def _checks() -> Iterator[str]:
    yield from ("| Check | What it looks at |", "|---|---|")
    yield from (f"| `{check.name}` | {check.looks_at} |" for check in CHECKS)


# What the program knows about a command beside its row.
TABLES = {"doctor": _checks}


def _usage(name: str, command: click.Command) -> str:
    """All that can be typed, or, where that is much, what must be."""
    options = [param for param in command.params if isinstance(param, click.Option)]
    words = [_metavar(param) for param in command.params if isinstance(param, click.Argument)]
    spelled = [_form(option) for option in options if option.required]
    others = [f"[{_form(option)}]" for option in options if not option.required]
    spelled += others if len(options) <= SPELLED else ["[OPTION]..."]
    first = [word for word in words if "--" not in word]
    last = [word for word in words if "--" in word]
    return " ".join(filter(None, [f"icctl {name}", *first, *spelled, *last]))


def _param(param: click.Parameter, typed: Argument | Option) -> Iterator[str]:
    if isinstance(typed, Argument):
        if typed.metavar and typed.help and _metavar(param):
            yield f"- `{typed.metavar}`: {typed.help}"
        return
    assert isinstance(param, click.Option)
    names = ", ".join(f"`{_form(param, name)}`" for name in param.opts)
    yield f"- {names}: {typed.help}{' Required.' if param.required else ''}"


def _form(option: click.Option, name: str = "") -> str:
    """An option as it is typed."""
    shown = name or option.opts[0]
    return shown if option.is_flag else f"{shown} {_metavar(option).strip('[]')}"


def _metavar(param: click.Parameter) -> str:
    return param.make_metavar(click.Context(click.Command("icctl")))


def _paragraphs(text: str) -> Iterator[str]:
    """A help text as Markdown: what click is to leave as it is becomes a block."""
    for paragraph in cleandoc(text).split("\n\n"):
        if paragraph.startswith("\b\n"):
            yield from ("```", paragraph.removeprefix("\b\n"), "```", "")
        else:
            yield from (paragraph, "")


def _more(name: str) -> Iterator[str]:
    """Where the topic page tells more about a command."""
    topic = _topic(name)
    if topic is None:
        return
    place = f"#{anchor(name)}" if name in titles(DOCS / topic) else ""
    yield from (f"More: [{topic}]({topic}{place}).", "")


def _topic(name: str) -> str | None:
    words = name.split()
    found = (" ".join(words[:count]) for count in range(len(words), 0, -1))
    return next((TOPICS[part] for part in found if part in TOPICS), None)


# --- which methods a command calls ----------------------------------------------------------


def called(row: Verb[Any, Any] | Command[Any]) -> list[str]:
    """The methods that a command names in its code, in the order of the protocol."""
    if isinstance(row, Verb):
        return [row.name]
    assert isinstance(row.ask, FunctionType)
    named = set(_named(row.ask, set()))
    return [method for method in _METHODS if method in named]


def _named(function: FunctionType, seen: set[FunctionType]) -> Iterator[str]:
    """In a function, and in those of its package that it calls."""
    if function in seen:
        return
    seen.add(function)
    package = function.__module__.rpartition(".")[0]
    for code in _codes(function.__code__):
        yield from filter(_is_method, code.co_consts)
        for name in code.co_names:
            other = function.__globals__.get(name)
            if isinstance(other, dict):
                yield from filter(_is_method, other.values())
            if isinstance(other, FunctionType) and other.__module__.startswith(package):
                yield from _named(other, seen)


def _is_method(constant: object) -> bool:
    return isinstance(constant, str) and constant in _METHODS


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
