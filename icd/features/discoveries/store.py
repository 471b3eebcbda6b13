"""Discoveries: what scanners have found, and what became of it.

Invariants
    - a source submits the same thing once: (source, source_id) is unique;
    - every change takes the next number of one counter as the version of the rows that it changed,
      and is told in the log, in the same transaction;
    - the effective score, relevance times decay, is what is shown, ordered by and compared.

Nothing in the log refers to a row: it outlives what it tells of.
Callers run these inside a transaction, and check names and texts first.
"""

import sqlite3
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal, get_args

import msgspec
from msgspec import Struct

from icd.config import Settings
from icd.db.rows import checked, select
from icd.errors import DiscoveryNotFound, InvalidScore
from icd.features.events import store as events
from icd.features.events.store import Fact
from icd.values.processes import Writer
from icd.values.wire import Result, iso, iso_if

# A score is an integer in millionths: nothing adds up by rounding, and the same row is in the same
# tier for every reader.  Thresholds are compared with the exact product of relevance and decay, a
# number of millionths of millionths.
ONE = 1_000_000

Tier = Literal["high", "medium", "low", "discard"]
TIERS: tuple[Tier, ...] = get_args(Tier)


def millionths(score: float) -> int:
    if not 0 <= score <= 1:  # nor is NaN
        raise InvalidScore(f"the score {score:g} is not between 0 and 1")
    return round(score * ONE)


def fraction(score: int) -> float:
    return score / ONE


def effective(relevance: int, decay: int) -> int:
    return relevance * decay // ONE


def starts(settings: Settings) -> dict[Tier, int]:
    """The product at which each tier starts, the highest tier first."""
    return _starts(settings.tier_high, settings.tier_medium, settings.tier_low, 0.0)


@lru_cache(maxsize=16)  # asked for every row that is shown
def _starts(*thresholds: float) -> dict[Tier, int]:
    return {
        tier: millionths(threshold) * ONE for tier, threshold in zip(TIERS, thresholds, strict=True)
    }


def tier_of(score: int, settings: Settings) -> Tier:
    """The first tier whose threshold an effective score reaches."""
    return next(tier for tier, start in starts(settings).items() if score * ONE >= start)


def bounds_of(tier: Tier | None, settings: Settings) -> tuple[int, int]:
    """The least product of a tier, or of all tiers, and the first one beyond it."""
    if tier is None:
        return 0, ONE * ONE + 1
    begins = starts(settings)
    above = [begins[higher] for higher in TIERS[: TIERS.index(tier)]]
    return begins[tier], min([*above, ONE * ONE + 1])


# As long as those of the original.
ID_CHARACTERS = 12

Status = Literal["new", "scored", "proposed", "promoted", "dismissed"]
STATUSES: tuple[Status, ...] = get_args(Status)


class Discovery(Struct, frozen=True):
    """A row; relevance and decay are millionths."""

    id: str
    source: str
    source_id: str
    title: str
    summary: str
    url: str
    raw_metadata: str
    relevance: int
    decay: int
    status: Status
    run_id: str | None
    bead_id: str | None
    discovered_at: int
    discovered_ms: int
    decayed_ms: int | None
    promoted_at: int | None
    reviewed_at: int | None
    dismissed_ms: int | None
    version: int

    @property
    def effective(self) -> int:
        return effective(self.relevance, self.decay)


class View(Result, kw_only=True):
    """A discovery, first the fields of the original in its order; the score is the effective one.

    Lists leave out what the original leaves out there.
    """

    id: str
    source: str
    source_id: str
    title: str
    summary: str = ""
    url: str = ""
    raw_metadata: str = ""
    relevance_score: float
    confidence_tier: Tier
    status: Status
    run_id: str | None = None
    bead_id: str | None = None
    discovered_at: int
    promoted_at: int | None = None
    reviewed_at: int | None = None
    base_score: float
    decay: float
    discovered_at_iso: str = ""
    promoted_at_iso: str | None = None
    reviewed_at_iso: str | None = None

    def __post_init__(self) -> None:
        self.discovered_at_iso = iso(self.discovered_at)
        self.promoted_at_iso = iso_if(self.promoted_at)
        self.reviewed_at_iso = iso_if(self.reviewed_at)


_LISTED = ("id", "source", "source_id", "title", "summary", "url", "status", "discovered_at")
_SHOWN = (*_LISTED, "raw_metadata", "run_id", "bead_id", "promoted_at", "reviewed_at")


class Wanted(Struct, frozen=True, kw_only=True):
    """Which discoveries a caller asks for; `low` and `high` bound the product of the scores."""

    source: str | None = None
    status: str | None = None
    low: int = 0
    high: int = ONE * ONE + 1
    since: int = 0
    only_open: bool = False
    limit: int


_FIND = select(Discovery, "discoveries", "WHERE id = ?")
# Without what may be large and is not listed.
_LIST = select(
    Discovery,
    "discoveries",
    """
WHERE relevance * decay >= :low AND relevance * decay < :high
  AND (source = :source OR :source IS NULL)
  AND (status = :status OR :status IS NULL)
  AND discovered_at >= :since
  AND (:only_open = 0 OR status NOT IN ('promoted', 'dismissed'))
ORDER BY relevance * decay DESC, id LIMIT :limit
""",
).replace("raw_metadata", "''")
_BUMP = "UPDATE counters SET value = value + 1 WHERE name = 'discoveries' RETURNING value"


def find(conn: sqlite3.Connection, discovery_id: str) -> Discovery | None:
    row = conn.execute(_FIND, (discovery_id,)).fetchone()
    return checked(Discovery, row) if row else None


def require(conn: sqlite3.Connection, discovery_id: str) -> Discovery:
    found = find(conn, discovery_id)
    if found is None:
        raise DiscoveryNotFound(f"discovery not found: {discovery_id}")
    return found


def listed(conn: sqlite3.Connection, wanted: Wanted) -> list[Discovery]:
    """The highest effective score first; without their metadata."""
    rows = conn.execute(_LIST, msgspec.structs.asdict(wanted))
    return [checked(Discovery, row) for row in rows]


def view(found: Discovery, settings: Settings, *, listed: bool = False) -> View:
    """A discovery as it is shown alone, or in a list."""
    return View(
        **{name: getattr(found, name) for name in (_LISTED if listed else _SHOWN)},
        relevance_score=fraction(found.effective),
        confidence_tier=tier_of(found.effective, settings),
        base_score=fraction(found.relevance),
        decay=fraction(found.decay),
    )


def bump(conn: sqlite3.Connection) -> int:
    """The next number of the counter: the version of what is changed now."""
    (value,) = conn.execute(_BUMP).fetchone()
    return int(value)


class Told(Struct, frozen=True):
    """Who changes something, and when."""

    actor: Writer
    now_ms: int

    @property
    def at(self) -> int:
        return self.now_ms // 1000


def tell(
    conn: sqlite3.Connection,
    kind: str,
    discovery_id: str,
    payload: Mapping[str, object],
    told: Told,
    *,
    change: tuple[str, str] = ("", ""),
) -> int:
    """Record what happened to a discovery; `change` is its status before and after."""
    fact = Fact(
        source="discovery",
        type=kind,
        subject_id=discovery_id,
        from_state=change[0],
        to_state=change[1],
        payload=msgspec.json.encode(payload, order="sorted").decode(),
    )
    return events.append(conn, fact, actor=told.actor, now_ms=told.now_ms)
