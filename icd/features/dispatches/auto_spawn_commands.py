"""`icctl dispatch auto-spawn`: the agents of a run, started by whoever moved it on."""

import os

import click

from icd.app import render
from icd.app.invocation import Caller, Local, Output, World, line
from icd.errors import AgentTaken, IcError, SpawnFailed, Untrusted
from icd.features.dispatches import methods
from icd.features.dispatches.agent.spawning import Wanted
from icd.features.dispatches.auto_spawn import Due
from icd.features.dispatches.auto_spawn_methods import AskDue
from icd.features.dispatches.spawn import SANDBOX, refuse_untrusted, start, text
from icd.values.wire import Result

PROMPTS = os.path.join(".ic", "prompts")


class Line(Result):
    """What became of an agent of a run; `error` is empty if it was started."""

    agent_id: str
    name: str
    id: str
    error: str


@click.command("auto-spawn", add_help_option=False, short_help="Start the agents of a run.")
@click.argument("run_id", metavar="RUN")
def auto_spawn(world: World, *, run_id: str) -> Local:
    """Start every active agent of a run that was not started yet; each of them once.

    Prompt, model and sandbox are those of the last dispatch of the agent's name in this run; if
    there was none, the prompt is the file .ic/prompts/NAME.md of the project.
    A line on stderr tells of each, and one that cannot be started keeps no other.

    The rows of the database decide what runs, so it must be trusted: one that was made here is;
    any other is accepted with 'icctl trust'.

    \b
    Example:
      icctl dispatch auto-spawn "$RUN"
    """

    def run(ask: Caller) -> Output:
        due: list[Due] = ask("dispatch.due", AskDue(run_id))
        try:
            if due:
                refuse_untrusted(world, f"no agent of run {run_id} was started")
        except Untrusted as exc:
            return _withheld(world, due, exc)
        lines = [told for each in due if (told := _start(world, ask, run_id, each))]
        output = render.to_json(lines) if world.json else Output(0)
        for each in lines:
            said = f"failed: {each.error}" if each.error else f"started: {each.id}"
            output.stderr += text(f"[event] auto-spawn: agent {each.name} {said}\n").encode()
        return output

    return Local(run, has_own_timeout=True)


def _withheld(world: World, due: list[Due], why: IcError) -> Output:
    """Like agents that cannot be started: whoever moved the run on has moved it on."""
    lines = [Line(each.agent_id, each.name or each.agent_type, "", why.message) for each in due]
    output = render.to_json(lines) if world.json else Output(0)
    output.stderr = line(world.program, "auto-spawn", why)
    return output


def _start(world: World, ask: Caller, run_id: str, due: Due) -> Line | None:
    """None: somebody else has started it."""
    name = due.name or due.agent_type
    try:
        made = start(
            world,
            ask,
            methods.Create(
                due.project_dir, agent_type=due.agent_type, run_id=run_id, agent_id=due.agent_id
            ),
            Wanted(
                project=due.project_dir,
                prompt=due.prompt_file or _prompt(due.project_dir, name),
                name=due.name,
                model=due.model,
                sandbox=due.sandbox or SANDBOX,
                timeout_ms=world.timeout_ms,
            ),
        )
    except AgentTaken:
        return None
    except IcError as exc:
        told = f"{exc.message}; {exc.hint}" if isinstance(exc, Untrusted) else exc.message
        return Line(due.agent_id, name, "", told)
    return Line(due.agent_id, name, made.id, "")


def _prompt(project: str, name: str) -> str:
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise SpawnFailed(f"{name!r} is not the name of a prompt")
    path = prompt_path(project, name)
    if not os.path.isfile(path):
        raise SpawnFailed(f"it has no prompt: {path} is not there")
    return path


def prompt_path(project: str, name: str) -> str:
    return os.path.join(project, PROMPTS, f"{name}.md")


COMMANDS = [auto_spawn]
