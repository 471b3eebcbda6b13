"""`icctl dispatch spawn` and `retry`: in the caller's own process.

An agent has the caller's directory, environment, limits, sandbox and control group; a daemon has
others.
"""

import os
import time

import click
from msgspec import structs

from icd import trust
from icd.app import render
from icd.app.invocation import Caller, Local, Output, World
from icd.db import paths
from icd.errors import DispatchRunning, SpawnFailed, Untrusted, Usage
from icd.features.dispatches import methods
from icd.features.dispatches.agent import spawning
from icd.features.dispatches.agent.launching import Launched
from icd.features.dispatches.agent.spawning import Spawned, Wanted
from icd.features.dispatches.store import End
from icd.values import processes

SANDBOX = "workspace-write"


class Ledger:
    """A spawning.Book: the rows of a database, and what else to say when one is created."""

    def __init__(self, ask: Caller, new: methods.Create) -> None:
        self._ask = ask
        self._new = new

    def create(self, wanted: Wanted, prompt_hash: str, output: str) -> str:
        stored = text(output)
        new = structs.replace(
            self._new,
            project_dir=text(wanted.project),
            name=wanted.name,
            model=wanted.model,
            sandbox=wanted.sandbox,
            prompt_file=text(wanted.prompt) or None,
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
        end = End(id=dispatch_id, status="failed", error_message=text(why))
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
    hub/clavain/scripts/dispatch.sh above the project if you accepted that with 'icctl trust', or
    else to codex, on its standard input.
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
    return Local(lambda ask: _shown(world, start(world, ask, new, wanted)), has_own_timeout=True)


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
    The database says what runs, and where: one that is not trusted is refused, see 'icctl trust'.
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
        refuse_untrusted(world, f"dispatch {dispatch_id} was not started again")
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
        return _shown(world, start(world, ask, new, wanted))

    return Local(run, has_own_timeout=True)


def refuse_untrusted(world: World, what: str) -> None:
    """Raise if it is the rows of a database that decide what runs, and it may be a stranger's."""
    database = paths.canonical(paths.resolve(world.where))
    why = trust.objection(world.env.get("HOME"), database)
    if why:
        raise Untrusted(f"{what}: {text(database)} is not trusted: {text(why)}")


def start(world: World, ask: Caller, new: methods.Create, wanted: Wanted) -> Spawned:
    if world.acts_as is not None:  # it would get root's environment
        uid = world.acts_as
        raise SpawnFailed(f"root starts no programs for user {uid}", hint="run it as that user")
    return spawning.spawn(
        Ledger(ask, new),
        wanted,
        cwd=world.cwd,
        env=world.env,
        database=paths.canonical(paths.resolve(world.where)),
        now_ns=time.time_ns(),
    )


def _shown(world: World, made: Spawned) -> Output:
    return render.to_json(made) if world.json else render.text(made.id)


def _command(world: World, words: tuple[str, ...]) -> list[str]:
    """A command stands after `--`, so that a forgotten flag is not one."""
    argv = world.argv
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
    return os.path.normpath(os.path.join(world.cwd, given))


def text(path: str) -> str:
    """As it can be stored: an odd byte is spelled out."""
    return path.encode("utf-8", "backslashreplace").decode()


COMMANDS = [spawn, retry]
