"""dispatch.*: agents' processes, as the database knows them.

Nothing here looks at a process or a file: whoever does so says what it has seen.
"""

from typing import Annotated

from msgspec import Meta, structs

from icd.app.call import Context, Ended, Look, Params
from icd.app.verb import Method, Stream, Writes, no_rows
from icd.errors import InvalidName
from icd.features.dispatches import observation as sightings
from icd.features.dispatches import store as dispatches
from icd.features.dispatches import usage
from icd.features.dispatches.auto_spawn_methods import DUE
from icd.features.dispatches.observation import Seen, Subject
from icd.features.dispatches.store import Count, Dispatch, End, New
from icd.features.events.watch import log
from icd.values import validation as names
from icd.values.processes import Process
from icd.values.wire import Milliseconds, Result, iso

# Dispatches in one answer; a reply is put together in memory, and others wait meanwhile.
MOST = 10_000
LIMIT = 1000

UPDATED = "updated"

Pid = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class Create(Params):
    """`agent_id`: of a run's agent that is started so, and has `instead_of` until now."""

    project_dir: str
    agent_type: str = "codex"
    run_id: str | None = None
    scope_id: str | None = None
    parent_id: str | None = None
    name: str | None = None
    model: str | None = None
    sandbox: str | None = None
    prompt_file: str | None = None
    prompt_hash: str | None = None
    output_file: str | None = None
    verdict_file: str | None = None
    timeout_ms: Milliseconds | None = None
    runner: Process | None = None
    agent_id: str | None = None
    instead_of: str | None = None


class Started(Params):
    """Start times are clock ticks since boot; 0 and empty texts are unknown."""

    id: str
    pid: Pid
    pid_start: Count = 0
    runner_pid: Pid | None = None
    runner_start: Count = 0
    boot: str = ""
    pidns: str = ""


class Record(Params):
    end: End


class Cancel(Params):
    id: str
    reason: str = ""


class Get(Params):
    id: str


class List(Params):
    active: bool = False
    scope_id: str | None = None
    run_id: str | None = None
    limit: Annotated[int, Meta(ge=1, le=MOST)] | None = None


class Poll(Params):
    """`seen`: what the caller saw of its processes and files."""

    id: str
    seen: Seen | None = None


class Tokens(Params):
    id: str
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_hits: Count | None = None


class Live(Params):
    pass


class Prune(Params):
    older_than_ms: Milliseconds


class Watch(Params):
    """`version`: what the watcher has already."""

    id: str
    version: Count = 0


class Document(Result):
    """A dispatch with everything that is known about it; the names are those of the contract."""

    id: str
    status: str
    agent_type: str
    project_dir: str
    turns: int
    commands: int
    messages: int
    in_tokens: int
    out_tokens: int
    created_at: int
    created_at_iso: str
    version: int
    cache_hits: int | None = None
    completed_at: int | None = None
    completed_at_iso: str | None = None
    error_message: str | None = None
    exit_code: int | None = None
    model: str | None = None
    name: str | None = None
    output_file: str | None = None
    parent_id: str | None = None
    pid: int | None = None
    prompt_file: str | None = None
    scope_id: str | None = None
    started_at: int | None = None
    started_at_iso: str | None = None
    verdict_status: str | None = None
    verdict_summary: str | None = None
    # What the original never shows.
    run_id: str | None = None
    sandbox: str | None = None
    prompt_hash: str | None = None
    verdict_file: str | None = None
    timeout_ms: int | None = None
    runner_pid: int | None = None
    runner_start: int | None = None
    pid_start: int | None = None
    boot: str | None = None
    pidns: str | None = None
    session: str | None = None

    @property
    def is_over(self) -> bool:
        return not dispatches.NEXT.get(self.status)  # a word that is not ours leads nowhere

    @property
    def subject(self) -> Subject:
        """What to look at."""
        return Subject(
            id=self.id,
            version=self.version,
            runner=self._process(self.runner_pid, self.runner_start),
            agent=self._process(self.pid, self.pid_start),
        )

    def _process(self, pid: int | None, start: int | None) -> Process | None:
        return None if pid is None else Process(pid, start or 0, self.boot or "", self.pidns or "")


class Recorded(Result):
    """`recorded`: this was the first end; else `dispatch` tells what it was."""

    recorded: bool
    dispatch: Document


class Spent(Result):
    """What was set, and the budget of the run if that is a matter of concern."""

    status: str
    used: int | None = None
    budget: int | None = None
    warn_pct: int | None = None
    exceeded: bool = False


class Pruned(Result):
    pruned: int


def create(ctx: Context, p: Create) -> Document:
    given = {name: getattr(p, name) for name in New.__struct_fields__}
    made = dispatches.create(ctx.conn, New(**given), actor=ctx.writer, now_ms=ctx.now_ms)
    if p.agent_id is not None:
        dispatches.claim_agent(
            ctx.conn, p.agent_id, made, instead_of=p.instead_of, now_ms=ctx.now_ms
        )
    return document(made)


def started(ctx: Context, p: Started) -> Document:
    runner = Process(p.runner_pid, p.runner_start, p.boot, p.pidns) if p.runner_pid else None
    agent = Process(p.pid, p.pid_start, p.boot, p.pidns)
    return document(
        dispatches.start(
            ctx.conn, p.id, agent=agent, runner=runner, actor=ctx.writer, now_ms=ctx.now_ms
        )
    )


def record(ctx: Context, p: Record) -> Recorded:
    found, is_first = dispatches.end(ctx.conn, p.end, actor=ctx.writer, now_ms=ctx.now_ms)
    _check_budget(ctx, found)
    return Recorded(is_first, document(found))


def cancel(ctx: Context, p: Cancel) -> Document:
    return document(
        dispatches.cancel(ctx.conn, p.id, reason=p.reason, actor=ctx.writer, now_ms=ctx.now_ms)
    )


def get(ctx: Context, p: Get) -> Document:
    return document(dispatches.require(ctx.conn, p.id))


def list_(ctx: Context, p: List) -> list[Document]:
    limit = p.limit or LIMIT
    found = dispatches.every(
        ctx.conn, active=p.active, scope_id=p.scope_id, run_id=p.run_id, limit=limit + 1
    )
    if p.limit is None and len(found) > limit:
        ctx.warnings.append(f"only the newest {limit} are shown; see --limit")
    return [document(each) for each in found[:limit]]


def poll(ctx: Context, p: Poll) -> Document:
    if p.seen is None:
        return document(dispatches.require(ctx.conn, p.id))
    found = sightings.observe(ctx.conn, p.id, p.seen, actor=ctx.writer, now_ms=ctx.now_ms)
    if found.is_over:
        _check_budget(ctx, found)
    return document(found)


def live(ctx: Context, _p: Live) -> list[Subject]:
    return sightings.live(ctx.conn)


def tokens(ctx: Context, p: Tokens) -> Spent:
    found = usage.set_tokens(
        ctx.conn,
        p.id,
        input_tokens=p.input_tokens,
        output_tokens=p.output_tokens,
        cache_hits=p.cache_hits,
        now_ms=ctx.now_ms,
    )
    return _check_budget(ctx, found)


def prune(ctx: Context, p: Prune) -> Pruned:
    older = p.older_than_ms
    return Pruned(dispatches.prune(ctx.conn, older_than_ms=older, now_ms=ctx.now_ms))


def watch(ctx: Context, p: Watch) -> Look:
    found = document(dispatches.require(ctx.conn, p.id))
    return Look(
        found,
        is_empty=found.version == p.version,
        following=structs.replace(p, version=found.version),
    )


def document(found: Dispatch) -> Document:
    shown = {
        name: getattr(found, name) for name in Document.__struct_fields__ if hasattr(found, name)
    }
    return Document(
        **shown,
        in_tokens=found.input_tokens,
        out_tokens=found.output_tokens,
        created_at_iso=iso(found.created_at),
        started_at_iso=_iso(found.started_at),
        completed_at_iso=_iso(found.completed_at),
    )


def check_create(p: Create) -> None:
    """Names travel in lines; paths may be anything that fits into text."""
    names.check_name(p.agent_type)
    for word in (p.name, p.model, p.sandbox, p.run_id, p.scope_id, p.parent_id):
        if word is not None:
            names.check_scope(word)
    if not p.project_dir.startswith("/"):
        raise InvalidName("project_dir is not an absolute path", hint="give it in full")


def _check_budget(ctx: Context, found: Dispatch) -> Spent:
    """Level-triggered: as long as there is too much, everybody who adds to it is told."""
    if found.run_id is None:
        return Spent(UPDATED)
    from icd.features.runs import budget as budgets

    budget = budgets.check(ctx.conn, found.run_id, actor=ctx.writer, now_ms=ctx.now_ms)
    if budget is None or not (budget.exceeded or budget.warning):
        return Spent(UPDATED)
    return Spent(
        UPDATED,
        used=budget.used,
        budget=budget.budget,
        warn_pct=budget.warn_pct,
        exceeded=budget.exceeded,
    )


def _iso(seconds: int | None) -> str | None:
    return None if seconds is None else iso(seconds)


POLL = Method(
    "dispatch.poll", Poll, Document, poll, writes=Writes(no_rows, appends=True, keeps_effects=False)
)
METHODS = [
    Method(
        "dispatch.create",
        Create,
        Document,
        create,
        check=check_create,
        writes=Writes(no_rows, appends=True),
    ),
    Method("dispatch.started", Started, Document, started, writes=Writes(no_rows, appends=True)),
    # Ends can be recorded again and again; only the first one counts.
    Method(
        "dispatch.record",
        Record,
        Recorded,
        record,
        writes=Writes(no_rows, appends=True, keeps_effects=False),
    ),
    Method("dispatch.cancel", Cancel, Document, cancel, writes=Writes(no_rows, appends=True)),
    DUE,
    Method("dispatch.get", Get, Document, get),
    Method("dispatch.list", List, list[Document], list_),
    POLL,
    Method("dispatch.tokens", Tokens, Spent, tokens, writes=Writes(no_rows, appends=True)),
    Method("dispatch.prune", Prune, Pruned, prune, writes=Writes(no_rows)),
    Method("dispatch.watch", Watch, Ended, watch, stream=Stream(log, "dispatch.changed")),
]
# Asked by the daemon, for itself.
LIVE = Method("dispatches.live", Live, list[Subject], live)
