"""hook: run a command for an agent's hook, and answer the agent."""

import os
from collections.abc import Callable
from typing import Annotated, Literal

from msgspec import Meta, Struct

from icd.app import render
from icd.app.invocation import Local, Output, World
from icd.app.types import Seconds, Span
from icd.app.verb import Argument, Command, Option
from icd.errors import Usage
from icd.features.hook import answers, event, reserve
from icd.features.hook.answers import Asked, Json
from icd.features.hook.run import Condition, Hook, Wish
from icd.features.locks import directory
from icd.features.sentinels.store import MAX_INTERVAL_S
from icd.values import validation
from icd.values.wire import CENTURY_MS

KEYS = ("tool", "path", "event", "agent")

Interval = Annotated[int, Meta(ge=0, le=MAX_INTERVAL_S), Seconds(0, MAX_INTERVAL_S)]
Time = Annotated[int, Meta(ge=0, le=CENTURY_MS), Span()]


# --- parameters -----------------------------------------------------------------------------------


class Run(Struct):
    """Run COMMAND for the hook of an agent, with the agent's event on stdin; 'run' may be omitted.

    COMMAND gets the same stdin, and the fields of the event as INTERCORE_SESSION, INTERCORE_EVENT,
    INTERCORE_TOOL, INTERCORE_FILE, INTERCORE_CWD, INTERCORE_AGENT and INTERCORE_STOP_ACTIVE.
    Exits with the status of COMMAND; with 0, printing nothing, if an option says that COMMAND does
    not run now; with 1 if COMMAND cannot be started.
    If intercore itself fails, COMMAND does not run, the exit status is 0, and the reason is a line
    in ~/.local/state/intercore/hook.log; with --fail-closed the exit status is 2, which blocks the
    agent, and stderr has the reason.
    The options are tried in this order: --when, --debounce, --serial, --once or --every.
    """

    once: Annotated[bool, Option("--once", "Run once per scope.")] = False
    every: Annotated[
        Interval | None, Option("--every", "Run at most once in this time per scope.", "DURATION")
    ] = None
    name: Annotated[
        str | None, Option("--name", "Name of the hook (default: made from COMMAND).")
    ] = None
    scope: Annotated[
        Literal["session", "project", "user", "file"] | None,
        Option("--scope", "Scope of the options (default: session; of --serial, project)."),
    ] = None
    serial: Annotated[
        str | None,
        Option("--serial", "Run one after the other with this name; wait --timeout, 10m.", "NAME"),
    ] = None
    skip: Annotated[bool, Option("--skip", "With --serial: do not run, instead of waiting.")] = (
        False
    )
    debounce: Annotated[
        Time | None, Option("--debounce", "Wait; run only if no other came meanwhile.", "DURATION")
    ] = None
    when: Annotated[
        str | None,
        Option("--when", "Run for such events: 'tool=Edit,Write path=*.py'.", "CONDITIONS"),
    ] = None
    fail_closed: Annotated[
        bool, Option("--fail-closed", "Block the agent (exit 2) if intercore fails.")
    ] = False
    command: Annotated[
        tuple[str, ...],
        Argument("COMMAND", "Command to run.", nargs=-1, usage="-- COMMAND [ARGUMENT]..."),
    ] = ()


class Context(Struct):
    """Print what tells TEXT to the model of the agent whose hook this is.

    Reads the event from stdin; where COMMAND of 'icctl hook' has read it before, INTERCORE_AGENT
    and INTERCORE_EVENT tell.
    Where an event has no room for it, the text is for the user.
    """

    text: Annotated[str, Argument("TEXT", "Text for the model.")]


class Block(Struct):
    """Print what blocks the agent whose hook this is, and tells the model REASON.

    Reads the event as 'hook context' does, and exits 0: the printed JSON blocks.
    At the end of a turn the agent goes on instead, with REASON as what is left to do.
    """

    reason: Annotated[str, Argument("REASON", "Reason for the model.")]


class Allow(Struct):
    """Print what lets the agent whose hook this is go on without asking its user.

    Reads the event as 'hook context' does.
    """

    reason: Annotated[str, Argument("REASON", "Reason for the user.")] = ""


# --- what is done ---------------------------------------------------------------------------------


def ask_run(world: World, f: Run) -> Local:
    wish = _wish(f)
    return Local(
        lambda ask: Hook(world, wish, ask).run(), has_own_timeout=True, is_about_project=False
    )


def _wish(f: Run) -> Wish:
    if not f.command:
        raise Usage("no command given", hint="put it after --")
    if f.once and f.every is not None:
        raise Usage("--once and --every are given", hint="use one of them")
    if f.skip and f.serial is None:
        raise Usage("--skip needs --serial")
    name = event.command_name(f.command) if f.name is None else f.name
    validation.check_name(name)
    if f.serial is not None:
        directory.check_words(f"hook-{f.serial}", "scope")
    return Wish(
        command=f.command,
        name=name,
        scope=f.scope,
        interval_s=0 if f.once else f.every,
        serial=f.serial,
        skip=f.skip,
        debounce_ms=f.debounce,
        when=[] if f.when is None else _conditions(f.when),
        fail_closed=f.fail_closed,
    )


def _conditions(text: str) -> list[Condition]:
    """Globs are matched byte by byte, as the native client does it."""
    found = []
    for word in os.fsencode(text).split():
        key, equals, globs = word.decode("latin-1").partition("=")
        if key not in KEYS or not equals or not all(globs.split(",")):
            told = f"--when: {validation.shown(word.decode(errors='replace'))} is no condition"
            raise Usage(told, hint=f"write KEY=GLOB,GLOB with a key of {', '.join(KEYS)}")
        found.append((key, globs.split(",")))
    if not found:
        raise Usage("--when has no condition", hint="write 'tool=Edit,Write path=*.py'")
    return found


def _asked(world: World) -> Asked:
    """The event on stdin; below `icctl hook`, where COMMAND may have read it, that of the hook.

    Variables alone would not do: an agent that a hook starts hands them on to hooks of its own.
    """
    found = event.read(world.read_stdin())
    if found is not None and found.agent:
        return Asked(found.agent, found.event)
    return Asked(world.env.get("INTERCORE_AGENT", ""), world.env.get("INTERCORE_EVENT", ""))


def _answer(world: World, say: Callable[[Asked, str], Json], text: str) -> Output:
    return render.to_json(say(_asked(world), text))


VERBS = [
    Command(
        "hook run",
        Run,
        ask_run,
        summary="Run a command for an agent's event.",
        examples=[
            "icctl hook run --every=10m -- echo remember the tests",
            "icctl hook run --once --name=greet -- echo hello",
            "icctl hook run --when='tool=Edit path=*.py' --serial=fmt -- echo formatted",
        ],
    ),
    Command(
        "hook context",
        Context,
        lambda world, f: _answer(world, answers.context, f.text),
        summary="Print what tells a text to the agent's model.",
        examples=["icctl hook context 'The build is red.'"],
    ),
    Command(
        "hook block",
        Block,
        lambda world, f: _answer(world, answers.block, f.reason),
        summary="Print what blocks the agent.",
        examples=["icctl hook block 'Run the tests first.'"],
    ),
    Command(
        "hook allow",
        Allow,
        lambda world, f: _answer(world, answers.allow, f.reason),
        summary="Print what lets the agent go on.",
        examples=["icctl hook allow"],
    ),
    *reserve.VERBS,
]
