"""discovery: what scanners have found, and what becomes of it."""

from typing import Annotated, Any

from msgspec import Meta

from icd.app import render
from icd.app.call import Context, Params
from icd.app.invocation import Ask, Output, World
from icd.app.types import DURATION, SCORE, SPAN, Whole
from icd.app.verb import Card, Column, Command, Method, Option, Table, Verb, Writes, narrow, no_rows
from icd.errors import Usage
from icd.features.discoveries import lifecycle, promote, rank, search, store, submit
from icd.features.discoveries.promote import Id
from icd.features.discoveries.search import unless_empty
from icd.features.discoveries.store import Status, Tier, Told, View, Wanted
from icd.values.validation import check_name
from icd.values.wire import INT64, Milliseconds, Result

# Discoveries in one answer; a reply is put together in memory, and others wait meanwhile.
MOST = 10_000
LIMIT = 100
DAY_MS = 24 * 3600 * 1000
MIN_FLOOR = 0.05


def _limit(_world: World, given: int | None) -> int:
    """Zero or less means the usual number."""
    return LIMIT if given is None or given <= 0 else min(given, MOST)


Share = Annotated[float, SCORE, store.millionths]
Span = Annotated[Milliseconds, SPAN]
# Until the year 9999, the last one that RFC 3339 can show.
Seconds = Annotated[int, Meta(ge=0, le=253_402_300_799)]


# --- parameters -----------------------------------------------------------------------------------


class Get(Params):
    """Print a discovery: id, source, title, status, effective score and tier, separated by tabs.

    --json prints all fields.
    """

    rpc = "Return a discovery."
    id: Id


class List(Params):
    """Print discoveries in the columns of 'discovery status', highest effective score first."""

    rpc = "List discoveries, highest effective score first."
    source: Annotated[
        str | None, Option("--source", "Include only this source.", "S", resolve=unless_empty)
    ] = None
    status: Annotated[Status | None, Option("--status", "Include only this status.")] = None
    tier: Annotated[Tier | None, Option("--tier", "Include only this tier.")] = None
    limit: Annotated[
        int,
        Meta(ge=1, le=MOST),
        Whole(-INT64, INT64 - 1),
        Option("--limit", "Maximum number of results (default 100).", "N", resolve=_limit),
    ] = LIMIT


class Decay(Params):
    """Multiply the scores of old discoveries by 1 - rate, and count them."""

    rate: Annotated[Share, Meta(description="Fraction of the score that is lost, from 0 to 1.")]
    min_age_ms: Annotated[
        Span, Option("--min-age", "Minimum age of a discovery (default 24h).", "D")
    ] = DAY_MS
    every_ms: Annotated[
        Span,
        Option("--every", "Minimum time between two decays of a discovery (default 24h).", "D"),
    ] = DAY_MS
    min_floor: Annotated[Share, Option("--min-floor", "Lower bound of the total factor.", "F")] = (
        MIN_FLOOR
    )


class DecayForm(Decay):
    """Multiply the scores of old discoveries by 1 - rate, or by a factor; print how many.

    --rate=0.1 and --factor=0.9 are the same: a score of 0.80 becomes 0.72.
    --rate=0.9 leaves a tenth: 0.80 becomes 0.08.
    If any score decayed, a line on stderr shows the calculation.

    A discovery decays at most once per --every, so that concurrent calls have the effect of one.
    Its total factor never falls below --min-floor; a new score starts without decay.
    Promoted and dismissed discoveries do not decay.
    For a daily job use --every=20h, which tolerates delays.
    """

    rate: float = 0.0  # made of the two that are typed
    lost: Annotated[
        float | None, SCORE, Option("--rate", "Fraction that is lost: score x (1 - F).", "F")
    ] = None
    left: Annotated[
        float | None, SCORE, Option("--factor", "Fraction that remains: score x F.", "F")
    ] = None


class Retire(Params):
    """Dismiss the discoveries of a source since a time, or list them."""

    source: Annotated[str, Option("--source", "Name of the source.", "S"), check_name]
    since: Annotated[
        Seconds, Option("--since", "Unix time; discoveries found then or later.", "UNIX")
    ]
    apply: Annotated[bool, Option("--apply", "Dismiss the discoveries.")] = False


class RetireForm(Retire):
    """List the discoveries of a source since a time; with --apply, dismiss them.

    Without --apply nothing changes: the candidates are printed as by 'discovery list'.
    Promoted and dismissed discoveries are not candidates.
    """

    dry_run: Annotated[
        bool, Option("--dry-run", "List the discoveries without changing them (default).")
    ] = False


class RollbackForm(Retire):
    """Print how many discoveries of a source since a time would be dismissed.

    Without --apply nothing changes, and a line on stderr says so; with it, they are dismissed.
    This is the original's name for 'discovery retire'; the original dismisses at once.
    """

    dry_run: Annotated[
        bool, Option("--dry-run", "Count the discoveries without changing them (default).")
    ] = False


class Prune(Params):
    """Delete discoveries dismissed at least this long ago, with their embeddings and feedback.

    A scanner that finds one again submits it again: keep them as long as that is likely.
    The event log keeps their history.
    """

    older_than_ms: Annotated[
        Milliseconds, DURATION, Option("--older-than", "Minimum time since the dismissal.", "D")
    ]


# --- results --------------------------------------------------------------------------------------


class Decayed(Result):
    decayed: int


class Retired(Result):
    """`count`: how many were dismissed, or would be, and then the first of them are listed."""

    count: int
    applied: bool
    discoveries: list[View]


class Pruned(Result):
    pruned: int


# --- what is done ---------------------------------------------------------------------------------


def get(ctx: Context, p: Get) -> View:
    return store.view(store.require(ctx.conn, p.id), ctx.settings)


def list_(ctx: Context, p: List) -> list[View]:
    low, high = store.bounds_of(p.tier, ctx.settings)
    wanted = Wanted(source=p.source, status=p.status, low=low, high=high, limit=p.limit)
    return _listed(ctx, wanted)


def decay(ctx: Context, p: Decay) -> Decayed:
    count = lifecycle.decay(
        ctx.conn,
        rate=store.millionths(p.rate),
        floor=store.millionths(p.min_floor),
        min_age_ms=p.min_age_ms,
        every_ms=p.every_ms,
        told=Told(ctx.writer, ctx.now_ms),
    )
    ctx.changed = count > 0
    return Decayed(count)


def retire(ctx: Context, p: Retire) -> Retired:
    if p.apply:
        told = Told(ctx.writer, ctx.now_ms)
        count = lifecycle.retire(ctx.conn, p.source, p.since, told=told)
        ctx.changed = count > 0
        return Retired(count, applied=True, discoveries=[])
    ctx.changed = False
    count = lifecycle.candidates(ctx.conn, p.source, p.since)
    found = _listed(ctx, Wanted(source=p.source, since=p.since, only_open=True, limit=MOST))
    if count > len(found):
        ctx.warnings.append(f"the first {len(found)} of {count} are listed")
    return Retired(count, applied=False, discoveries=found)


def prune(ctx: Context, p: Prune) -> Pruned:
    return Pruned(lifecycle.prune(ctx.conn, before_ms=ctx.now_ms - p.older_than_ms))


def _listed(ctx: Context, wanted: Wanted) -> list[View]:
    rows = store.listed(ctx.conn, wanted)
    return [store.view(row, ctx.settings, listed=True) for row in rows]


# --- what is typed and shown ----------------------------------------------------------------------


def _line(found: View) -> str:
    """The columns of the original."""
    return render.columns(
        found.id,
        found.source,
        render.one_line(found.title),
        found.status,
        f"{found.relevance_score:.2f}",
        found.confidence_tier,
    )


def ask_decay(world: World, f: DecayForm) -> Ask:
    if (f.lost is None) == (f.left is None):
        raise Usage("pass either --rate or --factor", hint="--rate=0.1 is the same as --factor=0.9")
    lost = f.lost if f.lost is not None else _rest(f.left or 0.0)

    def show(result: Decayed) -> Output:
        if world.json:
            return render.to_json(result)
        output = render.text(f"{result.decayed} decayed")
        if result.decayed:
            done = f"multiplied the scores of {result.decayed} by {_rest(lost):g} (--rate={lost:g})"
            output.stderr = f"{world.program}: discovery decay: {done}\n".encode()
        return output

    return Ask("discovery.decay", narrow(f, Decay, rate=lost), show)


def _rest(part: float) -> float:
    """What is missing to 1, in the millionths that scores are kept in: 0.1, not 0.09999999."""
    return round(1 - part, 6)


def ask_retire(_world: World, f: RetireForm | RollbackForm) -> Ask:
    if f.apply and f.dry_run:
        raise Usage("pass either --apply or --dry-run")
    return Ask("discovery.retire", narrow(f, Retire))


def show_retire(result: Retired, _f: RetireForm) -> list[str]:
    if result.applied:
        return [f"{result.count} dismissed"]
    return [_line(found) for found in result.discoveries]


def _retired(result: Retired, _f: RetireForm, screen: Any) -> list[str]:
    if result.applied or not result.discoveries:
        return [f"{result.count} dismissed" if result.applied else "Nothing to dismiss."]
    told = f"These {result.count} would be dismissed; add --apply to do it."
    return [*screen.hint(told), *screen.table(LISTED, result.discoveries)]


def ask_rollback(world: World, f: RollbackForm) -> Ask:
    def show(result: Retired) -> Output:
        output = render.in_order(result) if world.json else render.text(str(result.count))
        if not result.applied:
            told = "nothing was changed; add --apply to dismiss them"
            output.stderr = f"{world.program}: discovery rollback: {told}\n".encode()
        return output

    ask = ask_retire(world, f)
    ask.render = show
    return ask


CARD = Card(
    Column("Discovery", "id", "id"),
    Column("State", "status", "state"),
    Column("Score", "relevance_score", "score"),
    Column("Tier", "confidence_tier"),
    Column("Title", "title"),
    Column("Summary", "summary"),
    Column("URL", "url"),
    Column("Source", "source"),
    Column("Source id", "source_id"),
    Column("Base score", lambda d: f"{d.base_score:.2f}"),
    Column("Decay", lambda d: f"{d.decay:.2f}"),
    Column("Discovered", "discovered_at", "age"),
    Column("Reviewed", "reviewed_at", "age"),
    Column("Promoted", "promoted_at", "age"),
    Column("Run", "run_id", "id"),
    Column("Bead", "bead_id"),
    Column("Metadata", lambda d: None if d.raw_metadata == "{}" else d.raw_metadata),
)
_COLUMNS = (
    Column("DISCOVERY", "id", "id"),
    Column("SCORE", "relevance_score", "score"),
    Column("TIER", "confidence_tier", spare=True),
    Column("STATE", "status", "state"),
    Column("FOUND", "discovered_at", "age", spare=True),
    Column("SOURCE", "source"),
    Column("TITLE", "title"),
)
LISTED = Table(
    *_COLUMNS,
    empty="No discoveries. Submit one: icctl discovery submit --source=S --title=T",
    filtered=True,
)

VERBS = [
    *submit.VERBS,
    Verb(
        "discovery status",
        Get,
        View,
        get,
        method="discovery.get",
        show=lambda found, _: [_line(found)],
        human=CARD,
        json=lambda found, _: render.in_order(found),
        summary="Show a discovery; exit 1 if absent.",
        examples=[
            "icctl discovery status k3v9x0a1b2c4",
            "icctl discovery status k3v9x0a1b2c4 --json",
        ],
    ),
    Verb(
        "discovery list",
        List,
        list[View],
        list_,
        show=lambda found, _: map(_line, found),
        human=LISTED,
        json=lambda found, _: render.in_order(found),
        summary="List discoveries, the best first.",
        examples=[
            "icctl discovery list --tier=high",
            "icctl discovery list --source=arxiv --status=new --json",
        ],
    ),
    *promote.VERBS,
    Method("discovery.decay", Decay, Decayed, decay, writes=Writes(no_rows, appends=True)),
    Command(
        "discovery decay",
        DecayForm,
        ask_decay,
        order=("lost", "left", "min_age_ms", "every_ms", "min_floor"),
        summary="Reduce the scores of old discoveries.",
        examples=[
            "icctl discovery decay --rate=0.1 --every=20h",
            "icctl discovery decay --factor=0.9 --every=20h",
            "icctl discovery decay --rate=0.05 --min-age=7d --every=12h --min-floor=0.2",
        ],
    ),
    Method("discovery.retire", Retire, Retired, retire, writes=Writes(no_rows, appends=True)),
    Command(
        "discovery retire",
        RetireForm,
        ask_retire,
        show=show_retire,
        human=_retired,
        json=lambda result, _: render.in_order(result),
        summary="Dismiss the recent finds of a source.",
        examples=[
            'icctl discovery retire --source=exa --since="$(date -d yesterday +%s)"',
            "icctl discovery retire --source=exa --since=1767225600 --apply",
        ],
    ),
    Command(
        "discovery rollback",
        RollbackForm,
        ask_rollback,
        summary="Count what 'retire' would dismiss.",
        examples=[
            "icctl discovery rollback --source=exa --since=1767225600",
            "icctl discovery rollback --source=exa --since=1767225600 --apply",
        ],
    ),
    *search.VERBS,
    *rank.VERBS,
    Verb(
        "discovery prune",
        Prune,
        Pruned,
        prune,
        writes=Writes(no_rows),
        show=lambda result, _: [f"{result.pruned} pruned"],
        summary="Delete dismissed discoveries.",
        examples=["icctl discovery prune --older-than=90d"],
    ),
]
