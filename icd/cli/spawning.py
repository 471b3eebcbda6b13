"""`icctl dispatch spawn`, `retry`, `auto-spawn` and `kill`: in the caller's own process.

An agent has the caller's directory, environment, limits, sandbox and control group; a daemon has
others.
"""

import os
import time

import click
from msgspec import structs

from icd.agents import spawning
from icd.agents.killing import Target
from icd.agents.launching import Launched
from icd.agents.spawning import Spawned, Wanted
from icd.cli import render
from icd.cli.invocation import Caller, Local, Output, World, line
from icd.core import processes
from icd.core.auto_spawns import Due
from icd.core.dispatches import End
from icd.db import paths
from icd.errors import (
    AgentTaken,
    DispatchOver,
    DispatchRunning,
    IcError,
    SpawnFailed,
    Usage,
)
from icd.rpc.methods import dispatches as methods
from icd.rpc.methods.auto_spawns import AskDue
from icd.rpc.results import Result

SANDBOX = "workspace-write"
PROMPTS = os.path.join(".ic", "prompts")


class Line(Result):
    """What became of an agent of a run; `error` is empty if it was started."""

    agent_id: str
    name: str
    id: str
    error: str


class Killed(Result):
    id: str
    status: str


class Ledger:
    """A spawning.Book: the rows of a database, and what else to say when one is created."""

    def __init__(self, ask: Caller, new: methods.Create) -> None:
        self._ask = ask
        self._new = new

    def create(self, wanted: Wanted, prompt_hash: str, output: str) -> str:
        stored = _text(output)
        new = structs.replace(
            self._new,
            project_dir=_text(wanted.project),
            name=wanted.name,
            model=wanted.model,
            sandbox=wanted.sandbox,
            prompt_file=_text(wanted.prompt) or None,
            prompt_hash=prompt_hash or None,
            output_file=stored,
            verdict_file=f"{stored}.verdict",
            timeout_ms=wanted.timeout_ms,
            runner=processes.identify(os.getpid()),
        )
        made: methods.Document = self._ask("dispatch.create", new)
        return made.id

    def started(self, dispatch_id: str, launched: Launched) -> None:
        agent, runner = launched.agent, launched.runner
        params = methods.Started(
            dispatch_id,
            agent.pid,
            pid_start=agent.start,
            runner_pid=runner.pid,
            runner_start=runner.start,
            boot=agent.boot,
            pidns=agent.pidns,
        )
        self._ask("dispatch.started", params)

    def failed(self, dispatch_id: str, why: str) -> None:
        end = End(id=dispatch_id, status="failed", error_message=_text(why))
        self._ask("dispatch.record", methods.Record(end))

    def status(self, dispatch_id: str) -> str:
        found: methods.Document = self._ask("dispatch.get", methods.Get(dispatch_id))
        return found.status


@click.command("spawn", add_help_option=False, short_help="Start an agent, and answer its id.")
@click.option("--prompt-file", metavar="FILE", help="What the agent is to do.")
@click.option("--type", "agent_type", metavar="T", help="A word for lists; codex unless given.")
@click.option(
    "--project", metavar="DIR", help="Where it works; the current directory unless given."
)
@click.option("--output", metavar="FILE", help="Where its output goes; else a file in $TMPDIR.")
@click.option("--name", metavar="NAME", help="A name for lists.")
@click.option("--model", metavar="MODEL", help="The model that it uses.")
@click.option("--sandbox", metavar="S", help=f"What it may do; {SANDBOX} unless given.")
@click.option("--scope-id", metavar="SCOPE", help="What it works on; a run of this scope is meant.")
@click.option("--run", "run_id", metavar="RUN", help="The run that it belongs to.")
@click.option("--parent-id", metavar="ID", help="The dispatch that it comes from.")
@click.option("--dispatch-sh", "script", metavar="FILE", help="The script that runs the agent.")
@click.argument("command", nargs=-1, metavar="[-- COMMAND...]", type=click.UNPROCESSED)
def spawn(
    world: World,
    *,
    prompt_file: str | None,
    agent_type: str | None,
    project: str | None,
    output: str | None,
    name: str | None,
    model: str | None,
    sandbox: str | None,
    scope_id: str | None,
    run_id: str | None,
    parent_id: str | None,
    script: str | None,
    command: tuple[str, ...],
) -> Local:
    """Start an agent that runs on by itself, and print the id of its dispatch.

    It has the directory, environment and limits that you have here, and nothing else of you: it
    outlives your shell, and no daemon can end it.
    How it ended is recorded in any case.

    The prompt is given to --dispatch-sh, to $CLAVAIN_DISPATCH_SH, to the nearest
    hub/clavain/scripts/dispatch.sh above the project, or else to codex.
    What a script prints goes to a file beside the output, named after it with .log.
    A COMMAND after -- is run instead: the prompt, if there is one, is its standard input, and what
    it prints is the output.

    With --timeout the agent and all that it has started are ended after that time.
    Exit 2 if it cannot be started; the dispatch then says why.

    \b
    Examples:
      icctl dispatch spawn --prompt-file=fix.md --name=fixer --timeout=30m
      icctl dispatch spawn --prompt-file=fix.md --run="$RUN" --json
      icctl dispatch spawn --name=tests -- make test
    """
    argv = _command(world, command)
    if not (prompt_file or argv):
        raise Usage("--prompt-file is missing", hint="or give a command after --")
    _refuse(argv, {"--sandbox": sandbox, "--model": model, "--dispatch-sh": script})
    wanted = Wanted(
        project=_path(world, project or ""),
        prompt=_path(world, prompt_file) if prompt_file else "",
        output=_path(world, output) if output else "",
        name=name,
        model=model,
        sandbox=None if argv else sandbox or SANDBOX,
        script=script,
        argv=argv,
        timeout_ms=world.timeout_ms,
    )
    new = methods.Create(
        wanted.project,
        agent_type=agent_type or ("command" if argv else "codex"),
        run_id=run_id,
        scope_id=scope_id,
        parent_id=parent_id,
    )
    return Local(lambda ask: _shown(world, _spawn(world, ask, new, wanted)), has_own_timeout=True)


@click.command("retry", add_help_option=False, short_help="Start an agent once more.")
@click.argument("dispatch_id", metavar="ID")
@click.option("--model", metavar="MODEL", help="Another model.")
@click.option("--sandbox", metavar="S", help="Another sandbox.")
@click.option("--output", metavar="FILE", help="Where its output goes; else a file in $TMPDIR.")
@click.option("--dispatch-sh", "script", metavar="FILE", help="The script that runs the agent.")
@click.argument("command", nargs=-1, metavar="[-- COMMAND...]", type=click.UNPROCESSED)
def retry(
    world: World,
    *,
    dispatch_id: str,
    model: str | None,
    sandbox: str | None,
    output: str | None,
    script: str | None,
    command: tuple[str, ...],
) -> Local:
    """Start an agent like that of a dispatch that has ended, and print the id of the new dispatch.

    It has the same prompt, type, name, model, sandbox, project, scope, run and time limit, and the
    old dispatch as its parent; its output is a new file.
    A dispatch that was started with a command of its own needs it again, after --.
    Exit 1 if there is no such dispatch, or if it has not ended.

    \b
    Examples:
      icctl dispatch retry k3v9x0qa
      icctl dispatch retry k3v9x0qa --model=gpt-5 --timeout=1h
      icctl dispatch retry k3v9x0qa -- make test
    """
    argv = _command(world, command)
    _refuse(argv, {"--sandbox": sandbox, "--model": model, "--dispatch-sh": script})

    def run(ask: Caller) -> Output:
        old: methods.Document = ask("dispatch.get", methods.Get(dispatch_id))
        if not old.is_over:
            raise DispatchRunning(f"dispatch {dispatch_id} has not ended: it is {old.status}")
        if not argv and (old.sandbox is None or old.prompt_file is None):
            sentence = f"dispatch {dispatch_id} was started with a command of its own"
            raise Usage(sentence, hint="give it again, after --")
        wanted = Wanted(
            project=old.project_dir,
            prompt=old.prompt_file or "",
            output=_path(world, output) if output else "",
            name=old.name,
            model=None if argv else model or old.model,
            sandbox=None if argv else sandbox or old.sandbox,
            script=script,
            argv=argv,
            timeout_ms=world.timeout_ms or old.timeout_ms,
        )
        new = methods.Create(
            old.project_dir,
            agent_type=old.agent_type,
            run_id=old.run_id,
            scope_id=old.scope_id,
            parent_id=old.id,
        )
        return _shown(world, _spawn(world, ask, new, wanted))

    return Local(run, has_own_timeout=True)


@click.command("auto-spawn", add_help_option=False, short_help="Start the agents of a run.")
@click.argument("run_id", metavar="RUN")
def auto_spawn(world: World, *, run_id: str) -> Local:
    """Start every active agent of a run that was not started yet; each of them once.

    The prompt is that of the last dispatch of the agent's name in this run, else the file
    .ic/prompts/NAME.md of the project.
    A line on stderr tells of each, and one that cannot be started keeps no other.

    \b
    Example:
      icctl dispatch auto-spawn "$RUN"
    """

    def run(ask: Caller) -> Output:
        due: list[Due] = ask("dispatch.due", AskDue(run_id))
        lines = [told for each in due if (told := _start(world, ask, run_id, each))]
        output = render.to_json(lines) if world.json else Output(0)
        for each in lines:
            said = f"failed: {each.error}" if each.error else f"started: {each.id}"
            output.stderr += _text(f"[event] auto-spawn: agent {each.name} {said}\n").encode()
        return output

    return Local(run, has_own_timeout=True)


@click.command("kill", add_help_option=False, short_help="End agents with all they started.")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--if-running", is_flag=True, help="Pass over what has ended already.")
def kill(world: World, *, ids: tuple[str, ...], if_running: bool) -> Local:
    """Cancel dispatches, and end their agents with everything that these have started.

    All of it is asked to end (SIGTERM), and killed if it has not after 5 seconds.
    Prints killed for each; exit 1 if one is unknown, or over already and not passed over.

    \b
    Examples:
      icctl dispatch kill k3v9x0qa
      icctl dispatch kill k3v9x0qa p4d8s2mm --if-running
    """

    def run(ask: Caller) -> Output:
        output = Output(0)
        done: list[Killed] = []
        began: list[Target] = []
        for dispatch_id in dict.fromkeys(ids):
            with _Told(world, output, DispatchOver if if_running else None):
                began.append(_cancel(ask, dispatch_id))
        for target in began:
            with _Told(world, output):
                target.finish()
                done.append(Killed(target.id, "cancelled"))
        if world.json:
            shown = render.to_json(done if len(ids) > 1 else done[0]) if done else Output(0)
        else:
            shown = render.text(*("killed" for _ in done))
        output.stdout = shown.stdout
        return output

    return Local(run, has_own_timeout=True)


class _Told:
    """What fails for one of several is told, and does not keep the others."""

    def __init__(self, world: World, output: Output, fine: type[IcError] | None = None) -> None:
        self._program = world.invocation.program
        self._output = output
        self._fine = fine

    def __enter__(self) -> None:
        return

    def __exit__(self, _kind: object, exc: BaseException | None, _trace: object) -> bool:
        if not isinstance(exc, IcError):
            return False
        if self._fine is not None and isinstance(exc, self._fine):
            return True
        self._output.stderr += line(self._program, "dispatch kill", exc)
        self._output.exit = max(self._output.exit, exc.exit)
        return True


def _cancel(ask: Caller, dispatch_id: str) -> Target:
    """The database decides who was first, the agent or whoever cancels it; then it is told."""
    found: methods.Document = ask("dispatch.get", methods.Get(dispatch_id))
    target = Target(dispatch_id, found.subject.runner, found.subject.agent)
    if not found.is_over:
        target.check()
        found = ask("dispatch.cancel", methods.Cancel(dispatch_id, reason="killed"))
        target = Target(dispatch_id, found.subject.runner, found.subject.agent)
    elif found.status != "cancelled" or found.pid is None or not target.is_alive:
        raise DispatchOver(f"dispatch is already {found.status}")
    if found.pid is not None:  # else whoever is about to start it finds out
        target.begin()
    return target


def _start(world: World, ask: Caller, run_id: str, due: Due) -> Line | None:
    """None: somebody else has started it."""
    name = due.name or due.agent_type
    try:
        made = _spawn(
            world,
            ask,
            methods.Create(
                due.project_dir, agent_type=due.agent_type, run_id=run_id, agent_id=due.agent_id
            ),
            Wanted(
                project=due.project_dir,
                prompt=due.prompt_file or _prompt(due.project_dir, name),
                name=due.name,
                sandbox=SANDBOX,
                timeout_ms=world.timeout_ms,
            ),
        )
    except AgentTaken:
        return None
    except IcError as exc:
        return Line(due.agent_id, name, "", exc.message)
    return Line(due.agent_id, name, made.id, "")


def _prompt(project: str, name: str) -> str:
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise SpawnFailed(f"{name!r} is not the name of a prompt")
    path = os.path.join(project, PROMPTS, f"{name}.md")
    if not os.path.isfile(path):
        raise SpawnFailed(f"it has no prompt: {path} is not there")
    return path


def _spawn(world: World, ask: Caller, new: methods.Create, wanted: Wanted) -> Spawned:
    return spawning.spawn(
        Ledger(ask, new),
        wanted,
        cwd=world.invocation.cwd,
        env=world.invocation.env,
        database=paths.canonical(paths.resolve(world.where)),
        now_ns=time.time_ns(),
    )


def _shown(world: World, made: Spawned) -> Output:
    return render.to_json(made) if world.json else render.text(made.id)


def _command(world: World, words: tuple[str, ...]) -> list[str]:
    """A command stands after `--`, so that a forgotten flag is not one."""
    argv = world.invocation.argv
    after = argv[argv.index("--") + 1 :] if "--" in argv else []
    if list(words) != after:
        raise Usage(f"unexpected word: {words[0]}", hint="a command stands after --")
    return after


def _refuse(argv: list[str], given: dict[str, str | None]) -> None:
    """These concern dispatch.sh and codex."""
    for flag, value in given.items():
        if argv and value is not None:
            raise Usage(f"{flag} does not go with a command")


def _path(world: World, given: str) -> str:
    return os.path.normpath(os.path.join(world.invocation.cwd, given))


def _text(path: str) -> str:
    """As it can be stored: an odd byte is spelled out."""
    return path.encode("utf-8", "backslashreplace").decode()


COMMANDS = [spawn, retry, auto_spawn, kill]
