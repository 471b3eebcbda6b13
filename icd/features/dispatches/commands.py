"""`icctl dispatch …`: agents' processes, and what came of them."""

import click
import msgspec

from icd.app import render
from icd.app.invocation import Ask, Caller, Local, Output, World
from icd.app.types import DURATION, Whole
from icd.db import paths
from icd.errors import IcError, InvalidPayload, Usage
from icd.features.dispatches import (
    auto_spawn_commands as auto_spawns,
)
from icd.features.dispatches import (
    kill as killing,
)
from icd.features.dispatches import methods
from icd.features.dispatches import (
    spawn as spawning,
)
from icd.features.dispatches.store import End
from icd.features.dispatches.text import show
from icd.features.dispatches.wait import wait
from icd.values.wire import INT64

COUNT = Whole(0, INT64 - 1)
PID = Whole(1, 2**31 - 1)
LIMIT = Whole(1, methods.MOST)


@click.command("status", add_help_option=False, short_help="Show a dispatch; exit 1 if unknown.")
@click.argument("dispatch_id", metavar="ID")
def status(world: World, *, dispatch_id: str) -> Ask:
    """Show what is known about a dispatch, one field a line; exit 1 if there is none.

    What is not known, or not yet, is left out.

    \b
    Examples:
      icctl dispatch status k3v9x0qa
      icctl dispatch status k3v9x0qa --json
    """
    return Ask("dispatch.get", methods.Get(dispatch_id), show(world))


@click.command("list", add_help_option=False, short_help="List dispatches, the newest first.")
@click.option("--active", is_flag=True, help="Only those that have not ended.")
@click.option("--scope", metavar="S", help="Only those that were given this scope.")
@click.option("--run", "run_id", metavar="RUN", help="Only those of this run.")
@click.option("--limit", type=LIMIT, metavar="N", help="At most so many; 1000 unless given.")
def list_(
    world: World, *, active: bool, scope: str | None, run_id: str | None, limit: int | None
) -> Ask | Local:
    """List dispatches, the newest first: id, status, type and name, with tabs between them.

    \b
    Examples:
      icctl dispatch list --active
      icctl dispatch list --run="$RUN" --json
    """
    wanted = methods.List(active=active, scope_id=scope, run_id=run_id, limit=limit)

    def shown(found: list[methods.Document]) -> Output:
        if world.json:
            return render.to_json(found)
        return render.text(
            *(render.columns(d.id, d.status, d.agent_type, d.name or "") for d in found)
        )

    if world.host == "daemon":  # it watches them anyway
        return Ask("dispatch.list", wanted, shown)

    def run(ask: Caller) -> Output:
        found: list[methods.Document] = ask("dispatch.list", wanted)
        try:
            seen = [_looked_at(world, ask, each, progress=False) for each in found]
        except IcError as exc:
            if not exc.retryable:
                raise
            return shown(found)  # nothing can be recorded at the moment: whoever looks next will
        is_same = [each.status for each in seen] == [each.status for each in found]
        return shown(found if is_same else ask("dispatch.list", wanted))

    return Local(run)


@click.command("poll", add_help_option=False, short_help="Look at a dispatch, and show it.")
@click.argument("dispatch_id", metavar="ID")
def poll(world: World, *, dispatch_id: str) -> Local:
    """Look at the process of a dispatch and at what it counts, then show it as status does.

    An end that its runner could not record is recorded now; if nobody can tell how the process
    ended, the dispatch has failed, with exit status -1.

    \b
    Examples:
      icctl dispatch poll k3v9x0qa
      icctl dispatch poll k3v9x0qa --json
    """

    def run(ask: Caller) -> Output:
        found: methods.Document = ask("dispatch.get", methods.Get(dispatch_id))
        return show(world)(_looked_at(world, ask, found, progress=True))

    return Local(run)


@click.command("tokens", add_help_option=False, short_help="Say what a dispatch has used.")
@click.argument("dispatch_id", metavar="ID")
@click.option("--in", "input_tokens", type=COUNT, metavar="N", help="Tokens that it was given.")
@click.option("--out", "output_tokens", type=COUNT, metavar="N", help="Tokens that it made.")
@click.option("--cache", "cache_hits", type=COUNT, metavar="N", help="Tokens from a cache.")
def tokens(
    world: World,
    *,
    dispatch_id: str,
    input_tokens: int | None,
    output_tokens: int | None,
    cache_hits: int | None,
) -> Ask:
    """Set what a dispatch has used so far; what is not given stays as it is.

    If its run has a budget that is nearly or wholly used up, a line on stderr says so.

    \b
    Example:
      icctl dispatch tokens k3v9x0qa --in=12000 --out=800 --cache=9000
    """
    params = methods.Tokens(
        dispatch_id,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cache_hits=cache_hits,
    )

    def shown(spent: methods.Spent) -> Output:
        output = render.to_json(spent) if world.json else render.text(spent.status)
        output.stderr = _budget(spent).encode()
        return output

    return Ask("dispatch.tokens", params, shown)


@click.command("prune", add_help_option=False, short_help="Forget dispatches that have ended.")
@click.option("--older-than", type=DURATION, required=True, help="Created at least so long ago.")
def prune(world: World, *, older_than: int) -> Ask:
    """Forget dispatches that have ended; those of an active run stay, its budget counts them.

    \b
    Example:
      icctl dispatch prune --older-than=30d
    """

    def shown(result: methods.Pruned) -> Output:
        return render.text(f"{result.pruned} pruned")

    params = methods.Prune(older_than_ms=older_than)
    return Ask("dispatch.prune", params, render.to_json if world.json else shown)


@click.command("record", add_help_option=False, short_help="Say that a process runs, or ended.")
@click.argument("dispatch_id", metavar="ID")
@click.option("--pid", type=PID, metavar="PID", help="It runs, as this process.")
@click.option("--pid-start", type=COUNT, default=0, metavar="TICKS", help="When that started.")
@click.option("--runner-pid", type=PID, metavar="PID", help="The process that waits for it.")
@click.option("--runner-start", type=COUNT, default=0, metavar="TICKS", help="When that started.")
@click.option("--boot", default="", metavar="ID", help="The boot that these times belong to.")
@click.option("--pidns", default="", metavar="NS", help="The namespace that the pids belong to.")
@click.option("--end", "end", metavar="FILE", help="It has ended as this JSON document says.")
def record(
    world: World,
    *,
    dispatch_id: str,
    pid: int | None,
    pid_start: int,
    runner_pid: int | None,
    runner_start: int,
    boot: str,
    pidns: str,
    end: str | None,
) -> Ask:
    """Record that the process of a dispatch runs, or how it ended; used by whoever runs agents.

    The first end counts; to record another one changes nothing, and exits 0 all the same.
    Prints the status that the dispatch has then.
    With --pid, exit 1 says that it was cancelled meanwhile: then end the process.

    \b
    Examples:
      icctl dispatch record k3v9x0qa --pid=4242 --runner-pid=4241
      icctl dispatch record k3v9x0qa --end=end.json
    """
    if (pid is None) == (end is None):
        raise Usage("say either --pid or --end")
    if end is not None:
        how = _end(world, dispatch_id, end)
        return Ask("dispatch.record", methods.Record(how), lambda r: _status(world, r.dispatch))
    assert pid is not None
    params = methods.Started(
        dispatch_id,
        pid,
        pid_start=pid_start,
        runner_pid=runner_pid,
        runner_start=runner_start,
        boot=boot,
        pidns=pidns,
    )
    return Ask("dispatch.started", params, lambda found: _status(world, found))


def _looked_at(
    world: World, ask: Caller, found: methods.Document, *, progress: bool
) -> methods.Document:
    """Look at what has not ended, in the caller's own process, and record what follows."""
    if found.is_over:
        return found
    from icd.features.dispatches.agent import looks  # only who looks pays for it

    database = paths.canonical(paths.resolve(world.where))
    seen = looks.look(found.subject, database, progress=progress)
    if not seen.is_news:
        return found
    now: methods.Document = ask("dispatch.poll", methods.Poll(found.id, seen=seen))
    if now.is_over and seen.end is not None:
        looks.forget(found.id, database)
    return now


def _end(world: World, dispatch_id: str, file: str) -> End:
    try:
        found = msgspec.json.decode(world.read_file(file), type=End)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        raise InvalidPayload(f"{file} does not tell an end: {exc}", hint="") from exc
    if found.id != dispatch_id:
        raise Usage(f"{file} is about another dispatch")
    return found


def _status(world: World, found: methods.Document) -> Output:
    return render.to_json(found) if world.json else render.text(found.status)


def _budget(spent: methods.Spent) -> str:
    if spent.budget is None:
        return ""
    if spent.exceeded:
        return f"[budget] EXCEEDED: {spent.used}/{spent.budget} tokens\n"
    return f"[budget] WARNING: {spent.used}/{spent.budget} tokens ({spent.warn_pct}% threshold)\n"


STARTING = [*spawning.COMMANDS, *auto_spawns.COMMANDS, *killing.COMMANDS]
COMMANDS = [*STARTING, status, list_, poll, wait, tokens, prune, record]
