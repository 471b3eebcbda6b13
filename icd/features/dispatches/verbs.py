"""dispatch: agents' processes, and what came of them.

`dispatch wait` is told the end by a daemon: the log has news.  Without one, the caller's own
process looks at the processes and files of the dispatch every second, and records what no other
process can.
"""

import re
import time
from collections.abc import Generator, Iterator
from typing import Annotated, Any

import msgspec

from icd import __version__
from icd.app import render
from icd.app.call import Answer, Look
from icd.app.invocation import (
    LOOK_AGAIN_SECONDS,
    Ask,
    Caller,
    Local,
    Output,
    Question,
    Served,
    World,
    converse,
)
from icd.app.types import SPAN
from icd.app.verb import Card, Column, Command, Option, Table, Verb, Writes, narrow, no_rows
from icd.errors import IcError, InvalidPayload, Usage
from icd.features.dispatches import auto_spawn, calls, kill, logs, spawn
from icd.features.dispatches import poll as polls
from icd.features.dispatches.calls import (
    Get,
    List,
    Poll,
    Prune,
    Pruned,
    Record,
    Spent,
    Started,
    Tokens,
    Watch,
)
from icd.features.dispatches.store import Dispatch, End
from icd.values import reach

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class RecordForm(Started):
    """Record the start or the end of a dispatch's process; used by runners.

    Only the first end counts; recording another one changes nothing, and exits 0.
    Prints the resulting status.
    With --pid, exit 1 means that the dispatch was cancelled meanwhile: end the process.
    """

    pid: Annotated[calls.Pid | None, Option("--pid", "Process id of the agent.", "PID")] = None  # type: ignore[assignment]
    end: Annotated[
        str | None, Option("--end", "JSON file with the result of the process.", "FILE")
    ] = None


# --- what is asked --------------------------------------------------------------------------------


def ask_list(world: World, p: List) -> Ask | Local:
    if world.host == "daemon":  # it watches them anyway
        return Ask("dispatch.list", p)
    return Local(lambda ask: _list(world, ask, p))


def _list(world: World, ask: Caller, p: List) -> Output:
    """Look at those that have not ended, and list what is known then."""
    found: list[Dispatch] = ask("dispatch.list", p)
    try:
        seen = [converse(ask, _look(world, each, progress=False)) for each in found]
    except IcError as exc:
        if not exc.retryable:
            raise
        seen = found  # nothing can be recorded at the moment: the next look will
    if [each.status for each in seen] != [each.status for each in found]:
        found = ask("dispatch.list", p)
    return render.shown(world, found, lambda: show_list(found, p), LISTED)


def ask_poll(world: World, p: Poll) -> Local:
    def steps() -> Generator[Question, Any, Output]:
        found = yield Question("dispatch.get", Get(p.id))
        found = yield from _look(world, found, progress=True)
        return render.shown(world, found, lambda: show_dispatch(found), CARD)

    served = Served(world.cwd, lambda: reach.is_as_free(world.peer), steps)
    is_served = world.client_version == __version__  # clients of before do it themselves
    return Local(lambda ask: converse(ask, steps()), served=served if is_served else None)


def _look(world: World, found: Dispatch, *, progress: bool) -> Generator[Question, Any, Dispatch]:
    """Look at what has not ended, as its caller sees it, and record what follows."""
    if found.is_over:
        return found
    database = world.database
    seen = polls.look(found, database, progress=progress)
    if not seen.is_news:
        return found
    now: Dispatch = yield Question("dispatch.poll", Poll(found.id, seen=seen))
    if now.is_over and seen.end is not None:
        polls.forget(found.id, database)
    return now


def ask_record(world: World, f: RecordForm) -> Ask:
    if (f.pid is None) == (f.end is None):
        raise Usage("pass either --pid or --end")

    def shown(now: Dispatch) -> Output:
        return render.to_json(now) if world.json else render.text(now.status)

    if f.end is None:
        return Ask("dispatch.started", narrow(f, Started), shown)
    params = Record(_end(world, f.id, f.end))
    return Ask("dispatch.record", params, lambda recorded: shown(recorded.dispatch))


def _end(world: World, dispatch_id: str, file: str) -> End:
    try:
        found = msgspec.json.decode(world.read_file(file), type=End)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        raise InvalidPayload(f"{file} is not a dispatch result: {exc}", hint="") from exc
    if found.id != dispatch_id:
        raise Usage(f"{file} belongs to another dispatch")
    return found


# --- what is shown --------------------------------------------------------------------------------


def show_list(found: list[Dispatch], _p: List) -> Iterator[str]:
    return (render.columns(d.id, d.status, d.agent_type, d.name or "") for d in found)


def _warned(output: Output, spent: Spent) -> Output:
    output.stderr = _budget(spent)
    return output


def _budget(spent: Spent) -> bytes:
    if spent.budget is None:
        return b""
    if spent.exceeded:
        said = f"EXCEEDED: {spent.used}/{spent.budget} tokens"
    else:
        said = f"WARNING: {spent.used}/{spent.budget} tokens ({spent.warn_pct}% threshold)"
    return f"[budget] {said}\n".encode()


def show_dispatch(found: Dispatch, _p: object = None) -> list[str]:
    """Labels, order and spacing are the original's."""
    fields = {
        "ID": found.id,
        "Status": found.status,
        "Type": found.agent_type,
        "Name": found.name,
        "PID": found.pid,
        "Project": found.project_dir,
        "Prompt": found.prompt_file,
        "Output": found.output_file,
        "Stats": _stats(found),
        "Tokens": _tokens(found),
        "Verdict": found.verdict_status,
        "Summary": found.verdict_summary,
        "Exit": found.exit_code,
        "Error": found.error_message,
    }
    known = ((label, value) for label, value in fields.items() if value not in (None, ""))
    return [f"{label + ':':<9}{_one_line(value)}" for label, value in known]


def _one_line(value: object) -> str:
    """A path may hold a line break; it must not look like another field."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], str(value))


def _stats(found: Dispatch) -> str:
    if not (found.turns or found.commands or found.messages):
        return ""
    return f"{found.turns} turns, {found.commands} commands, {found.messages} messages"


def _tokens(found: Dispatch) -> str:
    if not (found.input_tokens or found.output_tokens or found.cache_hits):
        return ""
    cache = f" / {found.cache_hits} cache" if found.cache_hits is not None else ""
    return f"{found.input_tokens} in / {found.output_tokens} out{cache}"


# --- dispatch wait --------------------------------------------------------------------------------


FINE = ("completed", "cancelled")
_METHODS = {Watch: "dispatch.watch", Get: "dispatch.get", Poll: "dispatch.poll"}


class Wait(Get):
    """Wait until a dispatch ends, then show it as 'dispatch status' does.

    Exit 0 if it was completed or cancelled, 1 if it failed, timed out, or is unknown.
    With --timeout, exit 1 at the deadline; without it, wait indefinitely.
    """

    poll: Annotated[int | None, SPAN, Option("--poll", "Ignored; kept for compatibility.", "D")] = (
        None
    )


class _Place(msgspec.Struct):
    """Where a waiting is by now: the moment of its end stays what it was."""

    params: Watch
    ends_at: float | None


def ask_wait(world: World, f: Wait) -> Ask:
    ends_at = None if world.timeout_ms is None else time.monotonic() + world.timeout_ms / 1000
    if world.host == "direct":
        return _ask_wait(world, Get(f.id), ends_at, LOOK_AGAIN_SECONDS)
    return _ask_wait(world, Watch(f.id), ends_at, 0.0)


def _ask_wait(
    world: World, params: Watch | Get | Poll, ends_at: float | None, patience: float | None
) -> Ask:
    is_done = False

    def shown(result: Look | Dispatch) -> Output:
        """Decide once for each look: time goes on between two questions."""
        nonlocal is_done
        found: Dispatch = result.news if isinstance(result, Look) else result
        if found.is_over and isinstance(params, Poll) and params.seen and params.seen.end:
            polls.forget(found.id, world.database)
        is_done = found.is_over or (ends_at is not None and time.monotonic() >= ends_at)
        return _waited(world, found) if is_done else Output(1)

    def follow(answer: Answer) -> Ask | None:
        if answer.error is not None or is_done:
            return None
        if isinstance(params, Watch):
            return _ask_wait(world, answer.result.following, ends_at, None)
        return _look_again(world, params, answer.result, ends_at)

    def resume(place: bytes) -> Ask:
        left = msgspec.json.decode(place, type=_Place)
        return _ask_wait(world, left.params, left.ends_at, 0.0)

    return Ask(
        _METHODS[type(params)],
        params,
        shown,
        follow=follow,
        patience=patience,
        ends_at=ends_at,
        cut_short=2,
        place=msgspec.json.encode(_Place(params, ends_at)) if isinstance(params, Watch) else b"",
        resume=resume,
    )


def _look_again(world: World, params: Get | Poll, found: Dispatch, ends_at: float | None) -> Ask:
    """Write only what is to be recorded: another process may keep the database for long."""
    seen = polls.look(found, world.database)
    if not seen.is_news:
        return _ask_wait(world, Get(params.id), ends_at, LOOK_AGAIN_SECONDS)
    # What is dead stays so: there is nothing to wait for.
    is_told = isinstance(params, Poll) and params.seen == seen
    return _ask_wait(
        world, Poll(params.id, seen=seen), ends_at, LOOK_AGAIN_SECONDS if is_told else 0.0
    )


def _waited(world: World, found: Dispatch) -> Output:
    output = render.shown(world, found, lambda: show_dispatch(found), CARD)
    output.exit = 0 if found.status in FINE else 1
    if not found.is_over:
        sentence = f"timed out; dispatch {found.id} is still {found.status}"
        output.stderr = f"{world.program}: dispatch wait: {sentence}\n".encode()
    return output


def _took(d: Dispatch) -> int | None:
    """Until its end; of one that goes on, the age says it."""
    return None if d.completed_at is None else d.completed_at - (d.started_at or d.created_at)


def _last(d: Dispatch) -> str | None:
    """What happened last: why it failed, what it says of itself, or how far it is."""
    if d.error_message:
        return d.error_message
    if d.status == "timeout":
        return "it took too long"
    if d.status == "failed" and d.exit_code is not None:
        return f"exit {d.exit_code}"
    if d.verdict_status:
        return f"{d.verdict_status}: {d.verdict_summary}" if d.verdict_summary else d.verdict_status
    return _stats(d) or None


def _owned(d: Dispatch) -> str:
    return f"{d.agent_type} ({d.name})" if d.name else d.agent_type


LISTED = Table(
    Column("DISPATCH", "id", "id"),
    Column("STATE", "status", "state"),
    Column("AGENT", _owned),
    Column("STARTED", lambda d: d.started_at or d.created_at, "age"),
    Column("TOOK", _took, "span"),
    Column("RUN", "run_id", "id", spare=True),
    Column("LAST", _last, spare=True),
    empty="No dispatches yet. Start one: icctl dispatch spawn --prompt-file=FILE",
    filtered=True,
)
CARD = Card(
    Column("Dispatch", "id", "id"),
    Column("State", "status", "state"),
    Column("Error", "error_message"),
    Column("Exit", "exit_code"),
    Column("Verdict", "verdict_status", "state"),
    Column("Summary", "verdict_summary"),
    Column("Agent", _owned),
    Column("Model", "model"),
    Column("Sandbox", "sandbox"),
    Column("Run", "run_id", "id"),
    Column("Retry of", "parent_id", "id"),
    Column("Created", "created_at", "age"),
    Column("Started", "started_at", "age"),
    Column("Ended", "completed_at", "age"),
    Column("Took", _took, "span"),
    Column("Stats", _stats),
    Column("Tokens", _tokens),
    Column("Process", "pid"),
    Column("Project", "project_dir", "path"),
    Column("Prompt", "prompt_file", "path"),
    Column("Output", "output_file", "path"),
)

VERBS = [
    *calls.VERBS,
    *spawn.VERBS,
    *auto_spawn.VERBS,
    *kill.VERBS,
    *logs.VERBS,
    Verb(
        "dispatch status",
        Get,
        Dispatch,
        calls.get,
        method="dispatch.get",
        show=show_dispatch,
        human=CARD,
        summary="Show a dispatch; exit 1 if unknown.",
        examples=["icctl dispatch status k3v9x0qa", "icctl dispatch status k3v9x0qa --json"],
    ),
    Command(
        "dispatch list",
        List,
        ask_list,
        show=show_list,
        human=LISTED,
        summary="List dispatches, the newest first.",
        examples=["icctl dispatch list --active", 'icctl dispatch list --run="$RUN" --json'],
    ),
    Command(
        "dispatch poll",
        Poll,
        ask_poll,
        human=CARD,
        summary="Update a dispatch and show it.",
        examples=["icctl dispatch poll k3v9x0qa", "icctl dispatch poll k3v9x0qa --json"],
    ),
    Command(
        "dispatch wait",
        Wait,
        ask_wait,
        human=CARD,
        summary="Wait until a dispatch ends.",
        examples=[
            "icctl dispatch wait k3v9x0qa",
            "icctl dispatch wait k3v9x0qa --timeout=10m --json",
        ],
    ),
    Verb(
        "dispatch tokens",
        Tokens,
        Spent,
        calls.tokens,
        writes=Writes(no_rows, appends=True),
        show=lambda spent, _p: _warned(render.text(spent.status), spent),
        json=lambda spent, _p: _warned(render.to_json(spent), spent),
        summary="Set the token usage of a dispatch.",
        examples=["icctl dispatch tokens k3v9x0qa --in=12000 --out=800 --cache=9000"],
    ),
    Verb(
        "dispatch prune",
        Prune,
        Pruned,
        calls.prune,
        writes=Writes(no_rows),
        show=lambda result, _p: [f"{result.pruned} pruned"],
        summary="Delete ended dispatches.",
        examples=["icctl dispatch prune --older-than=30d"],
    ),
    Command(
        "dispatch record",
        RecordForm,
        ask_record,
        summary="Record the start or end of a process.",
        examples=[
            "icctl dispatch record k3v9x0qa --pid=4242 --runner-pid=4241",
            "icctl dispatch record k3v9x0qa --end=end.json",
        ],
    ),
]
