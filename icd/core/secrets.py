"""Likely secrets, recognised by their shape.  What was found is named, never repeated."""

import re
from collections.abc import Iterator

_FROM_START = {
    "an API key": r"(?:sk|pk|rk|ak)[-_][A-Za-z0-9]{20}",
    "a GitHub token": r"(?:ghp|gho|ghu|ghs|ghr)_[A-Za-z0-9_]{30}",
    "a Slack token": r"xox[bpras]-[A-Za-z0-9-]{20}",
    "a JSON web token": r"eyJ[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{20,}\.",
    "an AWS access key": r"AKIA[0-9A-Z]{16}",
    "a private key": r"-----BEGIN (?:RSA |EC |DSA |OPENSSH )?PRIVATE KEY",
}
_WORDS = "password|passwd|secret|token|api_key|apikey|api-key|access_key|private_key"
_ANYWHERE = rf"(?:{_WORDS})\s*[:=]\s*\S{{8}}"

_STARTS = [(kind, re.compile(shape, re.IGNORECASE)) for kind, shape in _FROM_START.items()]
_ASSIGNMENT = re.compile(_ANYWHERE, re.IGNORECASE)


def looks_like(text: str) -> str | None:
    """What kind of secret `text` seems to hold, if any."""
    for kind, shape in _STARTS:
        if shape.match(text):
            return kind
    # Looking for a character first is a hundred times faster, and most texts have neither.
    if (":" in text or "=" in text) and _ASSIGNMENT.search(text):
        return "a password or token"
    return None


# How secrets begin, in lower case: each shape above begins with one of these.
_BEGINNINGS = re.compile(r'"(?:[spra]k[-_]|gh[pousr]_|xox[bpras]-|eyj|akia|-----begin )')
_NAMES = re.compile(rf"(?:{_WORDS})(?:\s|\\[nrtf])*[:=]")
# These are letters of the alphabet in another case, and yet `lower` leaves them or makes two.
_ODD = re.compile("[\u0130\u0131\u017f\u212a]")


def suspects(plain: str) -> Iterator[str]:
    """The strings of a JSON text that may hold a secret, many times faster than one by one.

    Every quote in `plain` begins or ends a string: none is escaped, and `\\u` escapes nothing.
    A text in which it cannot be told is suspect as a whole.
    """
    if not plain.isascii() and _ODD.search(plain):
        yield plain
    lowered = plain.lower()
    for found in _BEGINNINGS.finditer(lowered):
        yield _around(plain, found.start() + 1)
    for found in _NAMES.finditer(lowered):
        yield _around(plain, found.start())


def _around(plain: str, place: int) -> str:
    return plain[plain.rfind('"', 0, place) + 1 : plain.find('"', place)]
