"""Which JSON payloads are stored.

A payload is stored verbatim, so it is judged as written: duplicate object keys, huge numbers and
lone surrogates are legal JSON and stay as they are.  Keys are searched for secrets like strings,
and a string is also judged by the key that it stands under.

Checks run in a fixed order, so the same payload always earns the same sentence: size, JSON,
secrets, depth, lengths, control characters.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Raw

from icd.errors import InvalidPayload, PayloadTooLarge, SecretRefused
from icd.values import secrets

PAYLOAD_BYTES = 1024 * 1024
DEPTH = 20
KEY_CHARACTERS = 1000
STRING_BYTES = 100 * 1024
ARRAY_ELEMENTS = 10_000

# A longer text is not repeated in a message.
WORD_BYTES = 60
# Text that a person may have typed without its quotes, and words of other languages.
_PLAIN = re.compile(r"[A-Za-z][\w .,:/@+-]*", re.ASCII)
_OTHER_WORDS = {"True": "true", "False": "false", "None": "null", "nil": "null", "NULL": "null"}

_CONTROL = re.compile(r"[\x00-\x07\x0b\x0e-\x1f]")


def check(raw: bytes) -> str:
    """The payload as text without surrounding white space, or the reason why it is refused."""
    payload = raw.strip()
    if len(payload) > PAYLOAD_BYTES:
        raise PayloadTooLarge(
            f"payload too large: {len(payload)} bytes or more (max {PAYLOAD_BYTES})"
        )
    try:
        text = payload.decode()
        value = _DECODER.decode(text)
    except RecursionError:
        raise InvalidPayload(_TOO_DEEP, hint=_FLATTEN) from None
    except ValueError as exc:
        hint = _meant(payload)
        raise InvalidPayload(f"invalid JSON payload: {_reason(exc)}", hint=hint) from exc
    _check(value)
    return text


def _meant(payload: bytes) -> str | None:
    """What to send instead of what is no JSON; None: nothing better than the usual."""
    if not payload:
        return "it is empty; send one JSON value"
    text = payload[:WORD_BYTES].decode("utf-8", "replace")
    if text in _OTHER_WORDS:
        return f"did you mean '{_OTHER_WORDS[text]}'?"
    # A secret must not be repeated, not even as a suggestion.
    if text.encode() == payload and _PLAIN.fullmatch(text) and not secrets.looks_like(text):
        return f"""did you mean '"{text}"'?"""
    if text[0] in "{[" and "'" in text:
        return "strings and keys stand in double quotes"
    return None


def is_json(text: str) -> bool:
    """Whether it is JSON at all, for what was stored under other rules than these."""
    try:
        _DECODER.decode(text)
    except (ValueError, RecursionError):
        return False
    return True


def check_object(text: str) -> str:
    """A payload that is an object."""
    payload = check(text.encode())
    if not payload.startswith("{"):
        raise InvalidPayload("it is not a JSON object", hint='send an object, such as {"a": 1}')
    return payload


def merged(text: str, changes: str, what: str) -> str:
    """Two objects as one: of a member of both, what `changes` has, unless both are objects again.

    Values stay as they are written: they may be beyond any type of ours.
    """
    try:
        return check(_merged(text.encode(), changes.encode()))
    except (msgspec.DecodeError, RecursionError) as exc:
        raise InvalidPayload(f"the metadata of {what} is not a JSON object") from exc


def _merged(there: bytes, given: bytes) -> bytes:
    found = msgspec.json.decode(there, type=dict[str, Raw])
    for name, value in msgspec.json.decode(given, type=dict[str, Raw]).items():
        old = bytes(found.get(name, b""))
        is_merged = old[:1] == bytes(value)[:1] == b"{"
        found[name] = Raw(_merged(old, bytes(value))) if is_merged else value
    return msgspec.json.encode(found)


_TOO_DEEP = f"JSON nesting too deep: >{DEPTH} levels"
_FLATTEN = "flatten it, or store the inner part as text or under its own key"
_SPLIT = "split it into several rows, or store the path of a file"
_SHORTEN_KEY = "use a short name as the key, and put the long text into its value"
_SHORTEN_STRING = "store the path or a digest of the text instead of the text itself"
_REMOVE_CONTROL = (
    "remove it; only escaped backspace, tab, newline, form feed and return are allowed"
)


def _check(value: object) -> None:
    keys: list[str] = []
    strings: list[str] = []
    members: list[tuple[str, str]] = []
    deepest = longest = 0
    for item, depth in _walk(value):
        if isinstance(item, str):
            strings.append(item)
            continue
        deepest = max(deepest, depth)
        if isinstance(item, tuple):
            for member in item:
                keys.append(member[0])
                if isinstance(member[1], str):
                    members.append(member)
        else:
            longest = max(longest, len(item))
    _refuse_secrets(keys + strings, members)
    if deepest > DEPTH:
        raise InvalidPayload(_TOO_DEEP, hint=_FLATTEN)
    if longest > ARRAY_ELEMENTS:
        raise InvalidPayload(f"JSON array too long: >{ARRAY_ELEMENTS} elements", hint=_SPLIT)
    _check_lengths(keys, strings)
    if any(_CONTROL.search(string) for string in (*keys, *strings)):
        raise InvalidPayload("JSON string contains a control character", hint=_REMOVE_CONTROL)


def _check_lengths(keys: list[str], strings: list[str]) -> None:
    for key in keys:
        if len(key) > KEY_CHARACTERS:
            raise InvalidPayload(
                f"JSON object key too long: {len(key)} characters (max {KEY_CHARACTERS})",
                hint=_SHORTEN_KEY,
            )
    for string in strings:
        # A character takes at most four bytes: most strings need not be encoded to be judged.
        if len(string) * 4 > STRING_BYTES and (size := _bytes(string)) > STRING_BYTES:
            raise InvalidPayload(
                f"JSON string value too long: {size} bytes (max {STRING_BYTES})",
                hint=_SHORTEN_STRING,
            )


def _walk(value: object) -> Iterator[tuple[Any, int]]:
    """Every string and container below `value`, with the depth at which it stands."""
    stack: list[tuple[Any, int]] = [(value, 1)]
    while stack:
        item, depth = stack.pop()
        if isinstance(item, str):
            yield item, depth
        elif isinstance(item, tuple):
            yield item, depth
            stack.extend((child, depth + 1) for _, child in item)
        elif isinstance(item, list):
            yield item, depth
            if len(item) <= ARRAY_ELEMENTS:
                stack.extend((child, depth + 1) for child in item)


def _refuse_secrets(texts: list[str], members: list[tuple[str, str]]) -> None:
    kind = secrets.in_payload(texts, members)
    if kind is not None:
        raise SecretRefused(
            f"payload contains a likely secret value ({kind}); "
            "store variable names for provenance, not secret values",
        )


def _bytes(string: str) -> int:
    return len(string.encode("utf-8", "surrogatepass"))


def _reason(exc: ValueError) -> str:
    if isinstance(exc, json.JSONDecodeError):
        return f"{exc.msg} at byte {len(exc.doc[: exc.pos].encode('utf-8', 'surrogatepass'))}"
    if isinstance(exc, UnicodeDecodeError):
        return f"not UTF-8 at byte {exc.start}"
    return str(exc)


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _skip_number(_digits: str) -> None:
    """Numbers have no limits here, and Python's own (4300 digits) must not become one."""


_DECODER = json.JSONDecoder(
    object_pairs_hook=tuple,  # a dict would hide what a duplicate key overwrote
    parse_int=_skip_number,
    parse_float=_skip_number,
    parse_constant=_refuse_constant,
)
