"""Likely secrets, recognised by their shape.  What was found is named, never repeated.

Four rules, in this order.  A *format* is a row of `secret_formats`: text that begins a word and
goes on like the keys of an issuer.  A *URL* with a password before its host.  An *authorization*:
the word Bearer or Basic, and what follows.  An *assignment*: a name such as `password`, a colon or
an equals sign, and a value; in JSON, a member whose key ends in such a name.

Formats say enough by themselves.  The value of an assignment does not: `password=validation` is
prose, and `token: 12345678` a count.  A value counts as a secret if

    - it is long enough (8 characters in a text, 6 as a member of an object), without white space;
    - it has both letters and digits.  Keys that machines make have them: of 20 characters in
      base64, 97 in 100 have a digit, of 32 hexadecimal ones nearly all.  Words and counts do not.
      After `password` digits are enough: it counts nothing;
    - it is no name: words of letters with a number before or behind, joined by `-_./:`, such as
      oauth2-proxy, v2/beta1 or secrets_2024.json.  A random text with such marks has letters and
      digits mixed within its words;
    - it stands for no other: `$NAME`, `${…}`, `<…>`, `%NAME%`, or a word such as redacted.

So a password of plain words is taken for prose, and a word with a number in it for a password.
Entropy was not used: of 8 to 20 characters it tells English from random text no better than digits
do, and neither a person nor a test can foresee its verdict.

Cost: a payload that holds none of the starts is searched for substrings only.  Expressions are
compiled when they are first needed: few calls ever need one.
"""

import re
from functools import cache

from icd.values.secret_formats import FORMATS

# The original asks for eight characters of an assignment.  A member of an object cannot be prose.
ASSIGNED_CHARACTERS = 8
MEMBER_CHARACTERS = 6
# Beyond this a value is content: an embedded file, an image.
VALUE_CHARACTERS = 4096

_NAMES = (
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "api_key",
    "api-key",
    "apikey",
    "access_key",
    "access-key",
    "accesskey",
    "private_key",
    "secret_key",
    "authorization",
)
_ENDS = (
    *(name.replace("-", "").replace("_", "") for name in _NAMES),
    "signingkey",
    "encryptionkey",
    "credential",
    "credentials",
)
# Tokens that say where a list goes on or which claim is the newest; they open nothing.
_HARMLESS_ENDS = tuple(
    f"{what}token"
    for what in (
        *("page", "next", "sync", "continuation", "resume", "cursor", "fencing", "lease"),
        "idempotency",
    )
)
_KEY_PARTS = ("passw", "passphrase", "secret", "token", "key", "credential", "authoriz")
_STAND_INS = ("redacted", "placeholder", "example", "changeme", "xxxx", "dummy")


def looks_like(text: str) -> str | None:
    """What kind of secret `text` seems to hold, if any."""
    return _in_text(text, text.lower())


def in_payload(texts: list[str], members: list[tuple[str, str]]) -> str | None:
    """What kind of secret keys and strings seem to hold, or strings under the keys they have."""
    # Joined, so that a payload of many short strings is searched once; no secret spans lines.
    text = "\n".join(texts)
    lowered = text.lower()
    kind = _in_text(text, lowered)
    if kind is None and members and any(map(lowered.__contains__, _KEY_PARTS)):
        return _in_members(members)
    return kind


def _in_text(text: str, lowered: str) -> str | None:
    kind = _format_in(text, _EXACT) or _format_in(lowered, _ANY_CASE)
    if kind is not None:
        return kind
    if "://" in text and _url().search(text):
        return "a URL with a password"
    if ("bearer " in lowered or "basic " in lowered) and _assigns(_authorization(), lowered):
        return "an authorization"
    if ":" in text or "=" in text:
        for name in _NAMES:
            if name in lowered and _assigns(_assignment(name), lowered, digits=name[:4] == "pass"):
                return "a password or token"
    return None


def _in_members(members: list[tuple[str, str]]) -> str | None:
    for key, value in members:
        if len(value) > VALUE_CHARACTERS or not _names_a_secret(key):
            continue
        if is_secret(value.strip(), MEMBER_CHARACTERS, digits="pass" in key.lower()):
            return "a password or token"
    return None


def is_secret(value: str, least: int = ASSIGNED_CHARACTERS, *, digits: bool = False) -> bool:
    """Whether the value of an assignment is one, and not a word, a count, a name or a stand-in.

    `digits`: without letters, too, because a password counts nothing.
    """
    word, shapes = value.lower(), _shapes()
    if len(word) < least or shapes.space.search(word) or not shapes.digit.search(word):
        return False
    if not (digits or shapes.letter.search(word)):
        return False
    if shapes.stand_in.match(word) or any(map(word.__contains__, _STAND_INS)):
        return False
    parts = shapes.marks.split(word)
    return len(parts) == 1 or not all(map(shapes.part.fullmatch, parts))


def _names_a_secret(key: str) -> bool:
    name = _shapes().between.sub("", key.lower())
    return name.endswith(_ENDS) and not name.endswith(_HARMLESS_ENDS)


def _assigns(pattern: re.Pattern[str], text: str, *, digits: bool = False) -> bool:
    return any(is_secret(found[1], digits=digits) for found in pattern.finditer(text))


def _format_in(text: str, groups: dict[str, tuple[str, ...]]) -> str | None:
    for mark, starts in groups.items():
        # One character first: a text without underscores has none of two dozen kinds.
        if mark in text and any(map(text.__contains__, starts)):
            for start in starts:
                if start in text and _format(start).search(text):
                    return FORMATS[_ROWS[start]].kind
    return None


def _grouped(starts: list[str]) -> dict[str, tuple[str, ...]]:
    """Starts by a character that each of them has."""
    groups: dict[str, list[str]] = {}
    for start in starts:
        mark = next((mark for mark in "_-." if mark in start), start[0])
        groups.setdefault(mark, []).append(start)
    return {mark: tuple(starts) for mark, starts in groups.items()}


_ROWS = {start: place for place, row in enumerate(FORMATS) for start in row.starts}
_EXACT = _grouped([start for row in FORMATS if not row.any_case for start in row.starts])
_ANY_CASE = _grouped([start for row in FORMATS if row.any_case for start in row.starts])


class _Shapes:
    """What a value is made of."""

    def __init__(self) -> None:
        self.digit = re.compile("[0-9]")
        self.letter = re.compile("[a-z]")
        self.space = re.compile(r"\s")
        self.marks = re.compile("[-_./:]+")
        self.part = re.compile("[0-9]{0,4}[a-z]*[0-9]{0,3}")
        self.between = re.compile("[^a-z0-9]+")
        # A variable, a template, or a time: 2026-01-31T10:00:00Z has letters and digits, too.
        self.stand_in = re.compile(r"\$\w+$|\$[{(]|<|\{\{|\[|%\w+%$|\d{4}-\d\d-\d\d")


@cache
def _shapes() -> _Shapes:
    return _Shapes()


@cache
def _format(start: str) -> re.Pattern[str]:
    """A start at the beginning of a word.  It comes first: `re` searches for literals quickly."""
    body, literal = FORMATS[_ROWS[start]].body, re.escape(start)
    if body.startswith("(?<=") or not start[0].isalnum():
        return re.compile(literal + body)  # it says itself what comes before it
    # A body without an end takes a whole run of characters: only the first start in it may count.
    before = "[A-Za-z0-9_-]" if ",}" in body else "[A-Za-z0-9]"
    return re.compile(f"{literal}(?<!{before}{literal}){body}")


@cache
def _url() -> re.Pattern[str]:
    return re.compile(r"://[^\s/?#@:\"']{0,200}:(?![$<{*%]|x{3})[^\s/?#@\"']{1,200}@[\w\[]")


@cache
def _authorization() -> re.Pattern[str]:
    return re.compile(r"(?<![a-z])(?:bearer|basic) {1,4}([a-z0-9._~+/-]{16,4096})")


@cache
def _assignment(name: str) -> re.Pattern[str]:
    value = rf"([^\s\"'`,;&<>(){{}}\[\]]{{{ASSIGNED_CHARACTERS},{VALUE_CHARACTERS}}})"
    return re.compile(re.escape(name) + r"[\"'`]?[ \t]{0,8}(?::=|=>|[:=])[ \t]{0,8}[\"'`]?" + value)
