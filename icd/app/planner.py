"""From a command line to a plan, and from an answer to what is printed.

Click parses the leaf command only: the globals and the path to the leaf are plain words, which
keeps a parse near a tenth of a millisecond and click away from the daemon's own process.
"""

import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import click
import msgspec

from icd.app import help as texts
from icd.app import registry, versions
from icd.app.call import DEFAULT_DEADLINE_MS, Answer, Call, Params, Progress
from icd.app.dispatch import failure
from icd.app.flags import Flags, strip
from icd.app.idempotency import MAX_DEADLINE_MS
from icd.app.invocation import (
    SOON_SECONDS,
    UNAVAILABLE,
    Ask,
    Errand,
    Invocation,
    Local,
    Need,
    Needed,
    Output,
    Plan,
    Refusal,
    World,
    advice,
    line,
)
from icd.db.paths import Where
from icd.errors import DamagedRow, IcError, NoDatabase, OtherOwner, Usage
from icd.printable import printable
from icd.values.processes import Writer

CACHED_CHARACTERS = 1000


def plan(invocation: Invocation) -> Plan | Errand | Need | Output:
    """Decide what a command line means.  Does nothing yet."""
    planned = _plan(invocation)
    if isinstance(planned, Output):
        planned = _harmless(planned)
    skew = versions.skew(invocation)
    if skew is not None and isinstance(planned, Plan):
        planned.skew = skew
    elif skew is not None and isinstance(planned, Output):
        versions.tell(skew, planned)
    return planned


def _plan(invocation: Invocation) -> Plan | Errand | Need | Output:
    context = ""
    try:
        flags = strip(invocation.argv)
        words = flags.words
        if words[:1] == ["help"]:
            words, flags.help = words[1:], True
        if not words:
            return Output(0, texts.usage(invocation.program))
        if words[0] in registry.SINGLES:
            context, words = words[0], words[1:]
            command = registry.single(context)
        elif noun := registry.noun(words):
            context, words = noun, words[noun.count(" ") + 1 :]
            if flags.help and not words:
                return Output(0, texts.noun(invocation.program, noun))
            command = _verb(noun, words)
            context, words = f"{noun} {command.name}", words[1:]
        else:
            return _unknown(invocation.program, words[0])
        if flags.help:
            return Output(0, texts.command(invocation.program, context, command))
        world = World(invocation, flags.json, flags.verbose, flags.db, flags.timeout_ms)
        wanted = _parse(command, context, words, world)
        if isinstance(wanted, Output):
            return wanted
        if isinstance(wanted, Local):
            return _errand(invocation, flags, wanted, context)
        call = _call(invocation, flags, wanted)
        return Plan(call, wanted, context, invocation.program)
    except Needed as exc:
        return exc.need
    except IcError as exc:
        told = line(invocation.program, context, exc)
        refused = Refusal(context or "command", type(exc), exc.message)
        return Output(exc.exit, b"", told, refused=refused)
    except Exception as exc:  # noqa: BLE001 -- a bug is told, and logged by the host
        return _bug(exc, invocation.program, context)


def finish(plan: Plan, answer: Answer) -> Output:
    """Turn an answer into text and an exit code."""
    try:
        return _harmless(_finish(plan, answer))
    except Exception as exc:  # noqa: BLE001 -- a bug is told, and logged by the host
        return _bug(exc, plan.program, plan.context)


def run_errand(errand: Errand, answer: Callable[[Call], Answer]) -> Output:
    """Carry out a command in the caller's own process; `answer` runs a call on the database."""
    notes = b""

    def ask(method: str, params: Params, /, *, progress: Progress | None = None) -> Any:
        nonlocal notes
        call = errand.prepare(method, params)
        call.progress = progress
        found = answer(call)
        notes += _notes(errand.program, errand.context, found)
        if found.error is not None:
            raise found.error
        return found.result

    try:
        output = errand.run(ask)
    except IcError as exc:
        output = _told(exc, errand, if_database=errand.if_database)
    except Exception as exc:  # noqa: BLE001 -- a bug is told, and logged by the host
        output = _bug(exc, errand.program, errand.context)
    output.stderr = notes + output.stderr
    return _harmless(output)


def _harmless(output: Output) -> Output:
    """The one place through which everything passes that any command prints."""
    output.stdout = printable(output.stdout)
    output.stderr = printable(output.stderr)
    return output


def advance(plan: Plan, answer: Answer) -> tuple[Output, Plan | None]:
    """For commands that go on: what to print now, and what to ask next; None at the end."""
    if plan.call.background and answer.error is not None and answer.error.retryable:
        ends_at = plan.ask.ends_at
        if ends_at is None or time.monotonic() < ends_at:
            soon = msgspec.structs.replace(plan.ask, patience=SOON_SECONDS)
            return Output(0), _again(plan, soon)  # it was not executed: it will be
    output = finish(plan, answer)
    try:
        ask = None if plan.ask.follow is None else plan.ask.follow(answer)
        return output, None if ask is None else _again(plan, ask)
    except Exception as exc:  # noqa: BLE001 -- a bug is told, and logged by the host
        return _bug(exc, plan.program, plan.context), None


def resume(plan: Plan, place: bytes) -> Plan:
    """Go on where another host left off."""
    if not (place and plan.ask.resume):
        return plan
    return _again(plan, plan.ask.resume(place))


def _again(plan: Plan, ask: Ask) -> Plan:
    method = registry.find(ask.method)
    assert method is not None, f"{ask.method} is not in the table of methods"
    deadline = time.monotonic() + DEFAULT_DEADLINE_MS / 1000
    call = msgspec.structs.replace(
        plan.call,
        method=method,
        params=ask.params,
        deadline=deadline,
        background=True,
        verbose=False,
    )
    return Plan(call, ask, plan.context, plan.program)


def _bug(exc: Exception, program: str, context: str) -> Output:
    error = failure(exc)
    bug = None if isinstance(error, DamagedRow) else error
    return _harmless(Output(error.exit, b"", line(program, context, error), bug=bug))


def _finish(plan: Plan, answer: Answer) -> Output:
    if answer.error is None:
        output = plan.ask.render(answer.result)
    else:
        declined = isinstance(answer.error, OtherOwner)
        special = not declined and plan.ask.render_error and plan.ask.render_error(answer.error)
        output = special or _told(answer.error, plan, if_database=plan.call.if_database)
        output.declined = declined
    output.stderr = _notes(plan.program, plan.context, answer) + output.stderr
    if plan.skew is not None:
        versions.tell(plan.skew, output, answer.error)
    return output


def _told(error: IcError, asked: Plan | Errand, *, if_database: bool) -> Output:
    if if_database and isinstance(error, NoDatabase):
        return Output(UNAVAILABLE)
    return Output(error.exit, b"", line(asked.program, asked.context, error))


def _notes(program: str, context: str, answer: Answer) -> bytes:
    told = [advice(program, text) for text in answer.warnings]
    notes = [f"{program}: {context}: warning: {text}\n" for text in told]
    notes += [f"{program}: {text}\n" for text in answer.trace]
    return "".join(notes).encode("utf-8", "backslashreplace")


def _unknown(program: str, word: str) -> Output:
    error = Usage(f"unknown command: {word}")
    refused = Refusal("command", Usage, error.message)
    return Output(3, texts.usage(program), line(program, "", error), refused=refused)


def _verb(noun: str, words: list[str]) -> click.Command:
    verbs = registry.verbs(noun)
    known = ", ".join([*verbs, *registry.below(noun)])
    if not words:
        raise Usage(f"missing subcommand ({known})")
    if words[0] not in verbs:
        raise Usage(f"unknown subcommand: {words[0]}", hint=f"use one of {known}")
    return verbs[words[0]]


def _parse(
    command: click.Command, context: str, words: list[str], world: World
) -> Ask | Local | Output:
    # Hooks say the same again and again; what is long is a payload, and new each time.
    params = _params if sum(map(len, words)) < CACHED_CHARACTERS else _params.__wrapped__
    try:
        assert command.callback is not None
        wanted: Ask | Local | Output = command.callback(world, **params(command, context, *words))
    except click.UsageError as exc:
        message = exc.format_message().rstrip(".")
        raise Usage(message, hint=f"see '{world.invocation.program} {context} --help'") from exc
    return wanted


@lru_cache(maxsize=1024)
def _params(command: click.Command, context: str, *words: str) -> dict[str, Any]:
    """What click makes of the words: a function of nothing else."""
    return command.make_context(context, list(words), terminal_width=80, color=False).params


def _where(invocation: Invocation, flags: Flags, ask: Ask) -> Where:
    if ask.cwd is None:
        return Where(invocation.cwd, flags.db, invocation.env.get("INTERCORE_DB"))
    return Where(ask.cwd, flags.db)


def _word(given: str | None) -> str | None:
    """The environment may hold any bytes; the database holds text."""
    return given.encode("utf-8", "backslashreplace").decode()[:200] if given else None


def _errand(invocation: Invocation, flags: Flags, local: Local, context: str) -> Errand:
    patience = invocation.deadline - time.monotonic()
    if local.has_own_timeout:
        flags = msgspec.structs.replace(flags, timeout_ms=None)
        patience = DEFAULT_DEADLINE_MS / 1000

    def prepare(method: str, params: Params) -> Call:
        # Reading files was the caller's own time, and nobody asks for this answer again.
        world = msgspec.structs.replace(
            invocation, deadline=time.monotonic() + patience, request_id=None
        )
        return _call(world, flags, Ask(method, params, lambda _: Output(0)))

    where = Where(invocation.cwd, flags.db, invocation.env.get("INTERCORE_DB"))
    return Errand(
        local.run,
        prepare,
        context,
        invocation.program,
        flags.if_database,
        where if local.is_about_project else None,
    )


def _call(invocation: Invocation, flags: Flags, ask: Ask) -> Call:
    """Attach to the call what concerns every call."""
    method = registry.find(ask.method)
    assert method is not None, f"{ask.method} is not in the table of methods"
    deadline = invocation.deadline
    if flags.timeout_ms is not None:
        limit_ms = min(flags.timeout_ms, MAX_DEADLINE_MS)
        deadline = min(deadline, time.monotonic() + limit_ms / 1000)
    params = msgspec.structs.replace(ask.params, request_id=invocation.request_id)
    if method.check is not None:
        method.check(params)
    env = invocation.env
    return Call(
        method=method,
        params=params,
        where=_where(invocation, flags, ask),
        writer=Writer(
            invocation.pid,
            _word(env.get("CLAUDE_SESSION_ID")),
            _word(env.get("IC_TRACE_ID")),
            _word(env.get("IC_SPAN_ID")),
        ),
        deadline=deadline,
        verbose=flags.verbose,
        if_database=flags.if_database,
        is_command=True,
        optional=ask.optional or flags.if_database,
    )
