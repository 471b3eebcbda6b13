"""Who failed at what: failures by verb and caller, which scripts tend to throw away unread.

Invariants
    - the table is bounded: whoever failed longest ago makes room;
    - what a caller sent is never repeated, see `sentence`.
"""

import msgspec

from icd.errors import IcError, InvalidName

# Scripts of one user that fail; more of them than a person reads.
ROWS = 200
# Room for a path; nobody reads further.
SENTENCE_CHARACTERS = 300
MISTAKE = "the call itself is wrong; make it by hand to see why"


class Failures(msgspec.Struct):
    """Those of one caller at one verb, and the last of them."""

    method: str
    caller: str
    count: int
    at_ms: int
    error: str
    sentence: str


class Blame:
    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], Failures] = {}  # the latest last

    def note(self, method: str, caller: str, error: IcError, *, now_ms: int) -> None:
        known = self._rows.pop((method, caller), None)
        if known is None and len(self._rows) >= ROWS:
            del self._rows[next(iter(self._rows))]
        self._rows[method, caller] = Failures(
            method, caller, known.count + 1 if known else 1, now_ms, error.name, sentence(error)
        )

    def rows(self) -> list[Failures]:
        """The latest first."""
        return list(reversed(self._rows.values()))


def sentence(error: IcError) -> str:
    """What may be kept of an error.

    A complaint about the call itself quotes it, and in a wrong place there may be a payload.
    """
    if error.exit == 3 or isinstance(error, InvalidName):
        return MISTAKE
    text = error.message.encode("utf-8", "backslashreplace").decode().replace("\n", " ")
    return text[:SENTENCE_CHARACTERS]
