"""Likely secrets, recognised by their shape.  What was found is named, never repeated."""

import re

_FROM_START = {
    "an API key": r"(?:sk|pk|rk|ak)[-_][A-Za-z0-9]{20}",
    "a GitHub token": r"(?:ghp|gho|ghu|ghs|ghr)_[A-Za-z0-9_]{30}",
    "a Slack token": r"xox[bpras]-[A-Za-z0-9-]{20}",
    "a JSON web token": r"eyJ[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{20,}\.",
    "an AWS access key": r"AKIA[0-9A-Z]{16}",
    "a private key": r"-----BEGIN (?:RSA |EC |DSA |OPENSSH )?PRIVATE KEY",
}
_ANYWHERE = (
    r"(?:password|passwd|secret|token|api_key|apikey|api-key|access_key|private_key)"
    r"\s*[:=]\s*\S{8}"
)

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
