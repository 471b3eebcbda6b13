"""Names that intercore gives to things: short enough to type, too many to be guessed twice."""

import secrets
import string

ALPHABET = string.ascii_lowercase + string.digits
LENGTH = 8


def new(length: int = LENGTH) -> str:
    return "".join(secrets.choice(ALPHABET) for _ in range(length))
