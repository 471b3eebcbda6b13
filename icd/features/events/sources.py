"""Who records events, and what each of them has to say.

A source that is not listed here is somebody else's: its events may say anything.
"""

import json
from typing import Any

from msgspec import Struct, structs

from icd.errors import InvalidPayload
from icd.features.events.store import Fact


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
        raise InvalidPayload(f"an event of {fact.source} is {known}, not {fact.type}", hint="")
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
