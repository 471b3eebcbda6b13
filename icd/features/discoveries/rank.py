"""discovery rank: which discoveries a project is interested in most, and why.

    rank = effective score
         + the weight of each keyword that occurs in title or summary
         + the weight of the source
         + the cosine of its embedding and the topic, if they have the same dimension

Everything is summed as integers, in millionths, so the order depends on no rounding: by rank, then
by id.  Keywords are found word by word, whatever their case, and each counts once.
"""

import sqlite3
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct

from icd.app import render
from icd.app.call import Context, Params
from icd.app.verb import Option, Verb
from icd.db.rows import checked
from icd.features.discoveries import profile as profiles
from icd.features.discoveries import store, tiers, weights
from icd.features.discoveries.profile import Profile
from icd.features.discoveries.search import unless_empty
from icd.features.discoveries.similarity import Query, cosines
from icd.features.discoveries.store import Status
from icd.features.discoveries.tiers import ONE
from icd.values import validation
from icd.values.wire import Result

MAX_LIMIT = 1000
DEFAULT_LIMIT = 20
# So many are compared, those with the highest scores: others wait while it is done.
CANDIDATES = 1000
# Of a summary: what comes later is hardly what it is about.
TEXT_CHARACTERS = 10_000


class Rank(Params):
    """Print the discoveries that the interest profile speaks for, the best first, and why.

    Each line: id, source, title, status, rank, and what the rank is the sum of: the score, the
    weights of keywords in title or summary, the weight of the source, and the similarity to the
    topic; between tabs.
    Promoted and dismissed ones are left out, unless --status asks for them.
    """

    limit: Annotated[
        int,
        Meta(ge=1, le=MAX_LIMIT),
        Option("--limit", f"At most so many; {DEFAULT_LIMIT}.", "N"),
    ] = DEFAULT_LIMIT
    source: Annotated[
        str | None,
        Option("--source", "Only of this source.", "S", resolve=unless_empty),
        validation.check_name,
    ] = None
    status: Annotated[Status | None, Option("--status", "Only with this status.")] = None


class Ranked(Result):
    """`rank_score` is the sum of what stands between it and `similarity`; what does not apply is 0,
    or null."""

    id: str
    source: str
    source_id: str
    title: str
    status: str
    discovered_at: int
    rank_score: float
    relevance_score: float
    keywords: dict[str, float]
    source_weight: float
    similarity: float | None
    summary: str = ""
    url: str = ""


class Ranking(NamedTuple):
    """`is_cut`: there were more than could be compared."""

    items: list[Ranked]
    is_cut: bool


class _Candidate(Struct):
    """The columns of one, and then what its rank is made of, in millionths."""

    id: str
    source: str
    title: str
    status: str
    score: int
    summary: str
    keywords: dict[str, int] = {}
    source_weight: int = 0
    similarity: int | None = None

    @property
    def rank(self) -> int:
        return (
            self.score + sum(self.keywords.values()) + self.source_weight + (self.similarity or 0)
        )


# A status that is NULL means those that are still open.  The scores are millionths of millionths
# until here.
_CANDIDATES = """
SELECT d.id, d.source, d.title, d.status, d.relevance * d.decay / 1000000,
       substr(d.summary, 1, ?1), e.vector
FROM discoveries d
LEFT JOIN embeddings e ON e.discovery_id = d.id AND length(e.vector) = ?2
WHERE (?3 IS NULL OR d.source = ?3)
  AND (d.status = ?4 OR ?4 IS NULL AND d.status NOT IN ('promoted', 'dismissed'))
ORDER BY d.relevance * d.decay DESC, d.id LIMIT ?5
"""


def rank(
    conn: sqlite3.Connection,
    profile: Profile,
    *,
    limit: int,
    source: str | None = None,
    status: Status | None = None,
) -> Ranking:
    """Callers run it in the transaction in which the profile was read."""
    keywords = _Keywords(weights.parse(profile.keyword_weights))
    sources = weights.parse(profile.source_weights)
    topic = profile.topic_vector
    size = None if topic is None else len(topic)
    asked = (TEXT_CHARACTERS, size, source, status, CANDIDATES + 1)
    rows = conn.execute(_CANDIDATES, asked).fetchall()
    vectors = {row[0]: row[-1] for row in rows[:CANDIDATES] if row[-1] is not None}
    similar = {} if topic is None else _similarities(topic, vectors)
    found = [checked(_Candidate, row[:-1]) for row in rows[:CANDIDATES]]
    for each in found:
        each.keywords = keywords.found_in(each.title, each.summary)
        each.source_weight = sources.get(each.source, 0)
        each.similarity = similar.get(each.id)
    found.sort(key=lambda each: (-each.rank, each.id))
    return Ranking([_ranked(conn, each) for each in found[:limit]], len(rows) > CANDIDATES)


def _ranked(conn: sqlite3.Connection, each: _Candidate) -> Ranked:
    found = store.require(conn, each.id)
    return Ranked(
        id=each.id,
        source=each.source,
        source_id=found.source_id,
        title=each.title,
        status=each.status,
        discovered_at=found.discovered_at,
        rank_score=tiers.shown(each.rank),
        relevance_score=tiers.shown(each.score),
        keywords={keyword: tiers.shown(weight) for keyword, weight in each.keywords.items()},
        source_weight=tiers.shown(each.source_weight),
        similarity=None if each.similarity is None else tiers.shown(each.similarity),
        summary=found.summary,
        url=found.url,
    )


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
    return {name: round(cosine * ONE) for name, cosine in zip(vectors, found, strict=True)}


def run(ctx: Context, p: Rank) -> list[Ranked]:
    profile = profiles.get(ctx.conn)
    found = rank(ctx.conn, profile, limit=p.limit, source=p.source, status=p.status)
    if found.is_cut:
        ctx.warnings.append(
            f"only the {CANDIDATES} with the highest scores were ranked; "
            "narrow it with --source or --status"
        )
    return found.items


def _line(item: Ranked) -> str:
    parts = [f"{item.relevance_score:.2f} score"]
    parts += [f"{weight:+.2f} {keyword}" for keyword, weight in item.keywords.items()]
    if item.source_weight:
        parts.append(f"{item.source_weight:+.2f} {item.source}")
    if item.similarity is not None:
        parts.append(f"{item.similarity:+.2f} topic")
    names = item.id, item.source, render.one_line(item.title), item.status
    return render.columns(*names, f"{item.rank_score:.2f}", ", ".join(parts))


VERBS = [
    Verb(
        "discovery rank",
        Rank,
        list[Ranked],
        run,
        show=lambda found, _: map(_line, found),
        order=("source", "status", "limit"),
        summary="Order discoveries by interest.",
        examples=[
            "icctl discovery rank --limit=5",
            "icctl discovery rank --source=arxiv --status=new --json",
        ],
    )
]
