"""From a command line to a plan, and from an answer to what is printed.

The globals and the path to a command are plain words; its own words are its parser's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from icd import __version__
from icd.app import registry, render
from icd.app.call import DEFAULT_DEADLINE_MS, Answer, Call, Params
from icd.app.dispatch import failure
from icd.app.flags import Flags, strip
from icd.app.idempotency import MAX_DEADLINE_MS
from icd.app.invocation import (
    SESSION_VARIABLES,
    SOON_SECONDS,
    UNAVAILABLE,
    WORD_CHARACTERS,
    Ask,
    Caller,
    Errand,
    Local,
    Need,
    Needed,
    Output,
    Question,
    Refusal,
    Told,
    World,
    advice,
    as_the_row_says,
    exit_status,
    line,
)
from icd.app.parser import Leaf
from icd.app.verb import Method, Verb
from icd.db.paths import Where
from icd.errors import DamagedRow, Declined, IcError, NoDatabase, OtherOwner, Usage
from icd.printable import SAFE, printable, spelled, styled
from icd.values.processes import Writer

T = TypeVar("T")

# What is longer is a payload, and new each time.
CACHED_CHARACTERS = 1000
FAILURE = 2  # exit statuses from here on are not an answer


class Parsed(msgspec.Struct):
    """What a command line says, for any caller: one of `help`, `error` and `command` is set."""

    context: str = ""  # the command by its full name, for messages
    flags: Flags | None = None
    command: Leaf | None = None
    # The form, or what makes it of the caller's world.
    typed: Any = None
    help: Callable[[str], bytes] | None = None  # given the name of the program
    error: IcError | None = None


def plan(world: World) -> Ask | Errand | Need | Output:
    """Decide what a command line means.  Does nothing yet."""
    planned = _plan(world)
    if isinstance(planned, Output):
        planned = _harmless(planned)
    if world.client_version and world.client_version != __version__:
        from icd.app import versions  # few callers differ

        skew = versions.skew(world)
        if isinstance(planned, Ask):
            planned.skew = skew
        elif isinstance(planned, Output):
            versions.tell(skew, planned)
    return planned


def _plan(world: World) -> Ask | Errand | Need | Output:
    # Hooks say the same again and again.
    read = _read if sum(map(len, world.argv)) < CACHED_CHARACTERS else _read.__wrapped__
    parsed = _safely(world, "", read, *world.argv)
    if isinstance(parsed, Output):
        return parsed
    return _safely(world, parsed.context, _decide, world, parsed)


def _decide(world: World, parsed: Parsed) -> Ask | Errand | Need | Output:
    try:
        if parsed.help is not None:
            alone = not world.argv and world.terminal is not None
            return Output(0, (_help("short") if alone else parsed.help)(world.program))
        if parsed.error is not None:
            return _refused(world, parsed)
        wanted = _ask(world, parsed)
        if isinstance(wanted, Local):
            return _errand(world, wanted, parsed.context)
        if isinstance(wanted, Ask):
            wanted.context, wanted.program = parsed.context, world.program
            wanted.json_errors = parsed.flags is not None and parsed.flags.json_errors
        return wanted
    except Needed as exc:
        return exc.need
    except IcError as exc:
        return _refused(world, Parsed(parsed.context, error=exc))


def _safely(to: Told, context: str, function: Callable[..., T], *given: Any) -> T | Output:
    """A bug in a command is told to its caller, and logged by the host."""
    try:
        return function(*given)
    except Exception as exc:  # noqa: BLE001 -- the error map
        error = failure(exc)
        bug = None if isinstance(error, DamagedRow) else error
        told = line(to, context, error)
        return _harmless(Output(exit_status(context, error), b"", told, bug=bug))


@lru_cache(maxsize=1024)
def _read(*argv: str) -> Parsed:
    """What the words mean: a function of nothing else."""
    parsed = Parsed("hook" if argv[:1] == ("hook",) else "")  # for its exit status
    try:
        flags = parsed.flags = strip(argv)
        words = flags.words
        if words[:1] == ["help"]:
            words, flags.help = words[1:], True
        elif words[:1] in (["--version"], ["-V"]):
            words = ["version", *words[1:]]
        if not words:
            parsed.help = _help("usage")
            return parsed
        _find(parsed, flags, words)
    except IcError as exc:
        parsed.error = exc.with_traceback(None)
    return parsed


def _find(parsed: Parsed, flags: Flags, words: list[str]) -> None:
    """The command, and what its parser makes of the words behind it."""
    if words[0] in registry.SINGLES:
        parsed.context, words = words[0], words[1:]
        command = registry.single(parsed.context)
    elif noun := registry.noun(words):
        parsed.context, words = noun, words[noun.count(" ") + 1 :]
        if flags.help and not words:
            parsed.help = _help("noun", noun)
            return
        if noun in registry.UNSAID and words[:1] and words[0].startswith("-"):
            words = [registry.UNSAID[noun], *words]
        if _is_declined(parsed, " ".join([noun, *words[:1]])):
            return
        command = _verb(noun, words)
        parsed.context, words = f"{noun} {command.name}", words[1:]
        _refuse_declined(parsed.context, words)
    elif _is_declined(parsed, words[0]):
        return
    else:
        from icd.app.reference import mistakes  # few calls need it

        raise mistakes.unknown_command(words)
    if flags.help:
        parsed.help = _help("command", parsed.context, command)
        return
    parsed.command = command
    parsed.typed = command.parse(parsed.context, words)
    if isinstance(command.row, Verb) and isinstance(parsed.typed, Params):
        _judge(command.row, parsed.typed)


def _is_declined(parsed: Parsed, name: str) -> bool:
    """A declined command is counted under its name: `doctor` tells who still calls it."""
    if name not in registry.DECLINED:
        return False
    parsed.context = name
    parsed.error = Declined("it is no part of intercore", hint=registry.DECLINED[name])
    return True


def _refuse_declined(command: str, words: list[str]) -> None:
    declined = registry.DECLINED_OPTIONS.get(command)
    for word in words if declined is not None else ():
        if word == "--":
            return
        option = word.partition("=")[0]
        if declined and option in declined:
            raise Declined(f"{option} is no part of intercore", hint=declined[option])


def _help(name: str, *about: Any) -> Callable[[str], bytes]:
    """One of the help texts, for a program; click is loaded for it, which few calls need."""

    def text(program: str) -> bytes:
        from icd.app.reference import help as texts

        found: bytes = getattr(texts, name)(program, *about)
        return found

    return text


def _judge(row: Verb[Any, Any], params: Params) -> None:
    """Judge what a line alone can say wrongly: it is wrong for every caller, and judged once."""
    if row.usage is not None:
        row.usage(params)
    if row.check is not None:
        row.check(params)


def _verb(noun: str, words: list[str]) -> Leaf:
    verbs = registry.verbs(noun)
    if not words:
        raise Usage(f"missing subcommand ({', '.join([*verbs, *registry.below(noun)])})")
    if words[0] not in verbs:
        from icd.app.reference import mistakes

        raise mistakes.unknown_verb(noun, words[0])
    return verbs[words[0]]


def _ask(world: World, parsed: Parsed) -> Ask | Local | Output:
    flags, command = parsed.flags, parsed.command
    assert flags is not None
    assert command is not None
    world.json, world.verbose, world.db = flags.json, flags.verbose, flags.db
    world.timeout_ms, world.if_database = flags.timeout_ms, flags.if_database
    world.no_daemon = flags.no_daemon
    world.where = Where(world.cwd, flags.db, world.env.get("INTERCORE_DB"))
    # `session_of`, without another file on the way of every call.
    session = next(filter(None, map(world.env.get, SESSION_VARIABLES)), "")
    world.session = spelled(session) if session else ""
    if world.terminal is not None:
        world.face(world.terminal, flags)
    row = command.row
    if isinstance(row, Verb):
        return _ask_verb(world, row, parsed.typed)
    typed = parsed.typed if isinstance(parsed.typed, msgspec.Struct) else parsed.typed(world)
    asked = row.ask(world, typed)
    if isinstance(asked, Ask):
        if asked.render is as_the_row_says:
            asked.render = render.rendering(world, row, typed)
        method = registry.find(asked.method)
        assert method is not None, f"{asked.method} is not in the table of methods"
        if method.check is not None:
            method.check(asked.params)
        asked.call = _call(world, method, asked)
    return asked


def _ask_verb(world: World, row: Verb[Any, Any], typed: Any) -> Ask:
    if not isinstance(typed, Params):
        typed = typed(world)
        _judge(row, typed)
    asked = Ask(row.name, typed, render.rendering(world, row, typed))
    asked.call = _call(world, row, asked)
    return asked


def _refused(world: World, parsed: Parsed) -> Output:
    error = parsed.error
    assert error is not None
    refused = Refusal(parsed.context or "command", type(error), error.message)
    told = line(world, parsed.context, error)
    return Output(exit_status(parsed.context, error), b"", told, refused=refused)


def finish(asked: Ask, answer: Answer) -> Output:
    """Turn an answer into text and an exit code."""
    return _harmless(_safely(asked, asked.context, _finish, asked, answer))


def run_errand(errand: Errand, answer: Callable[[Call], Answer]) -> Output:
    """Carry out a command in the caller's own process; `answer` runs a call on the database."""
    told = b""

    def ask(method: str, params: Params, /) -> Any:
        nonlocal told
        found = answer(errand.prepare(method, params))
        told += notes(errand, found)
        if found.error is not None:
            raise found.error
        return found.result

    output = _safely(errand, errand.context, _run_local, errand, ask)
    output.stderr = told + output.stderr
    return _harmless(output)


def step(errand: Errand, steps: Generator[Any, Any, Output], answer: Answer | None = None) -> Any:
    """What a served errand waits for next, such as a Call; or an Output at the end."""
    return _safely(errand, errand.context, _step, errand, steps, answer)


def _step(errand: Errand, steps: Generator[Any, Any, Output], answer: Answer | None) -> Any:
    try:
        refused = answer is not None and answer.error
        found = steps.throw(refused) if refused else steps.send(answer and answer.result)
        return errand.prepare(found.method, found.params) if isinstance(found, Question) else found
    except StopIteration as done:
        return _harmless(done.value)
    except IcError as exc:
        output = _harmless(_told(exc, errand, if_database=errand.if_database))
        output.declined = isinstance(exc, OtherOwner)
        if exc.exit >= FAILURE:
            output.refused = Refusal(errand.context, type(exc), exc.message)
        return output


def _run_local(errand: Errand, ask: Caller) -> Output:
    try:
        return errand.run(ask)
    except IcError as exc:
        return _told(exc, errand, if_database=errand.if_database)


def _harmless(output: Output) -> Output:
    """Spell out what is not printable; all that any command prints passes through here."""
    if output.stdout.translate(None, SAFE):
        output.stdout = (styled if output.styled else printable)(output.stdout)
    if output.stderr.translate(None, SAFE):
        output.stderr = printable(output.stderr)
    return output


def advance(asked: Ask, answer: Answer) -> tuple[Output, Ask | None]:
    """For commands that go on: what to print now, and what to ask next; None at the end."""
    is_put_off = answer.error is not None and answer.error.retryable and asked.call.background
    if is_put_off and (asked.ends_at is None or time.monotonic() < asked.ends_at):
        soon = msgspec.structs.replace(asked, patience=SOON_SECONDS)
        return Output(0), _again(asked, soon)  # it was not executed: it will be
    output = finish(asked, answer)
    if asked.follow is None:
        return output, None
    following = _safely(asked, asked.context, asked.follow, answer)
    if isinstance(following, Output):
        return following, None
    return output, None if following is None else _again(asked, following)


def resume(asked: Ask, place: bytes) -> Ask:
    """Go on where another host left off."""
    if not (place and asked.resume):
        return asked
    return _again(asked, asked.resume(place))


def _again(before: Ask, asked: Ask) -> Ask:
    method = registry.find(asked.method)
    assert method is not None, f"{asked.method} is not in the table of methods"
    asked.call = msgspec.structs.replace(
        before.call,
        method=method,
        params=asked.params,
        deadline=time.monotonic() + DEFAULT_DEADLINE_MS / 1000,
        background=True,
        verbose=False,
    )
    asked.context, asked.program = before.context, before.program
    asked.json_errors = before.json_errors
    return asked


def _finish(asked: Ask, answer: Answer) -> Output:
    if answer.error is None:
        output = asked.render(answer.result)
    else:
        declined = isinstance(answer.error, OtherOwner)
        special = not declined and asked.render_error and asked.render_error(answer.error)
        output = special or _told(answer.error, asked, if_database=asked.call.if_database)
        output.declined = declined
    if answer.warnings or answer.trace:
        output.stderr = notes(asked, answer) + output.stderr
    if asked.skew is not None:
        from icd.app import versions

        versions.tell(asked.skew, output, answer.error)
    return output


def _told(error: IcError, asked: Ask | Errand, *, if_database: bool) -> Output:
    if if_database and isinstance(error, NoDatabase):
        return Output(UNAVAILABLE)
    return Output(exit_status(asked.context, error), b"", line(asked, asked.context, error))


def notes(asked: Ask | Errand, answer: Answer) -> bytes:
    """What else there is to tell of an answer."""
    program = asked.program
    told = [f"{asked.context}: warning: {advice(program, text)}" for text in answer.warnings]
    lines = [f"{program}: {text}\n" for text in (*told, *answer.trace)]
    return "".join(lines).encode("utf-8", "backslashreplace")


def _word(given: str | None) -> str | None:
    """The environment may hold any bytes; the database holds text."""
    return given.encode("utf-8", "backslashreplace").decode()[:WORD_CHARACTERS] if given else None


def _errand(world: World, local: Local, context: str) -> Errand:
    patience = world.deadline - time.monotonic()
    timeout_ms = world.timeout_ms
    if local.has_own_timeout:
        timeout_ms, patience = None, DEFAULT_DEADLINE_MS / 1000

    def prepare(method: str, params: Params) -> Call:
        # Reading files was the caller's own time.  What is asked for again says so itself.
        later = msgspec.structs.replace(
            world,
            deadline=time.monotonic() + patience,
            timeout_ms=timeout_ms,
            request_id=params.request_id,
        )
        row = registry.find(method)
        assert row is not None, f"{method} is not in the table of methods"
        if row.check is not None:
            row.check(params)
        return _call(later, row, Ask(method, params))

    where = world.where if local.is_about_project else None
    told = context, world.program, world.json_errors
    return Errand(local.run, prepare, *told, world.if_database, where, local.served)


def _is_watched(world: World) -> bool:
    """Whether a person waits, to whom the caller's own process can show how far it is.

    A client of another version does not know the schema that this one's databases have.
    """
    return world.is_terminal and not world.json and world.client_version == __version__


def _call(world: World, method: Method[Any, Any], ask: Ask) -> Call:
    """Attach to the call what concerns every call."""
    runs = method.runs
    if runs.long and runs.is_long(ask.params) and _is_watched(world):
        raise Needed(Need("local"))
    deadline = world.deadline
    if world.timeout_ms is not None:
        limit_ms = min(world.timeout_ms, MAX_DEADLINE_MS)
        deadline = min(deadline, time.monotonic() + limit_ms / 1000)
    params = msgspec.structs.replace(ask.params, request_id=world.request_id)
    env = world.env
    return Call(
        method=method,
        params=params,
        where=world.where if ask.cwd is None else Where(ask.cwd, world.db),
        writer=Writer(
            world.pid,
            _word(world.session),
            _word(env.get("IC_TRACE_ID")),
            _word(env.get("IC_SPAN_ID")),
        ),
        deadline=deadline,
        verbose=world.verbose,
        if_database=world.if_database,
        is_command=True,
        optional=ask.optional or world.if_database,
    )
