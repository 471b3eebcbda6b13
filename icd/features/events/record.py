"""events record: write to the log.

Any lower-case word is a source.  Those that are listed here promise what their payload says.
"""

import json
from typing import Annotated, Any

from msgspec import Meta, Raw, Struct, field, structs

from icd.app.call import Context, Params
from icd.app.invocation import Ask, World
from icd.app.verb import Command, Method, Option, Writes, narrow, no_rows
from icd.errors import InvalidPayload
from icd.features.events import store
from icd.features.events.store import NOTHING, Fact
from icd.values import payloads
from icd.values.processes import Writer
from icd.values.wire import Result

# --- sources --------------------------------------------------------------------------------------


class Source(Struct, frozen=True):
    """`subject` is the field of the payload that names what an event is about."""

    needs: tuple[str, ...]
    subject: str
    types: tuple[str, ...] = ()
    needs_key: bool = False


SOURCES = {
    "agency": Source(("agency_name", "cycle_id", "stage"), "cycle_id", needs_key=True),
    "interspect": Source(("agent_name",), "agent_name"),
    "review": Source(
        ("finding_id", "agents", "resolution", "chosen_severity", "impact"),
        "finding_id",
        ("disagreement_resolved", "execution_defect"),
    ),
    "coordination": Source(("lock_id", "owner", "pattern", "scope"), "lock_id"),
    "intent": Source(("intent_type", "bead_id", "idempotency_key"), "bead_id"),
}
# Sources of which the original tells no id.
ANSWERED_OK = {"coordination", "intent"}
# A payload may hold numbers beyond any type of ours: they are words here.
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str)


def complete(fact: Fact) -> Fact:
    """The fact with what its payload tells about it, or the reason why it is refused."""
    source = SOURCES.get(fact.source)
    if source is None:
        return fact
    if source.types and fact.type not in source.types:
        known = " or ".join(source.types)
        raise InvalidPayload(
            f"events of {fact.source} have the type {known}, not {fact.type}", hint=""
        )
    said = _said(fact, source)
    key = fact.idempotency_key
    if fact.source == "intent":
        key = key or _word(said["idempotency_key"])
    if source.needs_key and key is None:
        raise InvalidPayload(f"an event of {fact.source} needs an idempotency key", hint="")
    reason = fact.reason
    if fact.source == "interspect":
        reason = reason or _word(said.get("override_reason"))
    subject_id = fact.subject_id or _word(said[source.subject])
    return structs.replace(fact, subject_id=subject_id, idempotency_key=key, reason=reason)


def _said(fact: Fact, source: Source) -> dict[str, Any]:
    said = _DECODER.decode(fact.payload) if fact.payload is not None else None
    if not isinstance(said, dict):
        raise InvalidPayload(f"an event of {fact.source} needs an object as payload", hint="")
    missing = [name for name in source.needs if said.get(name) in (None, "")]
    if missing:
        raise InvalidPayload(
            f"the payload of an event of {fact.source} lacks {', '.join(missing)}", hint=""
        )
    if fact.source == "review" and not isinstance(said["agents"], dict):
        raise InvalidPayload("agents in the payload is not an object", hint="")
    return said


def _word(value: object) -> str:
    """As text that can be stored: JSON can spell lone surrogates."""
    text = value if isinstance(value, str) else "" if value is None else str(value)
    return text.encode("utf-8", "backslashreplace").decode()


# --- the method -----------------------------------------------------------------------------------


def read_payload(world: World, given: str | None) -> Raw:
    if given is None:
        return NOTHING
    return Raw(world.read_file(given[1:]) if given.startswith("@") else given.encode())


def _directory(world: World, given: str | None) -> str:
    return world.directory(given)


class Record(Params):
    """Record an event; a known idempotency key returns the first event of that key."""

    source: Annotated[
        str, Option("--source", "Source of the event, such as review or deploy.", "S")
    ]
    type: Annotated[str, Option("--type", "Type of the event.", "T")]
    payload: Annotated[
        Raw,
        Meta(description="JSON payload."),
        Option("--payload", "JSON payload; @FILE reads a file.", "JSON", resolve=read_payload),
    ] = field(default_factory=lambda: NOTHING)  # a default could not be described
    run_id: Annotated[str, Option("--run", "Id of the run.", "RUN")] = ""
    subject_id: Annotated[str, Option("--subject", "Id of the subject.", "ID")] = ""
    from_state: Annotated[str, Option("--from", "State before the event.", "STATE")] = ""
    to_state: Annotated[str, Option("--to", "State after the event.", "STATE")] = ""
    reason: Annotated[
        str, Meta(max_length=payloads.STRING_BYTES), Option("--reason", "Reason.", "TEXT")
    ] = ""
    project_dir: Annotated[
        str | None,
        Meta(description="Project directory."),
        Option(
            "--project",
            "Project directory (default: the current directory).",
            "DIR",
            resolve=_directory,
        ),
    ] = None
    idempotency_key: Annotated[
        str | None, Option("--idempotency-key", "Record the event only once per key.", "KEY")
    ] = None
    trace_id: Annotated[str | None, Meta(description="Trace id.")] = None
    span_id: Annotated[str | None, Meta(description="Span id within the trace.")] = None


class Recorded(Result):
    """`recorded` is false if the key was known."""

    seq: int
    recorded: bool


def record(ctx: Context, p: Record) -> Recorded:
    last = store.head(ctx.conn)
    actor = Writer(
        ctx.writer.pid,
        p.session or ctx.writer.session,
        p.trace_id or ctx.writer.trace_id,
        p.span_id or ctx.writer.span_id,
    )
    seq = store.append(ctx.conn, _fact(p), actor=actor, now_ms=ctx.now_ms)
    return Recorded(seq, seq > last)


def check_record(p: Record) -> None:
    """Judge it outside the lock: a megabyte takes its time."""
    if p.payload is not NOTHING:
        p.payload = Raw(payloads.check(bytes(p.payload)))
    fact = complete(_fact(p))
    store.check(fact)
    p.subject_id, p.reason, p.idempotency_key = fact.subject_id, fact.reason, fact.idempotency_key


def _fact(p: Record) -> Fact:
    said = {name: getattr(p, name) for name in Fact.__struct_fields__}
    payload = bytes(p.payload)
    said["payload"] = None if payload == bytes(NOTHING) else payload.decode()
    return Fact(**said)


# --- the commands ---------------------------------------------------------------------------------


class RecordForm(Record, kw_only=True):
    """Record an event and print its id; for the sources coordination and intent, print ok.

    A source is any lower-case word.
    Some sources require fields in the payload: agency (agency_name, cycle_id, stage, and an
    idempotency key), interspect (agent_name), review (finding_id, agents, resolution,
    chosen_severity, impact), coordination (lock_id, owner, pattern, scope) and intent (intent_type,
    bead_id, idempotency_key).
    A known idempotency key records nothing, and prints the id of the first event.
    """

    session: Annotated[
        str | None, Option("--session", "Session id (default: the caller's session).", "SID")
    ] = None


def ask_record(_world: World, f: RecordForm) -> Ask:
    return Ask("events.record", narrow(f, Record))


def show_record(r: Recorded, f: RecordForm) -> list[str]:
    return ["ok" if f.source in ANSWERED_OK else str(r.seq)]


ORDER = (
    "idempotency_key",
    "project_dir",
    "session",
    "reason",
    "to_state",
    "from_state",
    "subject_id",
    "run_id",
    "payload",
    "type",
)

VERBS = [
    Method(
        "events.record",
        Record,
        Recorded,
        record,
        check=check_record,
        writes=Writes(no_rows, appends=True),
    ),
    Command(
        "events record",
        RecordForm,
        ask_record,
        show=show_record,
        order=ORDER,
        summary="Record an event.",
        examples=[
            """icctl events record --source=deploy --type=done --payload='{"n":1}'""",
            'icctl events record --source=ci --type=failed --idempotency-key="$BUILD"',
        ],
    ),
]
