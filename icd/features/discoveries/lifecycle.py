"""What becomes of a discovery: submitted, scored, promoted, dismissed, faded, at last deleted.

Invariants
    - whether something is known is decided in the transaction that stores it: of all who submit
      the same, or what resembles each other, at once, one stores it;
    - what the same source submitted under the same id is a duplicate and changes nothing, whatever
      it looks like by now;
    - what resembles a discovery of the same source, whatever became of that one, leaves an event
      and nothing else;
    - what is promoted or dismissed keeps its score;
    - the gate of a promotion and the promotion are one statement: nothing is promoted on a score
      that it no longer has;
    - a bead is given to a discovery once; the same one again changes nothing;
    - a row decays at most once in a period, however many decays run, and never below the floor;
    - a new score starts without decay; that it had decayed in this period stays known;
    - feedback is a record and changes nothing, unless the setting `feedback_learning_rate` is above
      0: then a signal moves the relevance of an open discovery that part of the way to 1 or to 0,
      and leaves its decay and its status as they are;
    - what was dismissed is deleted with its embedding and its feedback; the log keeps what happened
      to it, and a scanner that finds it again may submit it again.

Callers run these inside a transaction.
"""

import sqlite3
from typing import Literal

from msgspec import Struct

from icd.config import Settings
from icd.errors import DiscoveryRefused
from icd.features.discoveries import store
from icd.features.discoveries.store import ONE, Discovery, Told
from icd.features.discoveries.vectors import Batch
from icd.values.validation import new_id
from icd.values.wire import Result


class Submission(Struct, frozen=True, kw_only=True):
    """`metadata` is JSON that was checked already; `relevance` is in millionths."""

    source: str
    source_id: str
    title: str
    summary: str = ""
    url: str = ""
    metadata: str = "{}"
    relevance: int = 0
    embedding: bytes | None = None


class Submitted(Result):
    """`id`: of the discovery that is new, or that was there."""

    id: str
    verdict: Literal["new", "deduped", "duplicate"]


_KNOWN = "SELECT id FROM discoveries WHERE source = ? AND source_id = ?"
_INSERT = """
INSERT INTO discoveries (id, source, source_id, title, summary, url, raw_metadata, relevance, decay,
                         status, discovered_at, discovered_ms, version)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, 1000000, 'new', ?, ?, ?)
"""


def submit(
    conn: sqlite3.Connection,
    given: Submission,
    *,
    threshold: float = 0.0,
    among: Batch | None = None,
    settings: Settings,
    told: Told,
) -> Submitted:
    """Store it, unless there is no need to.  `threshold` 0: it is compared with nothing.

    `among` keeps embeddings in memory, for many submissions.
    """
    known = conn.execute(_KNOWN, (given.source, given.source_id)).fetchone()
    if known:
        return Submitted(known[0], "duplicate")
    among = among or Batch(conn, keeps=False)
    if given.embedding is not None and threshold > 0:
        similar = among.nearest(given.source, given.embedding, threshold=threshold)
        if similar is not None:
            _tell_deduped(conn, given, similar, told)
            return Submitted(similar, "deduped")
    return Submitted(_store(conn, given, among, settings, told), "new")


def _store(
    conn: sqlite3.Connection, given: Submission, among: Batch, settings: Settings, told: Told
) -> str:
    name = new_id(store.ID_CHARACTERS)
    texts = (given.source, given.source_id, given.title, given.summary, given.url, given.metadata)
    rest = (given.relevance, told.at, told.now_ms, store.bump(conn))
    conn.execute(_INSERT, (name, *texts, *rest))
    if given.embedding is not None:
        among.add(name, given.source, given.embedding)
    payload = {
        "id": name,
        "score": store.fraction(given.relevance),
        "source": given.source,
        "tier": store.tier_of(given.relevance, settings),
        "title": given.title,
    }
    store.tell(conn, "discovery.submitted", name, payload, told, change=("", "new"))
    return name


def _tell_deduped(conn: sqlite3.Connection, given: Submission, similar: str, told: Told) -> None:
    payload = {"existing_id": similar, "new_source_id": given.source_id, "source": given.source}
    store.tell(conn, "discovery.deduped", similar, payload, told)


# Where each signal moves the relevance, if anything is learnt from it.
TOWARDS = {"promote": ONE, "boost": ONE, "dismiss": 0, "penalize": 0}
# Each comes with an embedding of some kilobytes: a piece takes the database some milliseconds.
PRUNED_AT_ONCE = 1000
ALL = 2**63 - 1

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
  AND (:force = 1 OR relevance * decay >= :product)
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
_RECORD = """
INSERT INTO feedback_signals
    (discovery_id, signal_type, signal_data, actor, created_at, idempotency_key)
VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (discovery_id, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
"""
_LEARN = """
UPDATE discoveries
SET relevance = relevance + (:towards - relevance) * :rate / 1000000,
    version = (SELECT value + 1 FROM counters WHERE name = 'discoveries')
WHERE id = :id AND status NOT IN ('promoted', 'dismissed')
"""
_DUE = """
SELECT id FROM discoveries WHERE dismissed_ms <= ? AND status = 'dismissed'
ORDER BY dismissed_ms LIMIT ?
"""
_OLDEST = """
SELECT dismissed_ms FROM discoveries WHERE dismissed_ms IS NOT NULL AND status = 'dismissed'
ORDER BY dismissed_ms LIMIT 1
"""
_FORGET_FEEDBACK = "DELETE FROM feedback_signals WHERE discovery_id = ?"
# Its embedding goes with it, by the foreign key.
_FORGET = "DELETE FROM discoveries WHERE id = ?"
# A daemon that keeps discoveries in memory learns from it that some are gone.
_COUNT = "UPDATE counters SET value = value + ? WHERE name = 'discoveries_deleted'"


def score(
    conn: sqlite3.Connection, discovery_id: str, relevance: int, *, settings: Settings, told: Told
) -> Discovery:
    """Give it another score, which has not decayed."""
    before = store.require(conn, discovery_id)
    if not conn.execute(_SCORE, (relevance, discovery_id)).rowcount:
        raise DiscoveryRefused(
            "invalid lifecycle transition: cannot score discovery in "
            f'"{store.require(conn, discovery_id).status}" status'
        )
    store.bump(conn)
    return _tell_scored(conn, before, settings, told)


def _tell_scored(
    conn: sqlite3.Connection, before: Discovery, settings: Settings, told: Told, **more: object
) -> Discovery:
    after = store.require(conn, before.id)
    payload = {
        "id": before.id,
        "new_score": store.fraction(after.effective),
        "old_score": store.fraction(before.effective),
        "tier": store.tier_of(after.effective, settings),
        **more,
    }
    change = (before.status, after.status)
    store.tell(conn, "discovery.scored", before.id, payload, told, change=change)
    return after


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
    before = store.require(conn, discovery_id)
    force = forced_by is not None
    values = {"id": discovery_id, "bead_id": bead_id, "at": told.at, "force": force}
    promoted = conn.execute(_PROMOTE, values | {"product": threshold * ONE}).rowcount
    after = store.require(conn, discovery_id)
    if not promoted:
        _check_promoted(after, bead_id, threshold)
        return False
    store.bump(conn)
    payload = {"bead_id": bead_id, "force": force, "id": discovery_id}
    payload |= {"score": store.fraction(after.effective)} | ({"actor": forced_by} if force else {})
    change = (before.status, after.status)
    store.tell(conn, "discovery.promoted", discovery_id, payload, told, change=change)
    return True


def _check_promoted(found: Discovery, bead_id: str, threshold: int) -> None:
    """Why it was not promoted; nothing, if it has that bead."""
    if found.status == "dismissed":
        raise DiscoveryRefused("invalid lifecycle transition: cannot promote dismissed discovery")
    if found.status != "promoted":
        raise DiscoveryRefused(
            "gate blocked: confidence below promotion threshold: "
            f"confidence {_apart(found.effective, threshold)} "
            f"below promotion threshold {store.fraction(threshold):.2f}",
            hint="change its score with 'icctl discovery score', or promote it with --force",
        )
    if found.bead_id != bead_id:
        raise DiscoveryRefused(f"{found.id} is already promoted, to {found.bead_id}")


def _apart(score: int, threshold: int) -> str:
    """Two digits, unless it would look like the threshold then."""
    short = f"{store.fraction(score):.2f}"
    return f"{store.fraction(score):.6f}" if short == f"{store.fraction(threshold):.2f}" else short


def dismiss(conn: sqlite3.Connection, discovery_id: str, *, told: Told) -> bool:
    """Dismiss it; False if it was dismissed already."""
    before = store.require(conn, discovery_id)
    if not conn.execute(_DISMISS, (told.at, told.now_ms, discovery_id)).rowcount:
        return False
    store.bump(conn)
    change = (before.status, "dismissed")
    payload = {"id": discovery_id}
    store.tell(conn, "discovery.dismissed", discovery_id, payload, told, change=change)
    return True


def candidates(conn: sqlite3.Connection, source: str, since: int) -> int:
    """How many `retire` would dismiss."""
    return int(conn.execute(_COUNT_OPEN, (source, since)).fetchone()[0])


def retire(conn: sqlite3.Connection, source: str, since: int, *, told: Told) -> int:
    """Dismiss what a source found since then, and nothing has become of; how many."""
    values = {"source": source, "since": since, "at": told.at, "now_ms": told.now_ms}
    retired = sorted(name for (name,) in conn.execute(_RETIRE, values).fetchall())
    if retired:
        store.bump(conn)
    change = ("", "dismissed")  # as the original tells it
    for name in retired:
        payload = {"id": name, "reason": "rollback", "source": source}
        store.tell(conn, "discovery.dismissed", name, payload, told, change=change)
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
        store.bump(conn)
        payload = {"count": count, "rate": store.fraction(rate)}
        store.tell(conn, "discovery.decayed", "", payload, told)
    return count


def feedback(
    conn: sqlite3.Connection,
    discovery_id: str,
    signal: str,
    *,
    data: str,
    actor: str,
    key: str | None = None,
    settings: Settings,
    told: Told,
) -> Discovery:
    """Add a signal, unless its key is known; what the discovery is like afterwards."""
    before = store.require(conn, discovery_id)
    if not conn.execute(_RECORD, (discovery_id, signal, data, actor, told.at, key)).rowcount:
        return before
    payload = {"discovery_id": discovery_id, "signal_type": signal}
    store.tell(conn, "feedback.recorded", discovery_id, payload, told)
    if settings.feedback_learning_rate <= 0 or signal not in TOWARDS:
        return before
    rate = store.millionths(settings.feedback_learning_rate)
    values = {"id": discovery_id, "towards": TOWARDS[signal], "rate": rate}
    if not conn.execute(_LEARN, values).rowcount:
        return before
    store.bump(conn)
    return _tell_scored(conn, before, settings, told, signal=signal)


def prune(conn: sqlite3.Connection, *, before_ms: int) -> int:
    """Delete all that were dismissed by that moment; how many."""
    return _delete(conn, before_ms, limit=ALL)


def prune_some(conn: sqlite3.Connection, *, before_ms: int) -> int:
    """A bounded number of them, for a daemon in which callers wait."""
    return _delete(conn, before_ms, limit=PRUNED_AT_ONCE)


def oldest_ms(conn: sqlite3.Connection) -> int | None:
    """When the first of those that are still there was dismissed."""
    row = conn.execute(_OLDEST).fetchone()
    return None if row is None else int(row[0])


def _delete(conn: sqlite3.Connection, before_ms: int, *, limit: int) -> int:
    due = conn.execute(_DUE, (before_ms, limit)).fetchall()
    if due:
        conn.executemany(_FORGET_FEEDBACK, due)
        conn.executemany(_FORGET, due)
        conn.execute(_COUNT, (len(due),))
        store.bump(conn)
    return len(due)
