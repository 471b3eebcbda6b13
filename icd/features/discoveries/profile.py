"""The interest profile: what a project is interested in.  There is one profile, or none yet.

Invariants
    - every update gives it the next version, and keeps what it does not mention;
    - an update that expects another version changes nothing: of two that have read the same
      profile, one wins, and the other is told so;
    - weights are a JSON object of finite numbers, stored as it was written; the topic is a vector
      (see `vectors`).

To count with, weights are integers, in millionths like scores: sums of them depend on no order.
"""

import re
import sqlite3
import unicodedata

import msgspec
from msgspec import Struct, structs

from icd.db.rows import checked, columns, select
from icd.errors import InvalidWeights, ProfileConflict
from icd.features.discoveries import store
from icd.features.discoveries.store import ONE, Told
from icd.values import payloads
from icd.values.validation import shown


class Profile(Struct, frozen=True):
    version: int
    topic_vector: bytes | None
    keyword_weights: str
    source_weights: str
    updated_at: int


# Before the first update, nothing is of interest.
NONE = Profile(0, None, "{}", "{}", 0)

_GET = select(Profile, "interest_profile", "WHERE id = 1")
_PUT = f"""
INSERT INTO interest_profile (id, {columns(Profile)}) VALUES (1, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
    version = excluded.version, topic_vector = excluded.topic_vector,
    keyword_weights = excluded.keyword_weights, source_weights = excluded.source_weights,
    updated_at = excluded.updated_at
"""  # noqa: S608 -- a struct names the columns


def get(conn: sqlite3.Connection) -> Profile:
    row = conn.execute(_GET).fetchone()
    return NONE if row is None else checked(Profile, row)


def put(conn: sqlite3.Connection, profile: Profile) -> None:
    """Replace it as a whole."""
    conn.execute(_PUT, structs.astuple(profile))


def update(
    conn: sqlite3.Connection,
    changes: dict[str, str | bytes],
    *,
    if_version: int | None = None,
    told: Told,
) -> Profile:
    """Change what is mentioned, and was checked; an empty topic vector forgets the topic.

    `if_version` 0: only if there is no profile yet.
    """
    there = get(conn)
    if if_version is not None and if_version != there.version:
        here = f"at version {there.version}" if there.version else "absent"
        found = f"is {here}, expected version {if_version}"
        if not if_version:
            found = f"already exists (version {there.version})"
        raise ProfileConflict(f"the profile {found}")
    version = there.version + 1
    new = structs.replace(there, **changes, version=version, updated_at=max(told.at, 0))
    put(conn, structs.replace(new, topic_vector=new.topic_vector or None))
    payload = {"changed": sorted(changes), "version": version}
    store.tell(conn, "profile.updated", "", payload, told)
    return get(conn)


# --- weights by name ------------------------------------------------------------------------------

# More than anybody maintains by hand; the time that a ranking takes grows with it.
MAX_WEIGHTS = 1000
# Beside it no score counts any more; sums of all weights stay exact as a float, too.
MAX_WEIGHT = 1_000_000

# With what follows a letter in the names of some languages: C++, C#.
_WORD = re.compile(r"\w+[+#]*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_BREAKS = str.maketrans("\r\n", "  ")

_decoder = msgspec.json.Decoder(dict[str, float])


def check_weights(raw: bytes) -> str:
    """The same text in one line, if it is an object of weights."""
    text = payloads.check(raw)
    for name in _decoded(text):
        if not name or _CONTROL.search(name):  # they are shown between tabs
            raise InvalidWeights(f"the name {shown(name)} is empty or has control characters")
    return text.translate(_BREAKS)  # white space: inside a string they would be escaped


def check_keywords(raw: bytes) -> str:
    """The same, if each name has a word that can be found."""
    text = check_weights(raw)
    for keyword in _decoded(text):
        if not words(keyword):
            raise InvalidWeights(f"the keyword {shown(keyword)} has no letter or digit")
    return text


def parse_weights(text: str) -> dict[str, int]:
    """In millionths; `text` was checked when it was stored."""
    return {name: round(weight * ONE) for name, weight in _decoded(text).items()}


def words(text: str) -> list[str]:
    """As they are compared: whatever their case, and whatever stands between them."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def _decoded(text: str) -> dict[str, float]:
    try:
        found = _decoder.decode(text)
    except msgspec.DecodeError as exc:  # of the wrong type, or too large for a float
        raise InvalidWeights(f"not an object of numbers: {exc}") from exc
    if len(found) > MAX_WEIGHTS:
        raise InvalidWeights(f"{len(found)} weights, at most {MAX_WEIGHTS} are allowed")
    for name, weight in found.items():
        if abs(weight) > MAX_WEIGHT:
            raise InvalidWeights(
                f"the weight {weight:g} of {shown(name)} is not between {-MAX_WEIGHT} "
                f"and {MAX_WEIGHT}"
            )
    return found
