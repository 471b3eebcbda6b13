"""dispatch spawn and retry: in the caller's own process.

An agent has the caller's directory, environment, limits, sandbox and control group; a daemon has
others.

Promises
    - the row is there before the process, and whatever happens in between leaves a row that tells
      it: it names us as the ones about to start it, and its runner speaks up if we do not;
    - a caller that is answered has an agent that runs, or a row that says why not.
"""

import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated

from msgspec import Struct, structs

from icd.app import render
from icd.app.invocation import Caller, Local, Output, World
from icd.app.verb import Argument, Command, Option
from icd.errors import (
    DispatchOver,
    DispatchRunning,
    IcError,
    SpawnFailed,
    UnreadableInput,
    Usage,
)
from icd.features.dispatches.calls import Create, Get, Id, Record, Started
from icd.features.dispatches.kill import Target
from icd.features.dispatches.launch import Launched, Own, launch, program, refuse_untrusted, text
from icd.features.dispatches.store import Dispatch, End
from icd.values import processes
from icd.values.wire import Result

SANDBOX = "workspace-write"
HASH_CHARACTERS = 16
READ_BYTES = 1024 * 1024

OutputFile = Annotated[
    str | None, Option("--output", "File for the output (default: a new file in $TMPDIR).", "FILE")
]
Script = Annotated[str | None, Option("--dispatch-sh", "Script that runs the agent.", "FILE")]
Words = Annotated[
    tuple[str, ...],
    Argument("COMMAND", "Command to run instead of an agent.", nargs=-1, usage="[-- COMMAND...]"),
]


class Spawn(Struct, kw_only=True):
    """Start an agent in the background, and print the id of its dispatch.

    The agent gets your directory, environment and resource limits, and nothing else: it outlives
    your shell and the daemon.
    Its end is always recorded.

    The prompt goes to --dispatch-sh, to $CLAVAIN_DISPATCH_SH, to the nearest
    hub/clavain/scripts/dispatch.sh above the project if you accepted that with 'icctl trust', or
    else to the standard input of codex.
    The output of a script goes to a file next to the output file, with the suffix .log.
    A COMMAND after -- runs instead: its standard input is the prompt, if there is one, and its
    output is the output of the dispatch.

    With --timeout, the agent and its child processes are killed after that time.
    Exit 2 if the agent cannot be started; the dispatch records the reason.
    """

    prompt_file: Annotated[str | None, Option("--prompt-file", "File with the prompt.", "FILE")] = (
        None
    )
    agent_type: Annotated[
        str | None, Option("--type", "Type of the agent (default codex).", "T")
    ] = None
    project: Annotated[
        str, Option("--project", "Working directory (default: the current directory).", "DIR")
    ] = ""
    output: OutputFile = None
    name: Annotated[str | None, Option("--name", "Name of the dispatch.", "NAME")] = None
    model: Annotated[str | None, Option("--model", "Model of the agent.", "MODEL")] = None
    sandbox: Annotated[
        str | None, Option("--sandbox", f"Sandbox of the agent (default {SANDBOX}).", "S")
    ] = None
    scope_id: Annotated[
        str | None,
        Option(
            "--scope-id",
            "Scope, or run id; without --run, it selects the active or else the latest run.",
            "SCOPE",
        ),
    ] = None
    run_id: Annotated[str | None, Option("--run", "Id of the run.", "RUN")] = None
    parent_id: Annotated[str | None, Option("--parent-id", "Id of the parent dispatch.", "ID")] = (
        None
    )
    script: Script = None
    command: Words = ()


class Retry(Struct, kw_only=True):
    """Start the agent of an ended dispatch again, and print the id of the new dispatch.

    The new dispatch has the same prompt, type, name, model, sandbox, project, scope, run and time
    limit, the old dispatch as its parent, and a new output file.
    A dispatch that ran a COMMAND needs it again, after --.
    The database decides what runs and where, so it must be trusted; see 'icctl trust'.
    Exit 1 if the dispatch is unknown or has not ended.
    """

    id: Id
    model: Annotated[
        str | None, Option("--model", "Model, instead of the earlier one.", "MODEL")
    ] = None
    sandbox: Annotated[
        str | None, Option("--sandbox", "Sandbox, instead of the earlier one.", "S")
    ] = None
    output: OutputFile = None
    script: Script = None
    command: Words = ()


class Spawned(Result):
    id: str
    pid: int


def ask_spawn(world: World, f: Spawn) -> Local:
    own = _own(world, f)
    if not (f.prompt_file or own.argv):
        raise Usage("--prompt-file is missing", hint="or pass a command after --")
    wanted = Create(
        _path(world, f.project),
        agent_type=f.agent_type or ("command" if own.argv else "codex"),
        run_id=f.run_id,
        scope_id=f.scope_id,
        parent_id=f.parent_id,
        name=f.name,
        model=f.model,
        sandbox=None if own.argv else f.sandbox or SANDBOX,
        prompt_file=_path(world, f.prompt_file) if f.prompt_file else None,
        output_file=_path(world, f.output) if f.output else None,
        timeout_ms=world.timeout_ms,
    )
    return _local(world, lambda _ask: wanted, own)


def ask_retry(world: World, f: Retry) -> Local:
    own = _own(world, f)

    def wanted(ask: Caller) -> Create:
        old: Dispatch = ask("dispatch.get", Get(f.id))
        if not old.is_over:
            raise DispatchRunning(f"dispatch {f.id} has not ended: it is {old.status}")
        if not own.argv and (old.sandbox is None or old.prompt_file is None):
            sentence = f"dispatch {f.id} was started with a command"
            raise Usage(sentence, hint="pass it again, after --")
        refuse_untrusted(world, f"dispatch {f.id} was not started again")
        return Create(
            old.project_dir,
            agent_type=old.agent_type,
            run_id=old.run_id,
            scope_id=old.scope_id,
            parent_id=old.id,
            name=old.name,
            model=None if own.argv else f.model or old.model,
            sandbox=None if own.argv else f.sandbox or old.sandbox,
            prompt_file=old.prompt_file,
            output_file=_path(world, f.output) if f.output else None,
            timeout_ms=world.timeout_ms or old.timeout_ms,
        )

    return _local(world, wanted, own)


def _local(world: World, wanted: Callable[[Caller], Create], own: Own) -> Local:
    def run(ask: Caller) -> Output:
        made = spawn(world, ask, wanted(ask), own)
        return render.to_json(made) if world.json else render.text(made.id)

    return Local(run, has_own_timeout=True)


def spawn(world: World, ask: Caller, wanted: Create, own: Own) -> Spawned:
    """Decide, start, record.  The paths in `wanted` are as the operating system has them."""
    if world.acts_as is not None:  # it would get root's environment
        uid = world.acts_as
        raise SpawnFailed(
            f"root does not start programs for user {uid}", hint="run the command as that user"
        )
    output, database = wanted.output_file or _default_output(world), world.database
    row = _row(wanted, output)
    chosen = program(world, wanted, output, own, database)
    made: Dispatch = ask("dispatch.create", row)
    try:
        launched = launch(made.id, wanted, chosen, output, database)
    except SpawnFailed as exc:
        end = End(id=made.id, status="failed", error_message=text(exc.message))
        with suppress(IcError):  # then the next look finds us gone, and nothing started
            ask("dispatch.record", Record(end))
        raise
    try:
        _record(ask, made.id, launched)
    finally:
        launched.leave()
    return Spawned(made.id, launched.agent.pid)


def _row(wanted: Create, output: str) -> Create:
    """What to note of the dispatch, with paths as they can be stored."""
    prompt = wanted.prompt_file
    hashed = _hash(prompt) if prompt else None
    if prompt and _is_same(prompt, output):
        raise Usage("the output would replace the prompt", hint="choose another --output")
    return structs.replace(
        wanted,
        project_dir=text(wanted.project_dir),
        prompt_file=text(prompt) if prompt else None,
        prompt_hash=hashed,
        output_file=text(output),
        verdict_file=text(f"{output}.verdict"),
        runner=processes.identify(os.getpid()),
    )


def _default_output(world: World) -> str:
    place = world.env.get("TMPDIR") or "/tmp"
    return os.path.join(world.cwd, place, f"ic-dispatch-{time.time_ns()}.md")


def _record(ask: Caller, dispatch_id: str, launched: Launched) -> None:
    """Record that it runs; what we cannot record, its runner does."""
    agent, runner = launched.agent, launched.runner
    params = Started(
        dispatch_id,
        agent.pid,
        pid_start=agent.start,
        runner_pid=runner.pid,
        runner_start=runner.start,
        boot=agent.boot,
        pidns=agent.pidns,
    )
    try:
        ask("dispatch.started", params)
    except DispatchOver:
        found: Dispatch = ask("dispatch.get", Get(dispatch_id))
        if found.status == "cancelled":
            target = Target(dispatch_id, runner, agent)
            target.begin()
            target.finish()
            raise
        # It was quicker than we are.
    except IcError:
        return
    launched.is_recorded()


def _hash(path: str) -> str:
    """The first digits of its SHA-256."""
    import hashlib  # only a spawn with a prompt pays for it

    found = hashlib.sha256()
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise UnreadableInput(f"hash prompt: {path} is not a regular file")
            while data := file.read(READ_BYTES):
                found.update(data)
    except OSError as exc:
        raise UnreadableInput(f"hash prompt: cannot read {path}: {exc.strerror}") from exc
    return found.hexdigest()[:HASH_CHARACTERS]


def _is_same(prompt: str, output: str) -> bool:
    try:
        return os.path.samefile(prompt, output)
    except OSError:
        return False  # the output is yet to be made


def _own(world: World, f: Spawn | Retry) -> Own:
    """A command stands after `--`, so that a forgotten flag is not one."""
    words = world.argv
    argv = words[words.index("--") + 1 :] if "--" in words else []
    if list(f.command) != argv:
        raise Usage(f"unexpected word: {f.command[0]}", hint="put a command after --")
    for flag, value in (
        ("--sandbox", f.sandbox),
        ("--model", f.model),
        ("--dispatch-sh", f.script),
    ):
        if argv and value is not None:
            raise Usage(f"{flag} cannot be combined with a command")
    return Own(f.script, argv)


def _path(world: World, given: str) -> str:
    return os.path.normpath(os.path.join(world.cwd, given))


VERBS = [
    Command(
        "dispatch spawn",
        Spawn,
        ask_spawn,
        summary="Start an agent and print its dispatch id.",
        examples=[
            "icctl dispatch spawn --prompt-file=fix.md --name=fixer --timeout=30m",
            'icctl dispatch spawn --prompt-file=fix.md --run="$RUN" --json',
            "icctl dispatch spawn --name=tests -- make test",
        ],
    ),
    Command(
        "dispatch retry",
        Retry,
        ask_retry,
        summary="Start an ended dispatch again.",
        examples=[
            "icctl dispatch retry k3v9x0qa",
            "icctl dispatch retry k3v9x0qa --model=gpt-5 --timeout=1h",
            "icctl dispatch retry k3v9x0qa -- make test",
        ],
    ),
]
