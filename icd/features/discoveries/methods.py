"""discovery.*: what scanners have found, and what becomes of it."""

from typing import Annotated, Any

from msgspec import Meta, Raw, field

from icd.app.call import Context, Params
from icd.app.verb import Method, Writes, no_rows
from icd.config import Settings
from icd.features.discoveries import feedback, tiers
from icd.features.discoveries import lifecycle as reviews
from icd.features.discoveries import (
    profile_methods as profiles,
)
from icd.features.discoveries import (
    search_methods as searches,
)
from icd.features.discoveries import store as discoveries
from icd.features.discoveries import (
    submit_methods as submissions,
)
from icd.features.discoveries.store import Discovery, Status, Told, Wanted
from icd.features.discoveries.tiers import Tier
from icd.values import payloads
from icd.values import validation as names
from icd.values.wire import Milliseconds, Result, iso

# Discoveries in one answer; a reply is put together in memory, and others wait meanwhile.
MOST = 10_000
LIMIT = 100
DAY_MS = 24 * 3600 * 1000
MIN_FLOOR = 0.05
_EMPTY = Raw(b"{}")

# The year 9999: the last one that RFC 3339 can show.
Seconds = Annotated[int, Meta(ge=0, le=253_402_300_799)]


class Get(Params):
    id: str


class List(Params):
    source: str | None = None
    status: Status | None = None
    tier: Tier | None = None
    limit: Annotated[int, Meta(ge=1, le=MOST)] = LIMIT


class Score(Params):
    id: str
    score: float


class Promote(Params):
    id: str
    bead_id: str
    force: bool = False
    actor: str | None = None


class Dismiss(Params):
    id: str


class Feedback(Params):
    id: str
    signal: str
    data: Raw = field(default_factory=lambda: _EMPTY)  # a default could not be described
    actor: str = "system"


class Decay(Params):
    rate: float
    min_age_ms: Milliseconds = DAY_MS
    every_ms: Milliseconds = DAY_MS
    min_floor: float = MIN_FLOOR


class Retire(Params):
    source: str
    since: Seconds
    apply: bool = False


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
    discovered_at_iso: str
    promoted_at_iso: str | None = None
    reviewed_at_iso: str | None = None


class Scored(Result):
    id: str
    relevance_score: float
    confidence_tier: Tier


class Promoted(Result):
    """`promoted`: whether it was not before."""

    id: str
    bead_id: str
    promoted: bool


class Dismissed(Result):
    """`dismissed`: whether it was not before."""

    id: str
    dismissed: bool


class Recorded(Result):
    id: str
    signal: str
    relevance_score: float


class Decayed(Result):
    decayed: int


class Retired(Result):
    """`count`: how many were dismissed, or would be, and then the first of them are listed."""

    count: int
    applied: bool
    discoveries: list[View]


def get(ctx: Context, p: Get) -> View:
    return view(discoveries.require(ctx.conn, p.id), ctx.settings)


def list_(ctx: Context, p: List) -> list[View]:
    low, high = (0, Wanted(limit=0).high) if p.tier is None else tiers.bounds(p.tier, ctx.settings)
    wanted = Wanted(source=p.source, status=p.status, low=low, high=high, limit=p.limit)
    return [_listed(found, ctx.settings) for found in discoveries.listed(ctx.conn, wanted)]


def score(ctx: Context, p: Score) -> Scored:
    relevance = tiers.millionths(p.score)
    found = reviews.score(ctx.conn, p.id, relevance, settings=ctx.settings, told=_told(ctx))
    return Scored(found.id, tiers.shown(found.effective), tiers.tier(relevance, ctx.settings))


def promote(ctx: Context, p: Promote) -> Promoted:
    ctx.changed = reviews.promote(
        ctx.conn,
        p.id,
        p.bead_id,
        forced_by=_who(ctx, p.actor) if p.force else None,
        threshold=tiers.millionths(ctx.settings.promotion_threshold),
        told=_told(ctx),
    )
    return Promoted(p.id, p.bead_id, ctx.changed)


def dismiss(ctx: Context, p: Dismiss) -> Dismissed:
    ctx.changed = reviews.dismiss(ctx.conn, p.id, told=_told(ctx))
    return Dismissed(p.id, ctx.changed)


def record(ctx: Context, p: Feedback) -> Recorded:
    found = feedback.record(
        ctx.conn,
        p.id,
        p.signal,
        data=bytes(p.data).decode(),
        actor=p.actor,
        settings=ctx.settings,
        told=_told(ctx),
    )
    return Recorded(p.id, p.signal, tiers.shown(found.effective))


def decay(ctx: Context, p: Decay) -> Decayed:
    count = reviews.decay(
        ctx.conn,
        rate=tiers.millionths(p.rate),
        floor=tiers.millionths(p.min_floor),
        min_age_ms=p.min_age_ms,
        every_ms=p.every_ms,
        told=_told(ctx),
    )
    ctx.changed = count > 0
    return Decayed(count)


def retire(ctx: Context, p: Retire) -> Retired:
    if p.apply:
        count = reviews.retire(ctx.conn, p.source, p.since, told=_told(ctx))
        ctx.changed = count > 0
        return Retired(count, applied=True, discoveries=[])
    ctx.changed = False
    count = reviews.candidates(ctx.conn, p.source, p.since)
    wanted = Wanted(source=p.source, since=p.since, only_open=True, limit=MOST)
    found = [_listed(row, ctx.settings) for row in discoveries.listed(ctx.conn, wanted)]
    if count > len(found):
        ctx.warnings.append(f"the first {len(found)} of {count} are listed")
    return Retired(count, applied=False, discoveries=found)


def view(found: Discovery, settings: Settings) -> View:
    """A discovery with all that is known about it."""
    return View(
        id=found.id,
        source=found.source,
        source_id=found.source_id,
        title=found.title,
        summary=found.summary,
        url=found.url,
        raw_metadata=found.raw_metadata,
        relevance_score=tiers.shown(found.effective),
        confidence_tier=tiers.tier(found.effective, settings),
        status=found.status,
        run_id=found.run_id,
        bead_id=found.bead_id,
        discovered_at=found.discovered_at,
        promoted_at=found.promoted_at,
        reviewed_at=found.reviewed_at,
        base_score=tiers.shown(found.relevance),
        decay=tiers.shown(found.decay),
        discovered_at_iso=iso(found.discovered_at),
        promoted_at_iso=None if found.promoted_at is None else iso(found.promoted_at),
        reviewed_at_iso=None if found.reviewed_at is None else iso(found.reviewed_at),
    )


def _listed(found: Discovery, settings: Settings) -> View:
    shown = view(found, settings)
    shown.raw_metadata = ""
    shown.run_id = shown.bead_id = None
    shown.promoted_at = shown.promoted_at_iso = None
    shown.reviewed_at = shown.reviewed_at_iso = None
    return shown


def check_score(p: Score) -> None:
    tiers.millionths(p.score)


def check_promote(p: Promote) -> None:
    names.check_name(p.bead_id)
    if p.actor is not None:
        names.check_name(p.actor)


def check_feedback(p: Feedback) -> None:
    names.check_name(p.signal)
    names.check_name(p.actor)
    p.data = Raw(payloads.check(bytes(p.data)))


def check_decay(p: Decay) -> None:
    tiers.millionths(p.rate)
    tiers.millionths(p.min_floor)


def check_retire(p: Retire) -> None:
    names.check_name(p.source)


def _told(ctx: Context) -> Told:
    return Told(ctx.writer, ctx.now_ms)


def _who(ctx: Context, actor: str | None) -> str:
    return actor or ctx.writer.session or f"process {ctx.writer.pid}"


def _change(
    name: str, params: type[Params], result: object, run: Any, check: Any
) -> Method[Any, Any]:
    return Method(name, params, result, run, check=check, writes=Writes(no_rows, appends=True))


METHODS = [
    *submissions.METHODS,
    Method("discovery.get", Get, View, get),
    Method("discovery.list", List, list[View], list_),
    _change("discovery.score", Score, Scored, score, check_score),
    _change("discovery.promote", Promote, Promoted, promote, check_promote),
    _change("discovery.dismiss", Dismiss, Dismissed, dismiss, None),
    _change("discovery.feedback", Feedback, Recorded, record, check_feedback),
    _change("discovery.decay", Decay, Decayed, decay, check_decay),
    _change("discovery.retire", Retire, Retired, retire, check_retire),
    *searches.METHODS,
    *profiles.METHODS,
]
