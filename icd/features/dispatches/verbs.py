"""dispatch: agents' processes, and what came of them."""

from collections.abc import Iterator
from typing import Annotated

import msgspec

from icd.app import render
from icd.app.invocation import Ask, Caller, Local, Output, World
from icd.app.verb import Command, Option, Verb, Writes, narrow, no_rows
from icd.errors import IcError, InvalidPayload, Usage
from icd.features.dispatches import auto_spawn, calls, kill, spawn, text, wait
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
)
from icd.features.dispatches.store import Dispatch, End


class RecordForm(Started):
    """Record that the process of a dispatch runs, or how it ended; used by runners.

    The first end counts; to record another one changes nothing, and exits 0 all the same.
    Prints the status that the dispatch has then.
    With --pid, exit 1 says that it was cancelled meanwhile: then end the process.
    """

    pid: Annotated[calls.Pid | None, Option("--pid", "It runs, as this process.", "PID")] = None  # type: ignore[assignment]
    end: Annotated[
        str | None, Option("--end", "It has ended as this JSON document says.", "FILE")
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
        seen = [_look(world, ask, each, progress=False) for each in found]
    except IcError as exc:
        if not exc.retryable:
            raise
        seen = found  # nothing can be recorded at the moment: the next look will
    if [each.status for each in seen] != [each.status for each in found]:
        found = ask("dispatch.list", p)
    return render.to_json(found) if world.json else render.text(*show_list(found, p))


def ask_poll(world: World, p: Poll) -> Local:
    def run(ask: Caller) -> Output:
        found = _look(world, ask, ask("dispatch.get", Get(p.id)), progress=True)
        return render.to_json(found) if world.json else render.text(*text.lines(found))

    return Local(run)


def _look(world: World, ask: Caller, found: Dispatch, *, progress: bool) -> Dispatch:
    """Look at what has not ended, in the caller's own process, and record what follows."""
    if found.is_over:
        return found
    database = world.database
    seen = polls.look(found, database, progress=progress)
    if not seen.is_news:
        return found
    now: Dispatch = ask("dispatch.poll", Poll(found.id, seen=seen))
    if now.is_over and seen.end is not None:
        polls.forget(found.id, database)
    return now


def ask_record(world: World, f: RecordForm) -> Ask:
    if (f.pid is None) == (f.end is None):
        raise Usage("say either --pid or --end")

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
        raise InvalidPayload(f"{file} does not tell an end: {exc}", hint="") from exc
    if found.id != dispatch_id:
        raise Usage(f"{file} is about another dispatch")
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


VERBS = [
    *calls.VERBS,
    *spawn.VERBS,
    *auto_spawn.VERBS,
    *kill.VERBS,
    Verb(
        "dispatch status",
        Get,
        Dispatch,
        calls.get,
        method="dispatch.get",
        show=text.lines,
        summary="Show a dispatch; exit 1 if unknown.",
        examples=["icctl dispatch status k3v9x0qa", "icctl dispatch status k3v9x0qa --json"],
    ),
    Command(
        "dispatch list",
        List,
        ask_list,
        show=show_list,
        summary="List dispatches, the newest first.",
        examples=["icctl dispatch list --active", 'icctl dispatch list --run="$RUN" --json'],
    ),
    Command(
        "dispatch poll",
        Poll,
        ask_poll,
        summary="Look at a dispatch, and show it.",
        examples=["icctl dispatch poll k3v9x0qa", "icctl dispatch poll k3v9x0qa --json"],
    ),
    *wait.VERBS,
    Verb(
        "dispatch tokens",
        Tokens,
        Spent,
        calls.tokens,
        writes=Writes(no_rows, appends=True),
        show=lambda spent, _p: _warned(render.text(spent.status), spent),
        json=lambda spent, _p: _warned(render.to_json(spent), spent),
        summary="Say what a dispatch has used.",
        examples=["icctl dispatch tokens k3v9x0qa --in=12000 --out=800 --cache=9000"],
    ),
    Verb(
        "dispatch prune",
        Prune,
        Pruned,
        calls.prune,
        writes=Writes(no_rows),
        show=lambda result, _p: [f"{result.pruned} pruned"],
        summary="Forget dispatches that have ended.",
        examples=["icctl dispatch prune --older-than=30d"],
    ),
    Command(
        "dispatch record",
        RecordForm,
        ask_record,
        summary="Say that a process runs, or ended.",
        examples=[
            "icctl dispatch record k3v9x0qa --pid=4242 --runner-pid=4241",
            "icctl dispatch record k3v9x0qa --end=end.json",
        ],
    ),
]
