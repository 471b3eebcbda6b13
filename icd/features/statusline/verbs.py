"""statusline: what is going on in a session, in one call."""

import os
from collections.abc import Callable
from functools import partial
from typing import Annotated, Literal

from msgspec import UNSET, Meta, structs

from icd.app import invocation, render
from icd.app.call import ANYTHING, Answer, Context, Params, Topic
from icd.app.invocation import Ask, Output, World
from icd.app.verb import Command, Method, Option, Stream, narrow
from icd.errors import IcError, NoDatabase, Usage
from icd.features.runs.verbs import project_of
from icd.features.statusline import agent, store
from icd.features.statusline.store import Statusline
from icd.values.processes import is_alive
from icd.values.validation import check_scope

PREFIX = "INTERCORE_STATUS_"
GOAL_CHARACTERS = 40  # of a run, in the text: it is a sentence, and stands among others

Show = Callable[[Statusline], Output]


def _session(world: World, given: str | None) -> str:
    found = world.session if given is None else given
    return found.encode("utf-8", "backslashreplace").decode()


class Get(Params):
    """Return the status of a session; `session` itself is the caller's."""

    session_id: Annotated[
        str,
        Meta(description="Id of the session to describe."),
        Option("--session", "Session id (default: the caller's session).", "SID", resolve=_session),
        check_scope,
    ] = ""
    agent: Annotated[
        str | None, Option("--agent", "Show the coordination signal of this agent.", "ID")
    ] = None
    project: Annotated[
        str | None, Option("--project", "Use the database of this directory.", "DIR")
    ] = None


class Form(Get):
    """Print the status of a session: dispatch, bead, lane, coordination, pressure, budget and run.

    Unknown fields are empty; the exit code is 0 even if all are, or if there is no database.
    With --format=sh, the line assigns variables named INTERCORE_STATUS_... and is safe to eval.
    With --watch, prints a line at once and whenever anything but an age changes.
    With --from=claude, reads the agent's JSON from stdin, which tells the session and the
    directory, and prints one coloured line for the agent, no wider than $COLUMNS; NO_COLOR counts.
    """

    format: Annotated[
        Literal["text", "sh", "tsv", "json"] | None,
        Option("--format", "Output format (default text)."),
    ] = None
    watch: Annotated[bool, Option("--watch", "Follow: print a line whenever it changes.")] = False
    agent_json: Annotated[
        Literal["claude"] | None, Option("--from", "Read the JSON of this agent from stdin.")
    ] = None


def get(ctx: Context, p: Get) -> Statusline:
    return store.read(
        ctx.conn,
        p.session_id,
        agent=p.agent or None,
        project=lambda: project_of(ctx, p.cwd, p.project),
        is_alive=is_alive,
        now_ms=ctx.now_ms,
    )


def _everything(_: Get) -> Topic:
    """Rows of state, and what happens to runs."""
    return ANYTHING


def ask_statusline(world: World, f: Form) -> Ask:
    if world.json and f.format not in {None, "json"}:
        raise Usage(f"--json cannot be combined with --format={f.format}")
    form = "json" if world.json else f.format
    if f.agent_json is not None:
        return _ask_for_agent(world, f, form)
    show = SHOW[form or "text"]
    cwd = os.path.normpath(os.path.join(world.cwd, f.project)) if f.project else None
    params = narrow(f, Get, cwd=world.cwd)
    return _watch(params, show, cwd, None) if f.watch else _ask(params, show, cwd)


def _ask_for_agent(world: World, f: Form, form: str | None) -> Ask:
    """An agent shows what is printed, and nothing after a failure: so there is always a line."""
    if f.watch:
        raise Usage("--watch cannot be combined with --from")
    figures = agent.read(world.read_stdin(agent.EVENT_BYTES))
    session = f.session_id if f.session_id != world.session else figures.session or world.session
    directory = figures.directory or world.cwd
    world.where = structs.replace(world.where, cwd=directory)
    params = narrow(f, Get, cwd=directory, session_id=session)
    cwd = os.path.normpath(os.path.join(directory, f.project)) if f.project else None
    width = agent.width_of(world.env.get("COLUMNS", ""))
    colour = not world.env.get("NO_COLOR")
    show = partial(agent.show, figures, width=width, colour=colour)
    ask = _ask(params, SHOW[form] if form else show, cwd)

    def without(error: IcError) -> Output:
        output = ask.render(_nothing(params))
        if not isinstance(error, NoDatabase):
            output.stderr = invocation.line(world, "statusline", error)
        return output

    return structs.replace(ask, render_error=without)


def _ask(params: Get, show: Show, cwd: str | None) -> Ask:
    def without(error: IcError) -> Output | None:
        return show(_nothing(params)) if isinstance(error, NoDatabase) else None

    return Ask("statusline.get", params, show, render_error=without, cwd=cwd, optional=True)


def _watch(params: Get, show: Show, cwd: str | None, last: bytes | None) -> Ask:
    """`last` is what was shown before, ages aside."""
    ask = _ask(params, lambda line: show(line) if _ageless(line, show) != last else Output(0), cwd)

    def follow(answer: Answer) -> Ask | None:
        if answer.error is not None and not isinstance(answer.error, NoDatabase):
            return None
        line = _nothing(params) if answer.error else answer.result
        return _watch(params, show, cwd, _ageless(line, show))

    return structs.replace(ask, follow=follow)


def _nothing(params: Get) -> Statusline:
    return Statusline(session=params.session_id)


def _ageless(line: Statusline, show: Show) -> bytes:
    """What would be shown if time stood still: growing older is no news."""
    parts = structs.asdict(line).items()
    still = {name: structs.replace(part, age=0) for name, part in parts if hasattr(part, "age")}
    return show(structs.replace(line, **still)).stdout


# --- formats --------------------------------------------------------------------------------------


def _fields(line: Statusline) -> dict[str, object]:
    """What scripts get, in this order for ever: new ones are added at the end."""
    dispatch, bead, lane, run = line.dispatch, line.bead, line.lane, line.run
    coordination, pressure, budget = line.coordination, line.pressure, line.budget
    return {
        "DISPATCH": dispatch and dispatch.name,
        "DISPATCH_ACTIVITY": dispatch and dispatch.activity,
        "DISPATCH_PID": dispatch and dispatch.pid,
        "DISPATCH_ALIVE": dispatch and dispatch.alive,
        "DISPATCH_AGE": dispatch and dispatch.age,
        "BEAD": bead and bead.id,
        "BEAD_PHASE": bead and bead.phase,
        "BEAD_AGE": bead and bead.age,
        "LANE": lane and lane.name,
        "COORDINATION": coordination and coordination.text,
        "COORDINATION_COUNT": coordination and coordination.count,
        "PRESSURE": pressure and pressure.level,
        "PRESSURE_VALUE": pressure and pressure.pressure,
        "BUDGET": budget and budget.pct_consumed,
        "BUDGET_TOKENS": budget and budget.total_tokens,
        "RUN": run and run.id,
        "RUN_PHASE": run and run.phase,
        "RUN_GOAL": run and run.goal,
        "RESERVATIONS": None if line.reservations is UNSET else line.reservations,
    }


def _word(value: object) -> str:
    if value is None:
        return ""
    return str(int(value)) if isinstance(value, bool) else str(value)


def _sh(line: Statusline) -> Output:
    """One line of assignments; between single quotes a shell leaves everything alone."""
    pairs = ((name, _word(value).replace("'", "'\\''")) for name, value in _fields(line).items())
    return render.text(" ".join(f"{PREFIX}{name}='{word}'" for name, word in pairs))


def _tsv(line: Statusline) -> Output:
    return render.text(render.columns(*map(_word, _fields(line).values())))


def _text(line: Statusline) -> Output:
    found = {name: _word(value) for name, value in _fields(line).items()}
    dead = "gone" if found["DISPATCH_ALIVE"] == "0" else ""
    parts = [
        _part("dispatch", found["DISPATCH"], found["DISPATCH_ACTIVITY"], dead),
        _part("bead", found["BEAD"], found["BEAD_PHASE"], _span(found["BEAD_AGE"])),
        _part("lane", found["LANE"]),
        _part("coordination", found["COORDINATION_COUNT"], found["COORDINATION"]),
        _part("pressure", found["PRESSURE"], found["PRESSURE_VALUE"]),
        _part("budget", found["BUDGET"] and f"{found['BUDGET']}%"),
        _part("run", found["RUN"], found["RUN_PHASE"], _cut(found["RUN_GOAL"])),
        _part("reserved", found["RESERVATIONS"]),
    ]
    return render.text(" | ".join(part for part in parts if part))


def _part(name: str, first: str, *more: str) -> str:
    return " ".join([name, first, *(word for word in more if word)]) if first else ""


def _cut(goal: str) -> str:
    return goal if len(goal) <= GOAL_CHARACTERS else goal[: GOAL_CHARACTERS - 1].rstrip() + "…"


def _span(seconds: str) -> str:
    """An age, short enough for a line."""
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds and int(seconds) >= size:
            return f"{int(seconds) // size}{unit}"
    return f"{seconds}s" if seconds else ""


SHOW: dict[str, Show] = {"text": _text, "sh": _sh, "tsv": _tsv, "json": render.to_json}

VERBS = [
    Method("statusline.get", Get, Statusline, get, stream=Stream(_everything)),
    Command(
        "statusline",
        Form,
        ask_statusline,
        order=("project", "agent", "format", "watch", "agent_json"),
        summary="Show the status of a session.",
        examples=[
            'icctl statusline --session "$SESSION"',
            'eval "$(icctl statusline --session "$SESSION" --format=sh)"',
            'icctl statusline --session "$SESSION" --format=json --watch',
            "icctl statusline --from=claude <event.json",
        ],
    ),
]
