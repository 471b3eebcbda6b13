"""session: what agents' sessions work on, and what they use."""

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from icd.app import render
from icd.app.call import Context, Params
from icd.app.invocation import World
from icd.app.types import UNIX_TIME
from icd.app.verb import Card, Column, Option, Table, Verb, Writes, no_rows
from icd.errors import Usage
from icd.features.coordination import store as reservations
from icd.features.runs.verbs import Project, check_project, project_of
from icd.features.sessions import store
from icd.features.sessions.store import Attribution, Session
from icd.values import payloads, validation
from icd.values.wire import INT64, Result, iso

LIMIT = 100


def _who(world: World, given: str | None) -> str:
    """The session: as given, else the caller's."""
    session = given or world.session
    if not session:
        raise Usage("no session given", hint="pass --session, or set INTERCORE_SESSION")
    return session


def _check_id(session_id: str) -> None:
    if not session_id:
        raise Usage("the session has no id", hint="pass --session")
    validation.check_scope(session_id)


def _check_json(text: str) -> None:
    if text:
        payloads.check(text.encode())


Id = Annotated[
    str,
    Meta(description="Id of the session."),
    Option("--session", "Session id (default: the caller's session).", "SID", resolve=_who),
    _check_id,
]
Text = Annotated[str | None, validation.check_scope]
Count = Annotated[int, Meta(ge=0, le=INT64 - 1)]


# --- parameters -----------------------------------------------------------------------------------


class Start(Params):
    """Record that a session works in a project; one that is known goes on.

    Where an option is missing, what was recorded stays.
    """

    rpc = (
        "Record that a session works in a project; one that is known goes on.\n"
        "Where a parameter is missing, what was recorded stays."
    )
    session_id: Id
    project: Project = None
    agent_type: Annotated[
        str,
        Option("--agent-type", "Kind of agent (default claude-code).", "T"),
        validation.check_scope,
    ] = ""
    model: Annotated[Text, Option("--model", "Model of the agent.", "NAME")] = None
    metadata: Annotated[
        str | None, Option("--metadata", "JSON document about the session.", "JSON"), _check_json
    ] = None


class Attribute(Params):
    """Record what a session works on.

    What is left out, or empty, stays as it was; a new run forgets the phase of the old one.
    """

    session_id: Id
    project: Project = None
    bead: Annotated[Text, Option("--bead", "Issue that it works on.", "ID")] = None
    run: Annotated[Text, Option("--run", "Run that it belongs to.", "ID")] = None
    phase: Annotated[Text, Option("--phase", "Phase of the run.", "PHASE")] = None


class Current(Params):
    """Print what a session works on; exit 1 if nothing was recorded (--json: null)."""

    rpc = "Return what a session works on, or null."
    session_id: Id
    project: Project = None


class End(Params):
    """Record that a session has ended, in all projects; exit 2 if it is not active.

    What is reserved for it is released.
    """

    rpc = "Record that a session has ended, in all projects.\nWhat is reserved for it is released."
    session_id: Id


class Tokens(Params):
    """Add to the tokens that a session used; exit 2 if the session is unknown in the project."""

    rpc = "Add to the tokens that a session used in a project."
    session_id: Id
    project: Project = None
    input: Annotated[Count, Option("--input", "Tokens read.", "N")] = 0
    output: Annotated[Count, Option("--output", "Tokens written.", "N")] = 0
    cache_creation: Annotated[
        Count, Option("--cache-creation", "Tokens written to the cache.", "N")
    ] = 0
    cache_read: Annotated[Count, Option("--cache-read", "Tokens read from the cache.", "N")] = 0


class List(Params):
    """Print the sessions, newest first: start, id, project, active or ended, model and tokens."""

    rpc = "List the sessions, newest first."
    project: Annotated[
        str | None,
        Option(
            "--project",
            "List only sessions in this directory's project.",
            "DIR",
            is_from_cwd=True,
        ),
    ] = None
    session_id: Annotated[Text, Option("--session", "List only this session.", "SID")] = None
    since: Annotated[
        int,
        UNIX_TIME,
        Meta(
            ge=0,
            le=INT64 - 1,
            description="List only those that started at this Unix time or later.",
        ),
        Option("--since", "List only those that started at this time or later.", "TIME"),
    ] = 0
    active_only: Annotated[
        bool,
        Option("--active-only", "List only sessions that have not ended.", aliases=["--active"]),
    ] = False
    limit: Annotated[
        int, Meta(ge=1, le=10_000), Option("--limit", "List at most this many (default 100).", "N")
    ] = LIMIT


class Started(Result):
    id: int
    session_id: str
    project: str


class Attributed(Result):
    """`id` is the number of the event; the rest is what is known by now."""

    id: int
    session_id: str
    bead_id: str | None
    run_id: str | None
    phase: str | None


class Ended(Result):
    session_id: str
    ended: bool


class Added(Result):
    session_id: str
    added_input_tokens: int
    added_output_tokens: int
    added_cache_creation: int
    added_cache_read: int
    added_billing_tokens: int


# --- what is done ---------------------------------------------------------------------------------


def start(ctx: Context, p: Start) -> Started:
    session = store.start(
        ctx.conn,
        p.session_id,
        project_of(ctx, p.cwd, p.project),
        agent_type=p.agent_type,
        model=p.model or None,
        metadata=p.metadata or None,
        actor=ctx.writer,
        now_ms=ctx.now_ms,
    )
    return Started(session.id, session.session_id, session.project_dir)


def attribute(ctx: Context, p: Attribute) -> Attributed:
    seq, told = store.attribute(
        ctx.conn,
        p.session_id,
        project_of(ctx, p.cwd, p.project),
        bead_id=p.bead or None,
        run_id=p.run or None,
        phase=p.phase or None,
        actor=ctx.writer,
        now_ms=ctx.now_ms,
    )
    return Attributed(seq, told.session_id, told.bead_id, told.run_id, told.phase)


def current(ctx: Context, p: Current) -> Attribution | None:
    return store.current(ctx.conn, p.session_id, project_of(ctx, p.cwd, p.project))


def end(ctx: Context, p: End) -> Ended:
    store.end(ctx.conn, p.session_id, actor=ctx.writer, now_ms=ctx.now_ms)
    reservations.release_all(ctx.conn, p.session_id, actor=ctx.writer, now_ms=ctx.now_ms)
    return Ended(p.session_id, ended=True)


def tokens(ctx: Context, p: Tokens) -> Added:
    counts = p.input, p.output, p.cache_creation, p.cache_read
    store.add_tokens(ctx.conn, p.session_id, project_of(ctx, p.cwd, p.project), counts)
    return Added(p.session_id, *counts, p.input + p.output)


def list_(ctx: Context, p: List) -> list[Session]:
    return store.newest(
        ctx.conn,
        project_dir=None if p.project is None else project_of(ctx, p.cwd, p.project),
        session_id=p.session_id or None,
        since=p.since,
        active_only=p.active_only,
        limit=p.limit,
    )


def _check_place(p: Start | Attribute | Current | Tokens | List) -> None:
    check_project(p.cwd, p.project)


# --- what is shown --------------------------------------------------------------------------------


def show_current(found: Attribution | None, _p: Current) -> list[str]:
    assert found is not None, "None has no lines"
    told = {
        "Session": found.session_id,
        "Project": found.project_dir,
        "Bead": found.bead_id,
        "Run": found.run_id,
        "Phase": found.phase,
        "Updated": iso(found.updated_at),
    }
    return [f"{name + ':':<10}{render.one_line(text)}" for name, text in told.items() if text]


def show_tokens(added: Added, _p: Tokens) -> list[str]:
    counted = f"+{added.added_input_tokens} in, +{added.added_output_tokens} out"
    return [f"Tokens recorded: {counted} (billing: +{added.added_billing_tokens})"]


def show_list(found: list[Session], _p: List) -> Iterator[str]:
    for each in found:
        model = f" model={render.one_line(each.model)}" if each.model else ""
        used = each.input_tokens + each.output_tokens
        counted = f" tokens={used}" if used else ""
        status = "active" if each.ended_at is None else "ended"
        where = render.one_line(each.project_dir)
        yield (
            f"[{iso(each.started_at)}] {render.one_line(each.session_id)}  {where}  "
            f"{status}{model}{counted}"
        )


VERBS = [
    Verb(
        "session start",
        Start,
        Started,
        start,
        check=_check_place,
        writes=Writes(no_rows, appends=True),
        show=lambda r, _: [f"Session started: {render.one_line(r.session_id)} (id={r.id})"],
        summary="Record that a session works in a project.",
        examples=[
            'icctl session start --session="$SID" --agent-type=codex --model=gpt-5',
            'icctl session start --session="$SID" --project="$PWD" --json',
        ],
    ),
    Verb(
        "session attribute",
        Attribute,
        Attributed,
        attribute,
        check=_check_place,
        writes=Writes(no_rows, appends=True),
        show=lambda r, _: [f"Attribution recorded (id={r.id})"],
        summary="Record what a session works on.",
        examples=[
            'icctl session attribute --session="$SID" --bead="$BEAD" --run="$RUN"',
            'icctl session attribute --session="$SID" --phase=executing',
        ],
    ),
    Verb(
        "session current",
        Current,
        Attribution | None,
        current,
        check=_check_place,
        show=show_current,
        human=Card(
            Column("Session", "session_id"),
            Column("Project", "project_dir", "path"),
            Column("Bead", "bead_id"),
            Column("Run", "run_id", "id"),
            Column("Phase", "phase"),
            Column("Updated", "updated_at", "age"),
            empty="Nothing was recorded. Do so: icctl session attribute --run=RUN",
        ),
        json=lambda found, _: render.to_json(found, int(found is None)),
        summary="Print what a session works on.",
        examples=[
            'icctl session current --session="$SID"',
            "icctl session current --json | jq -r .run_id",
        ],
    ),
    Verb(
        "session end",
        End,
        Ended,
        end,
        writes=Writes(no_rows, appends=True),
        show=lambda r, _: [f"Session ended: {render.one_line(r.session_id)}"],
        summary="Record that a session has ended.",
        examples=['icctl session end --session="$SID"'],
    ),
    Verb(
        "session tokens",
        Tokens,
        Added,
        tokens,
        check=_check_place,
        writes=Writes(no_rows),
        show=show_tokens,
        summary="Add to the tokens that a session used.",
        examples=['icctl session tokens --session="$SID" --input=1200 --output=340'],
    ),
    Verb(
        "session list",
        List,
        list[Session],
        list_,
        check=_check_place,
        show=show_list,
        human=Table(
            Column("SESSION", "session_id", "id"),
            Column("STATE", lambda s: "active" if s.ended_at is None else "ended", "state"),
            Column("STARTED", "started_at", "age"),
            Column("AGENT", "agent_type"),
            Column("MODEL", "model", spare=True),
            Column("TOKENS", lambda s: s.input_tokens + s.output_tokens, "number"),
            Column("PROJECT", "project_dir", "path"),
            empty="No sessions. Record one: icctl session start --session=ID",
            filtered=True,
        ),
        summary="List sessions, newest first.",
        examples=["icctl session list --active-only", "icctl session list --limit=10 --json"],
    ),
]
