"""What people and programs think of a discovery: signals, which are only ever added.

A signal is a record and changes nothing, unless the setting `feedback_learning_rate` is above 0:
then `promote` and `boost` move the relevance of an open discovery that part of the way to 1,
`dismiss` and `penalize` that part of the way to 0.  Its decay and its status stay as they are.
"""

import sqlite3

from icd.config import Settings
from icd.features.discoveries import lifecycle as reviews
from icd.features.discoveries import store as discoveries
from icd.features.discoveries import tiers
from icd.features.discoveries.store import Discovery, Told
from icd.features.discoveries.tiers import ONE

TOWARDS = {"promote": ONE, "boost": ONE, "dismiss": 0, "penalize": 0}

_RECORD = """
INSERT INTO feedback_signals (discovery_id, signal_type, signal_data, actor, created_at)
VALUES (?, ?, ?, ?, ?)
"""
_LEARN = """
UPDATE discoveries
SET relevance = relevance + (:towards - relevance) * :rate / 1000000,
    version = (SELECT value + 1 FROM counters WHERE name = 'discoveries')
WHERE id = :id AND status NOT IN ('promoted', 'dismissed')
"""


def record(
    conn: sqlite3.Connection,
    discovery_id: str,
    signal: str,
    *,
    data: str,
    actor: str,
    settings: Settings,
    told: Told,
) -> Discovery:
    """Add a signal; what the discovery is like afterwards."""
    before = discoveries.require(conn, discovery_id)
    conn.execute(_RECORD, (discovery_id, signal, data, actor, told.at))
    payload: dict[str, object] = {"discovery_id": discovery_id, "signal_type": signal}
    discoveries.tell(conn, "feedback.recorded", discovery_id, payload, told)
    if settings.feedback_learning_rate > 0 and signal in TOWARDS:
        return _learn(conn, before, signal, settings=settings, told=told)
    return before


def _learn(
    conn: sqlite3.Connection,
    before: Discovery,
    signal: str,
    *,
    settings: Settings,
    told: Told,
) -> Discovery:
    rate = tiers.millionths(settings.feedback_learning_rate)
    values = {"id": before.id, "towards": TOWARDS[signal], "rate": rate}
    if not conn.execute(_LEARN, values).rowcount:
        return before
    discoveries.bump(conn)
    after = discoveries.require(conn, before.id)
    reviews.tell_scored(
        conn, before, after.effective, settings, told, to_state=before.status, signal=signal
    )
    return after
