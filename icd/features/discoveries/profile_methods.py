"""discovery.profile, .update_profile, .rank and .prune: what is of interest, and what is not."""

from typing import Annotated

from msgspec import Meta, Raw, field

from icd.app.call import Context, Params
from icd.app.verb import Method, Writes, no_rows
from icd.errors import InvalidParams
from icd.features.discoveries import (
    profile as profiles,
)
from icd.features.discoveries import (
    rank as ranking,
)
from icd.features.discoveries import (
    retention as dismissals,
)
from icd.features.discoveries import (
    vectors,
    weights,
)
from icd.features.discoveries.rank import MAX_LIMIT, Item
from icd.features.discoveries.store import Status
from icd.values import validation as names
from icd.values.wire import INT64, Milliseconds, Result, iso

NOTHING = Raw(b"null")
DEFAULT_LIMIT = 20


class Show(Params):
    pass


class Update(Params):
    """Weights are objects; the vector is base64, and an empty one forgets the topic."""

    keyword_weights: Raw = field(default_factory=lambda: NOTHING)  # no default can be described
    source_weights: Raw = field(default_factory=lambda: NOTHING)
    topic_vector: bytes | None = None
    if_version: Annotated[int, Meta(ge=0, le=INT64 - 1)] | None = None


class Rank(Params):
    limit: Annotated[int, Meta(ge=1, le=MAX_LIMIT)] = DEFAULT_LIMIT
    source: str | None = None
    status: Status | None = None


class Prune(Params):
    older_than_ms: Milliseconds


class Profile(Result):
    """Weights are strings that hold JSON, as in the original; 0: nobody has set it yet."""

    id: int
    version: int
    keyword_weights: str
    source_weights: str
    topic_dimension: int | None
    updated_at: int
    updated_at_iso: str | None


class Ranked(Result):
    """`rank_score` is the sum of what stands between it and `similarity`."""

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


class Pruned(Result):
    pruned: int


def show(ctx: Context, _p: Show) -> Profile:
    return _shown(profiles.get(ctx.conn))


def update(ctx: Context, p: Update) -> Profile:
    changes = profiles.Changes(_text(p.keyword_weights), _text(p.source_weights), p.topic_vector)
    done = profiles.update(
        ctx.conn, changes, if_version=p.if_version, actor=ctx.writer, now_ms=ctx.now_ms
    )
    return _shown(done)


def rank(ctx: Context, p: Rank) -> list[Ranked]:
    profile = profiles.get(ctx.conn)
    found = ranking.rank(ctx.conn, profile, limit=p.limit, source=p.source, status=p.status)
    if found.is_cut:
        ctx.warnings.append(
            f"only the {ranking.CANDIDATES} with the highest scores were ranked; "
            "narrow it with --source or --status"
        )
    return [_ranked(ctx, item) for item in found.items]


def prune(ctx: Context, p: Prune) -> Pruned:
    return Pruned(dismissals.prune(ctx.conn, before_ms=ctx.now_ms - p.older_than_ms))


def check_update(p: Update) -> None:
    """Judge everything outside the lock."""
    given = [p.keyword_weights, p.source_weights]
    if all(bytes(raw) == b"null" for raw in given) and p.topic_vector is None:
        raise InvalidParams("nothing to change: give weights or a topic vector")
    if bytes(p.keyword_weights) != b"null":
        p.keyword_weights = Raw(weights.check_keywords(bytes(p.keyword_weights)))
    if bytes(p.source_weights) != b"null":
        p.source_weights = Raw(weights.check(bytes(p.source_weights)))
    if p.topic_vector:
        vectors.parse(p.topic_vector)


def check_rank(p: Rank) -> None:
    if p.source is not None:
        names.check_name(p.source)


def _text(raw: Raw) -> str | None:
    text = bytes(raw).decode()
    return None if text == "null" else text


def _shown(profile: profiles.Profile) -> Profile:
    topic = profile.topic_vector
    return Profile(
        id=1,
        version=profile.version,
        keyword_weights=profile.keyword_weights,
        source_weights=profile.source_weights,
        topic_dimension=None if topic is None else len(topic) // 4,
        updated_at=profile.updated_at,
        updated_at_iso=iso(profile.updated_at) if profile.version else None,
    )


def _ranked(ctx: Context, item: Item) -> Ranked:
    more = ranking.about(ctx.conn, item.id)
    return Ranked(
        id=item.id,
        source=item.source,
        source_id=more.source_id,
        title=item.title,
        status=item.status,
        discovered_at=more.discovered_at,
        rank_score=_float(item.rank),
        relevance_score=_float(item.score),
        keywords={keyword: _float(weight) for keyword, weight in item.keywords.items()},
        source_weight=_float(item.source_weight),
        similarity=None if item.similarity is None else _float(item.similarity),
        summary=more.summary,
        url=more.url,
    )


def _float(millionths: int) -> float:
    return millionths / weights.MILLION


METHODS = [
    Method("discovery.profile", Show, Profile, show),
    Method(
        "discovery.update_profile",
        Update,
        Profile,
        update,
        check=check_update,
        writes=Writes(no_rows, appends=True),
    ),
    Method("discovery.rank", Rank, list[Ranked], rank, check=check_rank),
    Method("discovery.prune", Prune, Pruned, prune, writes=Writes(no_rows)),
]
