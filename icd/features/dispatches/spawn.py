"""dispatch spawn and retry: a daemon may prepare them; the caller's own process starts the agent.

An agent has the caller's directory, environment, limits, sandbox and control group; a daemon has
others.  So a daemon starts nothing.  For a client that could see and do the same (`reach`) it makes
the row, and tells the client which runner to start (`Order`); the client does so, and asks again
with what the runner has reported, which is then recorded and told.  Without a daemon, and for all
other clients, one process does the same three steps (ADR 22).

Promises
    - the row is there before the process, and whatever happens in between leaves a row that tells
      it: it names the process that is about to start it, and its runner speaks up if that does not;
    - a caller that is answered has an agent that runs, or a row that says why not;
    - a request that is repeated under its id makes no second row.
"""

import os
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Annotated, Any, TypeVar

from msgspec import Struct, structs

from icd import __version__, procfs
from icd.app import render
from icd.app.invocation import (
    Caller,
    Launch,
    Local,
    Output,
    Question,
    Served,
    World,
    converse,
)
from icd.app.verb import Argument, Command, Option
from icd.errors import (
    DispatchOver,
    DispatchRunning,
    IcError,
    SpawnFailed,
    Usage,
)
from icd.features.dispatches.calls import Create, Get, Id, Record, Started
from icd.features.dispatches.kill import Target
from icd.features.dispatches.launch import (
    Order,
    Own,
    Running,
    hash_prompt,
    is_same,
    launch,
    order,
    program,
    read_report,
    refuse_untrusted,
    text,
)
from icd.features.dispatches.store import Dispatch, End
from icd.values import processes, reach
from icd.values.wire import Result

T = TypeVar("T")
Steps = Generator[Question, Any, T]

SANDBOX = "workspace-write"

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
        request_id=world.request_id,
    )
    return _local(world, lambda: _given(wanted), own)


def ask_retry(world: World, f: Retry) -> Local:
    own = _own(world, f)

    def wanted() -> Steps[Create]:
        old: Dispatch = yield Question("dispatch.get", Get(f.id))
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
            request_id=world.request_id,
        )

    return _local(world, wanted, own)


def _given(wanted: Create) -> Steps[Create]:
    yield from ()
    return wanted


def _local(world: World, wanted: Callable[[], Steps[Create]], own: Own) -> Local:
    if world.launched:
        return _report(world)

    def run(ask: Caller) -> Output:
        return _shown(world, spawn(world, ask, converse(ask, wanted()), own))

    def steps() -> Steps[Output]:
        made = yield from _prepare(world, (yield from wanted()), own, world.peer)
        return Output(0, launch=Launch(made.order.argv, made.order.job))

    # The runner is loaded from the disk: a daemon of another version may not know its words.
    is_served = world.launches and world.client_version == __version__
    served = Served(world.cwd, lambda: _fits(world), steps) if is_served else None
    return Local(run, has_own_timeout=True, served=served)


def _fits(world: World) -> bool:
    """Whether a daemon sees what the client sees, and the client still waits for it.

    The peer is the client itself, and no relay: it is the one that is about to start the runner.
    """
    found = procfs.stat(world.peer) if world.peer else None
    if world.peer is None or found is None or found.parent != world.pid:
        return False
    return reach.is_as_free(world.peer) and time.monotonic() < world.deadline


def _shown(world: World, made: Spawned) -> Output:
    return render.to_json(made) if world.json else render.text(made.id)


# --- the three steps ------------------------------------------------------------------------------


class Prepared(Struct, frozen=True):
    id: str
    order: Order


def spawn(world: World, ask: Caller, wanted: Create, own: Own) -> Spawned:
    """Decide, start, record.  The paths in `wanted` are as the operating system has them."""
    made = converse(ask, _prepare(world, wanted, own))
    try:
        launched = launch(made.order)
    except SpawnFailed as exc:
        converse(ask, _record_failure(made.id, exc))
        raise
    try:
        if converse(ask, _record_start(made.id, launched.running)):
            launched.is_recorded()
    except DispatchOver:
        _end(made.id, launched.running)
        raise
    finally:
        launched.leave()
    return Spawned(made.id, launched.running.agent.pid)


def _prepare(world: World, wanted: Create, own: Own, peer: int | None = None) -> Steps[Prepared]:
    """Make the row, and all that is needed to start its runner; `peer`: in another process."""
    if world.acts_as is not None:  # it would get root's environment
        uid = world.acts_as
        raise SpawnFailed(
            f"root does not start programs for user {uid}", hint="run the command as that user"
        )
    output, database = wanted.output_file or _default_output(world, wanted), world.database
    row = _row(wanted, output, peer or os.getpid())
    chosen = program(world, wanted, output, own, database)
    made: Dispatch = yield Question("dispatch.create", row)
    return Prepared(made.id, order(made.id, wanted, chosen, output, database, peer=peer))


def _record_start(dispatch_id: str, found: Running) -> Steps[bool]:
    """Whether it is recorded that it runs; what we cannot record, its runner does."""
    params = Started(
        dispatch_id,
        found.agent.pid,
        pid_start=found.agent.start,
        runner_pid=found.runner.pid,
        runner_start=found.runner.start,
        boot=found.agent.boot,
        pidns=found.agent.pidns,
    )
    try:
        yield Question("dispatch.started", params)
    except DispatchOver:
        over: Dispatch = yield Question("dispatch.get", Get(dispatch_id))
        if over.status == "cancelled":
            raise
        # It was quicker than we are.
    except IcError:
        return False
    return True


def _record_failure(dispatch_id: str, why: IcError) -> Steps[None]:
    end = End(id=dispatch_id, status="failed", error_message=text(why.message))
    with suppress(IcError):  # then the next look finds us gone, and nothing started
        yield Question("dispatch.record", Record(end))


def _end(dispatch_id: str, found: Running) -> None:
    """End an agent that was cancelled while it was started."""
    target = Target(dispatch_id, found.runner, found.agent)
    target.begin()
    target.finish()


def _report(world: World) -> Local:
    """The last step, if another process has taken the others: what its runner reported."""
    dispatch_id, _, said = world.launched.partition(" ")

    def run(ask: Caller) -> Output:
        try:
            return converse(ask, steps(is_last=True))
        except DispatchOver:
            _end(dispatch_id, read_report(said))
            raise

    def steps(*, is_last: bool = False) -> Steps[Output]:
        try:
            found = read_report(said)
        except SpawnFailed as exc:
            yield from _record_failure(dispatch_id, exc)
            raise
        is_recorded = yield from _record_start(dispatch_id, found)
        output = _shown(world, Spawned(dispatch_id, found.agent.pid))
        output.declined = not (is_recorded or is_last)
        return output

    served = Served(world.cwd, lambda: True, steps)
    return Local(run, has_own_timeout=True, served=served)


def _row(wanted: Create, output: str, starter: int) -> Create:
    """What to note of the dispatch, with paths as they can be stored."""
    prompt = wanted.prompt_file
    hashed = hash_prompt(prompt) if prompt else None
    if prompt and is_same(prompt, output):
        raise Usage("the output would replace the prompt", hint="choose another --output")
    return structs.replace(
        wanted,
        project_dir=text(wanted.project_dir),
        prompt_file=text(prompt) if prompt else None,
        prompt_hash=hashed,
        output_file=text(output),
        verdict_file=text(f"{output}.verdict"),
        runner=processes.identify(starter),
    )


def _default_output(world: World, wanted: Create) -> str:
    """A new file; for a request that is repeated, the same one."""
    place = world.env.get("TMPDIR") or "/tmp"
    return os.path.join(world.cwd, place, f"ic-dispatch-{wanted.request_id or time.time_ns()}.md")


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
