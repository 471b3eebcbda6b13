"""Which discoveries a project is interested in most, and why.

    rank = effective score
         + the weight of each keyword that occurs in title or summary
         + the weight of the source
         + the cosine of its embedding and the topic, if they have the same dimension

Everything is an integer, in millionths, so the order depends on no rounding: by rank, then by id.
Keywords are found word by word, whatever their case, and each counts once.

Callers run these inside a transaction: the profile and the discoveries are of one moment.
"""

import sqlite3

from msgspec import Struct

from icd.db.rows import checked
from icd.features.discoveries import weights
from icd.features.discoveries.profile import Profile
from icd.features.discoveries.similarity import Query, cosines
from icd.features.discoveries.store import Status

MAX_LIMIT = 1000
# So many are compared, those with the highest scores: others wait while it is done.
CANDIDATES = 1000
# Of a summary: what comes later is hardly what it is about.
TEXT_CHARACTERS = 10_000


class Item(Struct, frozen=True):
    """A discovery, with all that its rank is made of; what does not apply is 0, or None."""

    id: str
    source: str
    title: str
    status: str
    score: int
    keywords: dict[str, int]
    source_weight: int
    similarity: int | None
    rank: int


class About(Struct, frozen=True):
    """What else there is to show of one."""

    source_id: str
    summary: str
    url: str
    discovered_at: int


class _Candidate(Struct):
    id: str
    source: str
    title: str
    status: str
    score: int
    summary: str


class Ranking(Struct, frozen=True):
    """`is_cut`: there were more than could be compared."""

    items: list[Item]
    is_cut: bool


# A status that is NULL means those on which nobody has decided yet.  The scores are millionths of
# millionths until here.
_CANDIDATES = """
SELECT d.id, d.source, d.title, d.status, d.relevance * d.decay / 1000000,
       substr(d.summary, 1, ?1), e.vector
FROM discoveries d
LEFT JOIN embeddings e ON e.discovery_id = d.id AND length(e.vector) = ?2
WHERE (?3 IS NULL OR d.source = ?3)
  AND (d.status = ?4 OR ?4 IS NULL AND d.status NOT IN ('promoted', 'dismissed'))
ORDER BY d.relevance * d.decay DESC, d.id LIMIT ?5
"""
_ABOUT = "SELECT source_id, summary, url, discovered_at FROM discoveries WHERE id = ?"


def rank(
    conn: sqlite3.Connection,
    profile: Profile,
    *,
    limit: int,
    source: str | None = None,
    status: Status | None = None,
) -> Ranking:
    keywords = _Keywords(weights.parse(profile.keyword_weights))
    sources = weights.parse(profile.source_weights)
    topic = profile.topic_vector
    size = None if topic is None else len(topic)
    asked = (TEXT_CHARACTERS, size, source, status, CANDIDATES + 1)
    found = conn.execute(_CANDIDATES, asked).fetchall()
    vectors = {row[0]: row[-1] for row in found[:CANDIDATES] if row[-1] is not None}
    similar = {} if topic is None else _similarities(topic, vectors)
    items = []
    for row in found[:CANDIDATES]:
        each = checked(_Candidate, row[:-1])
        hits = keywords.found_in(each.title, each.summary)
        near, weight = similar.get(each.id), sources.get(each.source, 0)
        total = each.score + sum(hits.values()) + weight + (near or 0)
        about = (each.id, each.source, each.title, each.status, each.score)
        items.append(Item(*about, hits, weight, near, total))
    items.sort(key=lambda item: (-item.rank, item.id))
    return Ranking(items[:limit], len(found) > CANDIDATES)


def about(conn: sqlite3.Connection, discovery_id: str) -> About:
    """Of one that was ranked in the same transaction."""
    return checked(About, conn.execute(_ABOUT, (discovery_id,)).fetchone())


class _Keywords:
    """By their first words, so that a text costs its own words, however many keywords there are."""

    def __init__(self, given: dict[str, int]) -> None:
        self._weights = given
        self._beginning: dict[str, list[tuple[str, str]]] = {}
        for keyword in given:
            words = weights.words(keyword)
            # One without a word is found nowhere: no command stores it.
            if words:
                phrase = f" {' '.join(words)} "
                self._beginning.setdefault(words[0], []).append((phrase, keyword))

    def found_in(self, *texts: str) -> dict[str, int]:
        """With their weights, in the order of their names."""
        parts = [weights.words(text) for text in texts] if self._beginning else []
        words = [word for part in parts for word in part]
        whole = " | ".join(f" {' '.join(part)} " for part in parts)  # no phrase spans two texts
        found = [
            keyword
            for word in self._beginning.keys() & set(words)
            for phrase, keyword in self._beginning[word]
            if phrase in whole
        ]
        return {keyword: self._weights[keyword] for keyword in sorted(found)}


def _similarities(topic: bytes, vectors: dict[str, bytes]) -> dict[str, int]:
    """By the names of the vectors.  numpy is loaded only if there are any."""
    if not vectors:
        return {}
    found = cosines(Query(topic), list(vectors.values()))
    return {
        name: round(cosine * weights.MILLION) for name, cosine in zip(vectors, found, strict=True)
    }
