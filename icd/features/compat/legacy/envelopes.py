"""interband envelopes: JSON around a payload, as the statusline reads it."""

import msgspec

from icd.features.mirror import interband


class Mirrored(Exception):
    """It says what the database said; importing it would be a circle."""


class NotAnEnvelope(Exception):
    pass


class _Envelope(msgspec.Struct):
    version: str
    payload: msgspec.Raw
    source: object = None


def payload(content: bytes) -> bytes:
    """The payload as it is written in the envelope."""
    try:
        envelope = msgspec.json.decode(content, type=_Envelope)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise NotAnEnvelope("is not an interband envelope") from None
    if envelope.source == interband.SOURCE:
        raise Mirrored
    if envelope.version.partition(".")[0] != "1":
        raise NotAnEnvelope("is an interband envelope of another version than 1")
    found = bytes(envelope.payload)
    if not found.startswith(b"{"):
        raise NotAnEnvelope("is an interband envelope whose payload is not an object")
    return found
