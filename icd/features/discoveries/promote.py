"""discovery score, promote, dismiss and feedback: what is decided about one discovery."""

from typing import Annotated

from msgspec import Meta, Raw, field

from icd.app.call import Context, Params
from icd.app.invocation import World
from icd.app.types import SCORE
from icd.app.verb import Argument, Option, Verb, Writes, no_rows
from icd.errors import Usage
from icd.features.discoveries import lifecycle, store
from icd.features.discoveries.store import Tier, Told
from icd.features.discoveries.submit import content
from icd.values import payloads
from icd.values.validation import check_name
from icd.values.wire import Result


def _document(world: World, given: str | None) -> Raw:
    return Raw(content(world, given or "{}"))


Id = Annotated[str, Argument("ID", "Id of the discovery.")]
Name = Annotated[str, check_name]


# --- parameters -----------------------------------------------------------------------------------


class Score(Params):
    """Set the score of a discovery, and clear its decay.

    Exit 1 if the discovery is unknown, promoted or dismissed.
    """

    rpc = (
        "Set the score of a discovery, and clear its decay.\n"
        "Promoted and dismissed discoveries are refused."
    )
    id: Id
    score: Annotated[
        float, SCORE, Option("--score", "New score, from 0 to 1.", "F"), store.millionths
    ]


class Promote(Params):
    """Promote a discovery to a bead, if its effective score reaches the promotion threshold.

    Exit 1 if the score is too low, or if the discovery was dismissed or has another bead.
    Promoting to the same bead again changes nothing.
    """

    rpc = (
        "Promote a discovery to a bead, if its effective score reaches the promotion "
        "threshold.\n"
        "A discovery that was dismissed or has another bead is refused.\n"
        "Promoting to the same bead again changes nothing."
    )
    id: Id
    bead_id: Annotated[Name, Option("--bead-id", "Id of the bead to promote it to.", "B")]
    force: Annotated[
        bool, Option("--force", "Ignore the promotion threshold; the event records it.")
    ] = False
    actor: (
        Annotated[
            Name,
            Option(
                "--actor", "Name of the person or agent that forces it (default: the session).", "A"
            ),
        ]
        | None
    ) = None


class Dismiss(Params):
    """Dismiss a discovery, even a promoted one; a second time changes nothing."""

    id: Id


class Feedback(Params):
    """Record a signal about a discovery, which is kept as long as the discovery.

    If the setting feedback_learning_rate is above 0, the signals promote and boost raise the score
    of a discovery that is neither promoted nor dismissed, and dismiss and penalize lower it.
    A signal with a key that is known for this discovery changes nothing.
    """

    id: Id
    signal: Annotated[
        Name, Option("--signal", "Name of the signal, such as boost or penalize.", "S")
    ]
    data: Annotated[
        Raw,
        Meta(description="JSON details."),
        Option("--data", "JSON details; @FILE reads a file.", "JSON", resolve=_document),
    ] = field(default_factory=lambda: Raw(b"{}"))  # a default could not be described
    actor: Annotated[
        Name, Option("--actor", "Name of the person or agent that gives the signal.", "A")
    ] = "system"
    idempotency_key: (
        Annotated[
            Name,
            Option(
                "--idempotency-key", "Record the signal only once per discovery and key.", "KEY"
            ),
        ]
        | None
    ) = None


# --- results --------------------------------------------------------------------------------------


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


# --- what is done ---------------------------------------------------------------------------------


def score(ctx: Context, p: Score) -> Scored:
    relevance = store.millionths(p.score)
    told = Told(ctx.writer, ctx.now_ms)
    found = lifecycle.score(ctx.conn, p.id, relevance, settings=ctx.settings, told=told)
    return Scored(found.id, store.fraction(found.effective), store.tier_of(relevance, ctx.settings))


def promote(ctx: Context, p: Promote) -> Promoted:
    who = p.actor or ctx.writer.session or f"process {ctx.writer.pid}"
    ctx.changed = lifecycle.promote(
        ctx.conn,
        p.id,
        p.bead_id,
        forced_by=who if p.force else None,
        threshold=store.millionths(ctx.settings.promotion_threshold),
        told=Told(ctx.writer, ctx.now_ms),
    )
    return Promoted(p.id, p.bead_id, ctx.changed)


def dismiss(ctx: Context, p: Dismiss) -> Dismissed:
    ctx.changed = lifecycle.dismiss(ctx.conn, p.id, told=Told(ctx.writer, ctx.now_ms))
    return Dismissed(p.id, ctx.changed)


def feedback(ctx: Context, p: Feedback) -> Recorded:
    found = lifecycle.feedback(
        ctx.conn,
        p.id,
        p.signal,
        data=bytes(p.data).decode(),
        actor=p.actor,
        key=p.idempotency_key or None,
        settings=ctx.settings,
        told=Told(ctx.writer, ctx.now_ms),
    )
    return Recorded(p.id, p.signal, store.fraction(found.effective))


def _check_data(p: Feedback) -> None:
    p.data = Raw(payloads.check(bytes(p.data)))


def _check_actor(p: Promote) -> None:
    if p.actor is not None and not p.force:
        raise Usage("--actor requires --force")


VERBS = [
    Verb(
        "discovery score",
        Score,
        Scored,
        score,
        writes=Writes(no_rows, appends=True),
        show=lambda r, _: [f"scored {r.id}: {r.relevance_score:.2f} ({r.confidence_tier})"],
        summary="Set the score of a discovery.",
        examples=["icctl discovery score k3v9x0a1b2c4 --score=0.75"],
    ),
    Verb(
        "discovery promote",
        Promote,
        Promoted,
        promote,
        writes=Writes(no_rows, appends=True),
        usage=_check_actor,
        show=lambda r, _: [f"promoted {r.id} → {r.bead_id}"],
        summary="Promote a discovery to a bead.",
        examples=[
            "icctl discovery promote k3v9x0a1b2c4 --bead-id=ic-42",
            "icctl discovery promote k3v9x0a1b2c4 --bead-id=ic-42 --force --actor=me",
        ],
    ),
    Verb(
        "discovery dismiss",
        Dismiss,
        Dismissed,
        dismiss,
        writes=Writes(no_rows, appends=True),
        show=lambda r, _: [f"dismissed {r.id}"],
        summary="Dismiss a discovery.",
        examples=["icctl discovery dismiss k3v9x0a1b2c4"],
    ),
    Verb(
        "discovery feedback",
        Feedback,
        Recorded,
        feedback,
        check=_check_data,
        writes=Writes(no_rows, appends=True),
        show=lambda r, _: [f"feedback recorded: {r.id} {r.signal}"],
        summary="Record feedback on a discovery.",
        examples=[
            "icctl discovery feedback k3v9x0a1b2c4 --signal=boost --actor=me",
            "icctl discovery feedback k3v9x0a1b2c4 --signal=read --data='{\"seconds\":40}'",
            "icctl discovery feedback k3v9x0a1b2c4 --signal=boost --idempotency-key=c7",
        ],
    ),
]
