"""`icctl events …`"""

import click
import msgspec
from msgspec import Raw, Struct

from icd.app import render
from icd.app.call import Answer
from icd.app.invocation import Ask, Output, World
from icd.app.types import DURATION, SPAN, Whole
from icd.errors import ClientTooOld, Usage
from icd.features.events import methods, sources
from icd.features.events.store import Marks
from icd.values.wire import INT64

SEQ = Whole(0, INT64 - 1)
COUNT = Whole(-INT64, INT64 - 1)
# What a limit of zero or less has always meant.
UNLIMITED = 1000


class Reading(Struct, frozen=True, kw_only=True):
    """What a tail was asked for; `since` and `acked` change as it goes on."""

    run_id: str
    follow: bool
    consumer: str | None
    manual: bool
    limit: int
    source: str | None
    type: str | None
    marks: Marks
    since: int | None
    acked: int | None

    @property
    def moves(self) -> bool:
        """Whether what was written out is acknowledged."""
        return self.consumer is not None and not self.manual


@click.command("tail", add_help_option=False, short_help="Print events as JSON lines.")
@click.argument("run", required=False, metavar="[RUN]")
@click.option("--all", "every", is_flag=True, help="The events of all runs, and of none.")
@click.option("--follow", "-f", is_flag=True, help="Go on, and print events as they happen.")
@click.option("--consumer", metavar="C", help="Go on where this consumer was, and remember it.")
@click.option(
    "--ack",
    type=click.Choice(["auto", "manual"]),
    default="auto",
    help="manual: show the same again until 'events cursor ack' (default auto).",
)
@click.option("--acked", type=SEQ, metavar="SEQ", help="Acknowledge up to SEQ first.")
@click.option("--since", type=SEQ, metavar="SEQ", help="Only events after this one.")
@click.option("--since-phase", type=SEQ, default=0, metavar="ID", help="Phase events after ID.")
@click.option("--since-dispatch", type=SEQ, default=0, metavar="ID", help="The same of dispatches.")
@click.option("--since-discovery", type=SEQ, default=0, metavar="ID", help="And of discoveries.")
@click.option("--limit", type=COUNT, default=100, metavar="N", help="At most N (default 100).")
@click.option("--source", metavar="S", help="Only events of this source.")
@click.option("--type", "kind", metavar="T", help="Only events of this type.")
@click.option("--poll-interval", type=SPAN, default="500ms", help="Ignored: nobody polls.")
def tail(
    world: World,
    *,
    run: str | None,
    every: bool,
    since_phase: int,
    since_dispatch: int,
    since_discovery: int,
    kind: str | None,
    ack: str,
    limit: int,
    poll_interval: int,  # noqa: ARG001 -- for scripts that were written for the original
    **given: object,
) -> Ask:
    """Print events in the order in which they happened, one JSON object a line.

    With --consumer it starts where that consumer was, and its cursor moves once the lines have been
    written.
    With --ack=manual it does not: the same events are shown until they are acknowledged, by
    --acked or by 'events cursor ack'.
    If what comes next was pruned, the exit code is 2 and the message names the oldest event.

    \b
    Examples:
      icctl events tail --all --since 41
      icctl events tail "$RUN" --consumer=notifier
      icctl events tail --all -f --source=review
      icctl events tail --all --consumer=index --ack=manual --acked=57
    """
    if not (run or every):
        raise Usage("give a run or --all")
    reading = msgspec.convert(
        {
            **given,
            "run_id": run or "",
            "manual": ack == "manual",
            "limit": min(limit, methods.MOST) if limit > 0 else UNLIMITED,
            "type": kind,
            "marks": Marks(since_phase, since_dispatch, since_discovery),
        },
        Reading,
    )
    if reading.consumer is None and (reading.manual or reading.acked is not None):
        raise Usage("--ack and --acked go with --consumer")
    if (reading.follow or reading.moves) and not world.continues:
        raise ClientTooOld("this client cannot tell when it has written what it was sent")
    return _ask(world, reading)


def _ask(world: World, reading: Reading) -> Ask:
    def show(batch: methods.Batch) -> Output:
        output = render.lines(batch.events)
        if batch.events:
            output.then = _then(world, reading, batch)
        return output

    def follow(answer: Answer) -> Ask | None:
        """Wait as long as there is nothing to show."""
        if answer.error is not None or answer.result.events:
            return None
        since = answer.result.through if reading.consumer is None else reading.since
        return _ask(world, msgspec.structs.replace(reading, acked=None, since=since))

    method, params = _question(reading)
    # Nothing but a write brings events, and whoever waits is told of writes.
    return Ask(method, params, show, follow=follow if reading.follow else None, patience=None)


def _question(reading: Reading) -> tuple[str, methods.Tail | methods.Consume]:
    if reading.consumer is None:
        return "events.tail", methods.Tail(
            run_id=reading.run_id,
            since=reading.since or 0,
            limit=reading.limit,
            source=reading.source,
            type=reading.type,
            marks=reading.marks,
        )
    return "events.consume", methods.Consume(
        reading.consumer,
        run_id=reading.run_id,
        since=reading.since,
        limit=reading.limit,
        source=reading.source,
        type=reading.type,
        marks=reading.marks,
        acked=reading.acked,
    )


def _then(world: World, reading: Reading, batch: methods.Batch) -> list[str]:
    """What the caller runs once it has written the batch."""
    last = batch.events[-1].seq
    chosen = [] if world.db is None else ["--db", world.db]
    chosen += [] if world.timeout_ms is None else [f"--timeout={world.timeout_ms}ms"]
    if not reading.follow:
        if not reading.moves:
            return []
        run = [f"--run={reading.run_id}"] if reading.run_id else []
        words = ["events", "cursor", "ack", *run, "--", str(reading.consumer), str(last)]
        return [*chosen, *words]
    explicit = not reading.moves or reading.since is not None or reading.marks != Marks()
    options = {
        "--limit": reading.limit,
        "--source": reading.source,
        "--type": reading.type,
        "--since-phase": reading.marks.phase or None,
        "--since-dispatch": reading.marks.dispatch or None,
        "--since-discovery": reading.marks.discovery or None,
        "--consumer": reading.consumer,
        "--ack": "manual" if reading.manual else None,
        "--acked": last if reading.moves else None,
        "--since": batch.through if explicit else None,
    }
    flags = [f"{name}={value}" for name, value in options.items() if value is not None]
    what = ["--", reading.run_id] if reading.run_id else ["--all"]
    return [*chosen, "events", "tail", "--follow", *flags, *what]


_RECORDING = [
    click.option("--type", "kind", required=True, metavar="T", help="What happened."),
    click.option("--payload", metavar="JSON", help="More about it; @FILE reads a file."),
    click.option("--run", default="", metavar="RUN", help="The run that it belongs to."),
    click.option("--subject", default="", metavar="ID", help="What it is about."),
    click.option("--from", "from_state", default="", metavar="STATE", help="How it was before."),
    click.option("--to", "to_state", default="", metavar="STATE", help="How it is now."),
    click.option("--reason", default="", metavar="TEXT", help="Why."),
    click.option("--session", metavar="SID", help="Whose it is; else $CLAUDE_SESSION_ID."),
    click.option("--project", metavar="DIR", help="Where; else the current directory."),
    click.option("--idempotency-key", metavar="KEY", help="Record it once, however often asked."),
]


def _record(world: World, source: str, given: dict[str, str | None]) -> Ask:
    payload = given["payload"]
    content = world.read_file(payload[1:]) if payload and payload.startswith("@") else payload
    raw = content.encode() if isinstance(content, str) else content
    params = methods.Record(
        source,
        given["kind"] or "",
        methods.NOTHING if raw is None else Raw(raw),
        run_id=given["run"] or "",
        subject_id=given["subject"] or "",
        from_state=given["from_state"] or "",
        to_state=given["to_state"] or "",
        reason=given["reason"] or "",
        session=given["session"],
        project_dir=world.directory(given["project"]),
        idempotency_key=given["idempotency_key"],
    )

    def show(result: methods.Recorded) -> Output:
        return render.text("ok" if source in sources.ANSWERED_OK else str(result.seq))

    return Ask("events.record", params, render.to_json if world.json else show)


@click.command("record", add_help_option=False, short_help="Record an event.")
@click.option("--source", required=True, metavar="S", help="Who records, such as review or deploy.")
def record(world: World, *, source: str, **given: str | None) -> Ask:
    """Record an event and print its id; of coordination and intent, ok.

    Any lower-case word is a source.
    The payload of some must have certain fields: agency (agency_name, cycle_id, stage, and an
    idempotency key), interspect (agent_name), review (finding_id, agents, resolution,
    chosen_severity, impact), coordination (lock_id, owner, pattern, scope) and intent (intent_type,
    bead_id, idempotency_key).
    An idempotency key that is known prints the id that it got the first time.

    \b
    Examples:
      icctl events record --source=deploy --type=done --payload='{"n":1}'
      icctl events record --source=ci --type=failed --idempotency-key="$BUILD"
    """
    return _record(world, source, given)


@click.command("emit", add_help_option=False, short_help="Record an event of a review.")
@click.option(
    "--source", type=click.Choice(["review"]), default="review", help="Only review (the default)."
)
def emit(world: World, *, source: str, **given: str | None) -> Ask:
    """Record what became of a finding, and print its id.

    The type is disagreement_resolved or execution_defect.

    \b
    Example:
      icctl events emit --type=execution_defect --payload=@finding.json
    """
    return _record(world, source, given)


for _option in reversed(_RECORDING):
    _option(record)
    _option(emit)


@click.command("prune", add_help_option=False, short_help="Forget the beginning of the log.")
@click.option("--older-than", type=DURATION, help="What happened at least this long ago.")
@click.option("--keep", type=SEQ, metavar="N", help="All but the last N.")
@click.option("--force", is_flag=True, help="Also what durable cursors have yet to read.")
def prune(world: World, *, older_than: int | None, keep: int | None, force: bool) -> Ask:
    """Delete the oldest events: those that --older-than or --keep lets go of.

    What a durable cursor has yet to read, or a hook to get, is kept, unless --force is given.

    \b
    Examples:
      icctl events prune --older-than=90d
      icctl events prune --keep=100000
    """
    if older_than is None and keep is None:
        raise Usage("give --older-than or --keep")

    def show(result: methods.Pruned) -> Output:
        output = render.text(f"{result.pruned} pruned")
        if result.held:
            program = world.program
            told = f"{program}: events prune: warning: {result.held} more wait for"
            output.stderr = f"{told} durable cursors or hooks; --force deletes them, too\n".encode()
        return output

    params = methods.Prune(older_than_ms=older_than, keep=keep, force=force)
    return Ask("events.prune", params, render.to_json if world.json else show)


COMMANDS = [tail, record, emit, prune]
