"""What becomes of a discovery: scored, promoted, dismissed, or forgotten little by little.

Invariants
    - what is promoted or dismissed keeps its score;
    - the gate of a promotion and the promotion are one statement: nothing is promoted on a score
      that it no longer has;
    - a bead is given to a discovery once; the same one again changes nothing;
    - a row decays at most once in a period, however many decays run, and never below the floor;
    - a new score starts without decay; that it had decayed in this period stays known.

Callers run these inside a transaction.
"""

import sqlite3

from icd.config import Settings
from icd.errors import DiscoveryRefused
from icd.features.discoveries import store as discoveries
from icd.features.discoveries import tiers
from icd.features.discoveries.store import Discovery, Told
from icd.features.discoveries.tiers import ONE

_SCORE = """
UPDATE discoveries
SET relevance = ?, decay = 1000000, status = 'scored',
    version = (SELECT value + 1 FROM counters WHERE name = 'discoveries')
WHERE id = ? AND status NOT IN ('promoted', 'dismissed')
"""
_PROMOTE = """
UPDATE discoveries
SET status = 'promoted', bead_id = :bead_id, promoted_at = :at,
    version = (SELECT value + 1 FROM counters WHERE name = 'discoveries')
WHERE id = :id AND status NOT IN ('promoted', 'dismissed')
  AND (:force OR relevance * decay >= :product)
"""
_DISMISS = """
UPDATE discoveries
SET status = 'dismissed', reviewed_at = ?, dismissed_ms = ?,
    version = (SELECT value + 1 FROM counters WHERE name = 'discoveries')
WHERE id = ? AND status <> 'dismissed'
"""
_RETIRE = """
UPDATE discoveries
SET status = 'dismissed', reviewed_at = :at, dismissed_ms = :now_ms,
    version = (SELECT value + 1 FROM counters WHERE name = 'discoveries')
WHERE source = :source AND discovered_at >= :since AND status NOT IN ('promoted', 'dismissed')
RETURNING id
"""
_COUNT_OPEN = """
SELECT count(*) FROM discoveries
WHERE source = ? AND discovered_at >= ? AND status NOT IN ('promoted', 'dismissed')
"""
# A clock that was set back by less than a period must not make a row decay twice in one; set back
# by more, it must not keep it from decaying until it has caught up.
_DECAY = """
UPDATE discoveries
SET decay = max(decay * :keep / 1000000, :floor), decayed_ms = :now_ms,
    version = (SELECT value + 1 FROM counters WHERE name = 'discoveries')
WHERE status NOT IN ('promoted', 'dismissed') AND decay > :floor AND :keep < 1000000
  AND discovered_ms < :now_ms - :min_age_ms
  AND (decayed_ms IS NULL OR abs(:now_ms - decayed_ms) >= :every_ms)
"""


def score(
    conn: sqlite3.Connection, discovery_id: str, relevance: int, *, settings: Settings, told: Told
) -> Discovery:
    """Give it another score, which has not decayed."""
    before = discoveries.require(conn, discovery_id)
    if not conn.execute(_SCORE, (relevance, discovery_id)).rowcount:
        raise DiscoveryRefused(
            "invalid lifecycle transition: cannot score discovery in "
            f'"{discoveries.require(conn, discovery_id).status}" status'
        )
    discoveries.bump(conn)
    tell_scored(conn, before, relevance, settings, told, to_state="scored")
    return discoveries.require(conn, discovery_id)


def tell_scored(
    conn: sqlite3.Connection,
    before: Discovery,
    effective: int,
    settings: Settings,
    told: Told,
    *,
    to_state: str,
    **more: object,
) -> None:
    payload = {
        "id": before.id,
        "new_score": tiers.shown(effective),
        "old_score": tiers.shown(before.effective),
        "tier": tiers.tier(effective, settings),
        **more,
    }
    change = (before.status, to_state)
    discoveries.tell(conn, "discovery.scored", before.id, payload, told, change=change)


def promote(
    conn: sqlite3.Connection,
    discovery_id: str,
    bead_id: str,
    *,
    forced_by: str | None = None,
    threshold: int,
    told: Told,
) -> bool:
    """Give it a bead; False if it has this one already.

    `forced_by` names who wants it whatever its score is; else that must reach the threshold.
    """
    before = discoveries.require(conn, discovery_id)
    values = {
        "id": discovery_id,
        "bead_id": bead_id,
        "at": told.at,
        "force": forced_by is not None,
        "product": threshold * ONE,
    }
    if not conn.execute(_PROMOTE, values).rowcount:
        _check_promoted(discoveries.require(conn, discovery_id), bead_id, threshold)
        return False
    discoveries.bump(conn)
    after = discoveries.require(conn, discovery_id)
    payload: dict[str, object] = {
        "bead_id": bead_id,
        "force": forced_by is not None,
        "id": discovery_id,
        "score": tiers.shown(after.effective),
    }
    if forced_by is not None:
        payload["actor"] = forced_by
    change = (before.status, after.status)
    discoveries.tell(conn, "discovery.promoted", discovery_id, payload, told, change=change)
    return True


def _check_promoted(found: Discovery, bead_id: str, threshold: int) -> None:
    """Why it was not promoted; nothing, if it has that bead."""
    if found.status == "dismissed":
        raise DiscoveryRefused("invalid lifecycle transition: cannot promote dismissed discovery")
    if found.status != "promoted":
        raise DiscoveryRefused(
            "gate blocked: confidence below promotion threshold: "
            f"confidence {_apart(found.effective, threshold)} "
            f"below promotion threshold {tiers.shown(threshold):.2f}",
            hint="score it anew with 'icctl discovery score', or promote it with --force",
        )
    if found.bead_id != bead_id:
        raise DiscoveryRefused(f"{found.id} is promoted already, to {found.bead_id}")


def _apart(score: int, threshold: int) -> str:
    """Two digits, unless it would look like the threshold then."""
    short = f"{tiers.shown(score):.2f}"
    return f"{tiers.shown(score):.6f}" if short == f"{tiers.shown(threshold):.2f}" else short


def dismiss(conn: sqlite3.Connection, discovery_id: str, *, told: Told) -> bool:
    """False if it was dismissed already."""
    before = discoveries.require(conn, discovery_id)
    if not conn.execute(_DISMISS, (told.at, told.now_ms, discovery_id)).rowcount:
        return False
    discoveries.bump(conn)
    change = (before.status, "dismissed")
    discoveries.tell(
        conn, "discovery.dismissed", discovery_id, {"id": discovery_id}, told, change=change
    )
    return True


def candidates(conn: sqlite3.Connection, source: str, since: int) -> int:
    """How many `retire` would dismiss."""
    return int(conn.execute(_COUNT_OPEN, (source, since)).fetchone()[0])


def retire(conn: sqlite3.Connection, source: str, since: int, *, told: Told) -> int:
    """Dismiss what a source found since then, and nothing has become of; how many."""
    values = {"source": source, "since": since, "at": told.at, "now_ms": told.now_ms}
    retired = sorted(name for (name,) in conn.execute(_RETIRE, values).fetchall())
    if retired:
        discoveries.bump(conn)
    for name in retired:
        payload: dict[str, object] = {"id": name, "reason": "rollback", "source": source}
        change = ("", "dismissed")  # as the original tells it
        discoveries.tell(conn, "discovery.dismissed", name, payload, told, change=change)
    return len(retired)


def decay(
    conn: sqlite3.Connection,
    *,
    rate: int,
    floor: int,
    min_age_ms: int,
    every_ms: int,
    told: Told,
) -> int:
    """Let old discoveries fade by `rate`, at most once every period; how many did."""
    values = {
        "keep": ONE - rate,
        "floor": floor,
        "min_age_ms": min_age_ms,
        "every_ms": every_ms,
        "now_ms": told.now_ms,
    }
    count = conn.execute(_DECAY, values).rowcount
    if count:
        discoveries.bump(conn)
        payload: dict[str, object] = {"count": count, "rate": tiers.shown(rate)}
        discoveries.tell(conn, "discovery.decayed", "", payload, told)
    return count
