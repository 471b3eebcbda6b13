"""dispatch auto-spawn: the agents of a run, started by the caller that moved it on.

An agent is started once: the caller claims it in the transaction that creates the dispatch
(`store.claim_agent`), so of two that find the same agent here one is refused.
"""

import os
from typing import Annotated

from msgspec import Struct

from icd.app import render
from icd.app.call import Context, Params
from icd.app.invocation import Caller, Local, Output, World, line
from icd.app.verb import Argument, Command, Method
from icd.errors import AgentTaken, IcError, RunOver, SpawnFailed, Untrusted
from icd.features.dispatches.calls import Create
from icd.features.dispatches.launch import Own, refuse_untrusted, text
from icd.features.dispatches.spawn import SANDBOX, spawn
from icd.features.runs import store as runs
from icd.values.wire import Result

PROMPTS = os.path.join(".ic", "prompts")

_DUE = """
SELECT a.id, a.agent_type, a.name, d.prompt_file, d.model, d.sandbox
FROM run_agents AS a LEFT JOIN dispatches AS d ON d.id =
       (SELECT id FROM dispatches
        WHERE run_id = a.run_id AND name = a.name AND prompt_file IS NOT NULL
        ORDER BY created_ms DESC, rowid DESC LIMIT 1)
WHERE a.run_id = ? AND a.status = 'active' AND a.dispatch_id IS NULL
ORDER BY a.created_at, a.rowid
"""


class Due(Struct, frozen=True):
    """An agent to start; as the last dispatch of its name in this run, if there was one."""

    agent_id: str
    agent_type: str
    name: str | None
    project_dir: str
    prompt_file: str | None
    model: str | None
    sandbox: str | None

    @property
    def title(self) -> str:
        return self.name or self.agent_type

    @property
    def prompt(self) -> str:
        return self.prompt_file or os.path.join(self.project_dir, PROMPTS, f"{self.title}.md")


class AskDue(Params):
    """Find the active agents of a run that have not been started."""

    run_id: Annotated[str, Argument("RUN", "Id of the run.")]


class AutoSpawn(AskDue):
    """Start every active agent of a run that has not been started, each once.

    Prompt, model and sandbox are those of the last dispatch of the agent's name in this run;
    without one, the prompt is the project's file .ic/prompts/NAME.md.
    A line on stderr reports each agent; a failure does not stop the others.

    The rows of the database decide what runs, so it must be trusted: a database created here is;
    trust any other with 'icctl trust'.
    """


class Line(Result):
    """What became of an agent of a run; `error` is empty if it was started."""

    agent_id: str
    name: str
    id: str
    error: str


def due(ctx: Context, p: AskDue) -> list[Due]:
    run = runs.require(ctx.conn, p.run_id)
    if run.status != "active":
        raise RunOver(f"run {run.id} is {run.status}")
    return [
        Due(agent_id, agent_type, name, run.project_dir, *earlier)
        for agent_id, agent_type, name, *earlier in ctx.conn.execute(_DUE, (run.id,))
    ]


def ask_auto_spawn(world: World, f: AutoSpawn) -> Local:
    return Local(lambda ask: _auto_spawn(world, ask, f.run_id), has_own_timeout=True)


def _auto_spawn(world: World, ask: Caller, run_id: str) -> Output:
    found: list[Due] = ask("dispatch.due", AskDue(run_id))
    try:
        if found:
            refuse_untrusted(world, f"no agent of run {run_id} was started")
    except Untrusted as exc:  # the caller that moved the run on has moved it on all the same
        return _shown(world, [_failed(each, exc.message) for each in found], exc)
    lines = [told for each in found if (told := _start(world, ask, run_id, each))]
    return _shown(world, lines)


def _start(world: World, ask: Caller, run_id: str, due: Due) -> Line | None:
    """None: another caller has started it."""
    try:
        wanted = Create(
            due.project_dir,
            agent_type=due.agent_type,
            run_id=run_id,
            name=due.name,
            model=due.model,
            sandbox=due.sandbox or SANDBOX,
            prompt_file=due.prompt_file or _prompt(due),
            timeout_ms=world.timeout_ms,
            agent_id=due.agent_id,
        )
        made = spawn(world, ask, wanted, Own())
    except AgentTaken:
        return None
    except IcError as exc:
        hint = f"; {exc.hint}" if isinstance(exc, Untrusted) else ""
        return _failed(due, exc.message + hint)
    return Line(due.agent_id, due.title, made.id, "")


def _prompt(due: Due) -> str:
    name = due.title
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise SpawnFailed(f"{name!r} is not a valid name for a prompt")
    if not os.path.isfile(due.prompt):
        raise SpawnFailed(f"it has no prompt: {due.prompt} does not exist")
    return due.prompt


def _failed(due: Due, why: str) -> Line:
    return Line(due.agent_id, due.title, "", why)


def _shown(world: World, lines: list[Line], withheld: IcError | None = None) -> Output:
    output = render.to_json(lines) if world.json else Output(0)
    if withheld is not None:
        output.stderr = line(world, "auto-spawn", withheld)
        return output
    for each in lines:
        said = f"failed: {each.error}" if each.error else f"started: {each.id}"
        output.stderr += text(f"[event] auto-spawn: agent {each.name} {said}\n").encode()
    return output


VERBS = [
    Method("dispatch.due", AskDue, list[Due], due),
    Command(
        "dispatch auto-spawn",
        AutoSpawn,
        ask_auto_spawn,
        summary="Start the agents of a run.",
        examples=['icctl dispatch auto-spawn "$RUN"'],
    ),
]
