"""dispatch.*: agents' processes, as the database knows them.

Nothing here looks at a process or a file: a caller that does so says what it has seen.
"""

from typing import Annotated

from msgspec import Meta, structs

from icd.app.call import Context, Ended, Look, Params
from icd.app.types import DURATION
from icd.app.verb import Argument, Method, Option, Stream, Writes, no_rows
from icd.errors import InvalidName
from icd.features.dispatches import poll as polls
from icd.features.dispatches import store
from icd.features.dispatches.poll import Seen
from icd.features.dispatches.store import Count, Dispatch, End
from icd.features.events.watch import log
from icd.values import validation
from icd.values.processes import Process
from icd.values.wire import Milliseconds, Result

# Dispatches in one answer; a reply is put together in memory, and others wait meanwhile.
MOST = 10_000
LIMIT = 1000

UPDATED = "updated"


def said(text: str) -> Meta:
    return Meta(description=text)


def _check_directory(path: str) -> None:
    if not path.startswith("/"):
        raise InvalidName("project_dir is not an absolute path", hint="pass an absolute path")


Id = Annotated[str, Argument("ID", "Id of the dispatch.")]
Word = Annotated[str, validation.check_scope]
Pid = Annotated[int, Meta(ge=1, le=2**31 - 1)]


# --- parameters -----------------------------------------------------------------------------------


class Create(Params):
    """Create a dispatch for a process that is about to start."""

    project_dir: Annotated[str, _check_directory, said("Working directory, as an absolute path.")]
    agent_type: Annotated[str, validation.check_name, said("Type of the agent.")] = "codex"
    run_id: Annotated[Word | None, said("Id of the run.")] = None
    scope_id: Annotated[
        Word | None,
        said("Scope, or id of a run; without `run_id`, it selects the active or latest run."),
    ] = None
    parent_id: Annotated[Word | None, said("Id of the parent dispatch.")] = None
    name: Annotated[Word | None, said("Name of the dispatch.")] = None
    model: Annotated[Word | None, said("Model of the agent.")] = None
    sandbox: Annotated[Word | None, said("Sandbox of the agent.")] = None
    prompt_file: Annotated[str | None, said("File with the prompt.")] = None
    prompt_hash: Annotated[str | None, said("First digits of the prompt's SHA-256.")] = None
    output_file: Annotated[str | None, said("File for the output.")] = None
    verdict_file: Annotated[str | None, said("File for the verdict.")] = None
    timeout_ms: Annotated[Milliseconds | None, said("Time limit.")] = None
    runner: Annotated[Process | None, said("Process that is about to start the agent.")] = None
    agent_id: Annotated[str | None, said("Id of the run's agent that is started.")] = None
    instead_of: Annotated[
        str | None, said("Id of the agent's current dispatch, which this one replaces.")
    ] = None


class Started(Params):
    """Record that the process of a dispatch is running."""

    id: Id
    pid: Annotated[Pid, Option("--pid", "Process id of the agent.", "PID")]
    pid_start: Annotated[
        Count,
        Option(
            "--pid-start", "Start time of that process, in clock ticks since the boot.", "TICKS"
        ),
    ] = 0
    runner_pid: Annotated[
        Pid | None,
        Option("--runner-pid", "Process id of the runner, which waits for the agent.", "PID"),
    ] = None
    runner_start: Annotated[
        Count,
        Option(
            "--runner-start", "Start time of that process, in clock ticks since the boot.", "TICKS"
        ),
    ] = 0
    boot: Annotated[str, Option("--boot", "Boot id that the start times belong to.", "ID")] = ""
    pidns: Annotated[str, Option("--pidns", "PID namespace of the process ids.", "NS")] = ""


class Record(Params):
    """Record how the process of a dispatch ended; only the first end counts."""

    end: Annotated[End, said("Result of the process; omitted counts keep their values.")]


class Cancel(Params):
    """Cancel a dispatch at once; its process may take longer to end."""

    id: Id
    reason: Annotated[str, said("Reason.")] = ""


class Get(Params):
    """Show a dispatch, one field per line; exit 1 if it is unknown.

    Unknown fields are omitted.
    """

    rpc = "Return a dispatch."
    id: Id


class List(Params):
    """List dispatches, newest first: id, status, type and name, separated by tabs."""

    rpc = "List dispatches, newest first."
    active: Annotated[bool, Option("--active", "Include only active dispatches.")] = False
    scope_id: Annotated[str | None, Option("--scope", "Include only this scope.", "S")] = None
    run_id: Annotated[str | None, Option("--run", "Include only this run.", "RUN")] = None
    limit: Annotated[
        Annotated[int, Meta(ge=1, le=MOST)] | None,
        Option("--limit", "Maximum number of results (default 1000).", "N"),
    ] = None


class Poll(Params):
    """Inspect the process and output of a dispatch, record what changed, and show the dispatch.

    If the runner could not record the end, it is recorded now; if the exit status is unknown, the
    dispatch is set to failed, with exit status -1.
    """

    id: Id
    seen: Annotated[
        Seen | None,
        said(
            "Observation of its processes and files by the caller; without it, nothing is recorded."
        ),
    ] = None


class Tokens(Params):
    """Set the token usage of a dispatch; omitted counts keep their values.

    If the budget of its run is nearly or fully used, a line on stderr warns.
    """

    rpc = (
        "Set the token usage of a dispatch; omitted counts keep their values.\n"
        "The result has the budget of its run."
    )
    id: Id
    input_tokens: Annotated[Count | None, Option("--in", "Input tokens.", "N")] = None
    output_tokens: Annotated[Count | None, Option("--out", "Output tokens.", "N")] = None
    cache_hits: Annotated[Count | None, Option("--cache", "Cached input tokens.", "N")] = None


class Prune(Params):
    """Delete ended dispatches, except those of active runs, which count towards the budget."""

    older_than_ms: Annotated[
        Milliseconds,
        DURATION,
        Option("--older-than", "Minimum time since the dispatch was created."),
    ]


class Watch(Params):
    """Follow a dispatch: send it at once, and again whenever it changes."""

    id: Id
    version: Annotated[Count, said("Version that the watcher already has.")] = 0


class Live(Params):
    """Find all dispatches that have not ended."""


# --- results --------------------------------------------------------------------------------------


class Recorded(Result):
    """`recorded`: this was the first end; else `dispatch` tells what it was."""

    recorded: bool
    dispatch: Dispatch


class Spent(Result):
    """What was set, and the budget of the run if that is a matter of concern."""

    status: str
    used: int | None = None
    budget: int | None = None
    warn_pct: int | None = None
    exceeded: bool = False


class Pruned(Result):
    pruned: int


# --- what is done ---------------------------------------------------------------------------------


def create(ctx: Context, p: Create) -> Dispatch:
    known = {name: getattr(p, name) for name in Create.__annotations__}
    agent_id, instead_of = known.pop("agent_id"), known.pop("instead_of")
    made = store.create(ctx.conn, actor=ctx.writer, now_ms=ctx.now_ms, **known)
    if agent_id is not None:
        store.claim_agent(ctx.conn, agent_id, made, instead_of=instead_of, now_ms=ctx.now_ms)
    return made


def started(ctx: Context, p: Started) -> Dispatch:
    runner = Process(p.runner_pid, p.runner_start, p.boot, p.pidns) if p.runner_pid else None
    agent = Process(p.pid, p.pid_start, p.boot, p.pidns)
    return store.start(
        ctx.conn, p.id, agent=agent, runner=runner, actor=ctx.writer, now_ms=ctx.now_ms
    )


def record(ctx: Context, p: Record) -> Recorded:
    found, is_first = store.end(ctx.conn, p.end, actor=ctx.writer, now_ms=ctx.now_ms)
    _check_budget(ctx, found)
    return Recorded(is_first, found)


def cancel(ctx: Context, p: Cancel) -> Dispatch:
    return store.cancel(ctx.conn, p.id, reason=p.reason, actor=ctx.writer, now_ms=ctx.now_ms)


def get(ctx: Context, p: Get) -> Dispatch:
    return store.require(ctx.conn, p.id)


def list_(ctx: Context, p: List) -> list[Dispatch]:
    limit = p.limit or LIMIT
    found = store.every(
        ctx.conn, active=p.active, scope_id=p.scope_id, run_id=p.run_id, limit=limit + 1
    )
    if p.limit is None and len(found) > limit:
        ctx.warnings.append(f"only the newest {limit} are shown; see --limit")
    return found[:limit]


def poll(ctx: Context, p: Poll) -> Dispatch:
    if p.seen is None:
        return store.require(ctx.conn, p.id)
    found = polls.observe(ctx.conn, p.id, p.seen, actor=ctx.writer, now_ms=ctx.now_ms)
    if found.is_over:
        _check_budget(ctx, found)
    return found


def live(ctx: Context, _p: Live) -> list[Dispatch]:
    return store.live(ctx.conn)


def tokens(ctx: Context, p: Tokens) -> Spent:
    found = store.set_tokens(
        ctx.conn,
        p.id,
        input_tokens=p.input_tokens,
        output_tokens=p.output_tokens,
        cache_hits=p.cache_hits,
        now_ms=ctx.now_ms,
    )
    return _check_budget(ctx, found)


def prune(ctx: Context, p: Prune) -> Pruned:
    return Pruned(store.prune(ctx.conn, older_than_ms=p.older_than_ms, now_ms=ctx.now_ms))


def watch(ctx: Context, p: Watch) -> Look:
    found = store.require(ctx.conn, p.id)
    return Look(
        found,
        is_empty=found.version == p.version,
        following=structs.replace(p, version=found.version),
    )


def _check_budget(ctx: Context, found: Dispatch) -> Spent:
    """Level-triggered: as long as there is too much, every caller that adds to it is told."""
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
        exceeded=bool(budget.exceeded),
    )


_APPENDS = Writes(no_rows, appends=True)
# Ends can be told again and again; only the first one counts.
_TELLS = Writes(no_rows, appends=True, keeps_effects=False)

POLL = Method("dispatch.poll", Poll, Dispatch, poll, writes=_TELLS)
# Asked by the daemon, for itself.
LIVE = Method("dispatches.live", Live, list[Dispatch], live)

VERBS = [
    Method("dispatch.create", Create, Dispatch, create, writes=_APPENDS),
    Method("dispatch.started", Started, Dispatch, started, writes=_APPENDS),
    Method("dispatch.record", Record, Recorded, record, writes=_TELLS),
    Method("dispatch.cancel", Cancel, Dispatch, cancel, writes=_APPENDS),
    Method("dispatch.list", List, list[Dispatch], list_),
    POLL,
    Method("dispatch.watch", Watch, Ended, watch, stream=Stream(log, "dispatch.changed")),
]
