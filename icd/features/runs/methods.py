"""run.*: beginning a run, and looking at runs; what happens to them is in transitions.py."""

import os
from typing import Annotated

import msgspec
from msgspec import Meta, Raw, field

from icd.app import projects
from icd.app.call import Context, Params
from icd.app.verb import Method, Writes, no_rows
from icd.errors import BadPath, InvalidParams, InvalidPayload, PayloadTooLarge, SecretRefused
from icd.features.events.store import NOTHING
from icd.features.gates import store as gates
from icd.features.runs import (
    budget_methods as budgets,
)
from icd.features.runs import (
    create as claims,
)
from icd.features.runs import (
    documents as run_documents,
)
from icd.features.runs import (
    history as histories,
)
from icd.features.runs import (
    phases,
    transitions,
)
from icd.features.runs import (
    snapshot_methods as snapshots,
)
from icd.features.runs import (
    store as runs,
)
from icd.features.runs import transition_methods as moving
from icd.features.runs.create import Wanted
from icd.features.runs.documents import Document
from icd.features.runs.history import PhaseEvent
from icd.values import payloads
from icd.values import validation as names
from icd.values.processes import Writer
from icd.values.wire import INT64, Milliseconds, Result

# Runs in one answer, at most and if nothing is said.
MOST = 10_000
LIMIT = 1000

Complexity = moving.Complexity
Budget = Annotated[int, Meta(ge=1, le=INT64 - 1)]
Percent = Annotated[int, Meta(ge=1, le=99)]
Limit = Annotated[int, Meta(ge=1, le=MOST)]
STATUSES = tuple(transitions.MAY)


class Create(Params):
    goal: str
    project: str | None = None
    complexity: Complexity = claims.COMPLEXITY
    scope_id: str | None = None
    phases: list[str] | None = None
    gates: Raw = field(default_factory=lambda: NOTHING)  # a default could not be described
    token_budget: Budget | None = None
    budget_warn_pct: Percent = claims.WARN_PCT
    metadata: str | None = None
    actions: Raw = field(default_factory=lambda: NOTHING)
    auto_spawn: bool | None = None
    takeover_after_ms: Milliseconds | None = None


class Status(Params):
    run_id: str


class List(Params):
    status: str | None = None
    scope_id: str | None = None
    project: str | None = None
    limit: Limit | None = None
    here: bool = False


class Current(Params):
    project: str | None = None
    of_session: str | None = None


class Events(Params):
    run_id: str


class Created(Result):
    """`took_over`: the run that had the scope, and is abandoned."""

    id: str
    phase: str
    took_over: str | None = None


class Found(Result):
    found: bool
    id: str | None = None
    goal: str | None = None
    phase: str | None = None


def create(ctx: Context, p: Create) -> Created:
    chain = None if p.phases is None else tuple(p.phases)
    wanted = Wanted(
        project_dir=projects.meant(ctx, p.cwd, p.project),
        goal=p.goal,
        complexity=p.complexity,
        scope_id=p.scope_id or None,
        chain=chain,
        gates=_text(p.gates),
        token_budget=p.token_budget,
        budget_warn_pct=p.budget_warn_pct,
        metadata=p.metadata,
        actions=_text(p.actions),
        auto_spawn=ctx.settings.auto_spawn if p.auto_spawn is None else p.auto_spawn,
    )
    made = claims.create(
        ctx.conn,
        wanted,
        takeover_after_ms=p.takeover_after_ms,
        actor=_actor(ctx, p.session),
        now_ms=ctx.now_ms,
    )
    if made.took_over is None:
        return Created(made.run.id, made.run.phase)
    old = made.took_over
    ctx.warnings.append(f"abandoned {claims.described(old, now_ms=ctx.now_ms)}")
    return Created(made.run.id, made.run.phase, old.id)


def status(ctx: Context, p: Status) -> Document:
    return run_documents.in_full(ctx.conn, runs.require(ctx.conn, p.run_id))


def list_(ctx: Context, p: List) -> list[Document]:
    project = None if p.project is None else projects.meant(ctx, p.cwd, p.project)
    within = projects.around(ctx, p.cwd) if p.here else None
    limit = p.limit or LIMIT
    found = runs.newest(
        ctx.conn,
        status=p.status,
        scope_id=p.scope_id,
        project_dir=project,
        within=within,
        limit=limit + 1,
    )
    if p.limit is None and len(found) > limit:
        ctx.warnings.append(f"only the newest {limit} are shown; see --limit")
    hides = not found and within is not None
    if hides and runs.newest(ctx.conn, status=p.status, scope_id=p.scope_id, limit=1):
        ctx.warnings.append("there are runs of other projects; see --all-projects")
    return [run_documents.document(run) for run in found[:limit]]


def current(ctx: Context, p: Current) -> Found:
    project = projects.meant(ctx, p.cwd, p.project)
    run = runs.current(ctx.conn, project, session=p.of_session)
    return (
        Found(found=False)
        if run is None
        else Found(found=True, id=run.id, goal=run.goal, phase=run.phase)
    )


def events(ctx: Context, p: Events) -> list[PhaseEvent]:
    found = histories.of_run(ctx.conn, p.run_id)
    if len(found) == histories.MOST:
        ctx.warnings.append(f"there may be more than these {histories.MOST}; see 'events tail'")
    return found


def check_create(p: Create) -> None:
    """Judge it outside the lock."""
    if not p.goal.strip():
        raise InvalidParams("the goal is empty", hint="say what is to be done, with --goal")
    if len(p.goal.encode()) > payloads.STRING_BYTES:
        raise PayloadTooLarge(f"the goal is longer than {payloads.STRING_BYTES} bytes")
    check_project(p.cwd, p.project)
    names.check_scope(p.scope_id or "")
    chain = phases.DEFAULT if p.phases is None else phases.check(p.phases)
    if (rules := _text(p.gates)) is not None:
        stored = gates.parse(rules)
        gates.check_against(stored, chain)
        p.gates = Raw(stored.encode())
    if p.metadata is not None:
        _check_metadata(p.metadata)
    if (actions := _text(p.actions)) is not None:
        p.actions = Raw(payloads.check(actions.encode()).encode())
        if not bytes(p.actions).startswith(b"{"):
            raise InvalidPayload("the actions are not a JSON object")


def check_project(cwd: str | None, given: str | None) -> None:
    if given is not None and not os.path.isabs(os.path.join(cwd or "", given)):
        raise BadPath(f"the project must be an absolute path where no cwd is given, not {given!r}")
    if "\0" in (given or ""):
        raise BadPath("the project's path must not contain NUL")


def check_list(p: List) -> None:
    check_project(p.cwd, p.project)
    if p.here and p.project is not None:
        raise InvalidParams("here and project exclude each other", hint="leave one of them out")
    if p.status is not None and p.status not in STATUSES:
        raise InvalidParams(f"unknown status {names.shown(p.status)}", hint=", ".join(STATUSES))


def check_current(p: Current) -> None:
    check_project(p.cwd, p.project)


def _check_metadata(text: str) -> None:
    """Any text will do; what is JSON is judged as such, so that no secret hides in it."""
    try:
        payloads.check(text.encode())
    except (PayloadTooLarge, SecretRefused):
        raise
    except InvalidPayload:
        payloads.check(msgspec.json.encode(text))


def _text(raw: Raw) -> str | None:
    return None if bytes(raw) == bytes(NOTHING) else bytes(raw).decode()


def _actor(ctx: Context, session: str | None) -> Writer:
    writer = ctx.writer
    return Writer(writer.pid, session or writer.session, writer.trace_id, writer.span_id)


METHODS = [
    Method(
        "run.create",
        Create,
        Created,
        create,
        check=check_create,
        writes=Writes(no_rows, appends=True),
    ),
    Method("run.status", Status, Document, status),
    Method("run.list", List, list[Document], list_, check=check_list),
    Method("run.current", Current, Found, current, check=check_current),
    Method("run.events", Events, list[PhaseEvent], events),
    *moving.METHODS,
    *budgets.METHODS,
    *snapshots.METHODS,
]
