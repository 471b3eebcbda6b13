"""`icctl discovery profile`, `rank` and `prune`"""

import click
import msgspec
from msgspec import Raw

from icd.app import render
from icd.app.invocation import Ask, Output, World
from icd.app.types import DURATION, Whole
from icd.errors import Usage
from icd.features.discoveries import profile_methods as methods
from icd.features.discoveries.rank import MAX_LIMIT
from icd.features.discoveries.store import STATUSES
from icd.values.wire import INT64

VERSION = Whole(0, INT64 - 1)


@click.command("profile", add_help_option=False, short_help="Show or change what is of interest.")
@click.argument("word", required=False, metavar="[update]", type=click.Choice(["update"]))
@click.option("--keyword-weights", metavar="JSON", help="Weights by keyword, or @FILE.")
@click.option("--source-weights", metavar="JSON", help="Weights by source, or @FILE.")
@click.option("--topic-vector", metavar="@FILE", help="Little-endian float32; empty: no topic.")
@click.option(
    "--if-version", type=VERSION, metavar="N", help="Only over version N (0: over nothing)."
)
def profile(
    world: World,
    *,
    word: str | None,
    keyword_weights: str | None,
    source_weights: str | None,
    topic_vector: str | None,
    if_version: int | None,
) -> Ask:
    """Show the interest profile or, with `update`, change it.

    Weights are JSON objects of numbers; what an update does not mention stays as it is.
    Every update gives the profile another version, which --json shows.
    With --if-version the exit code is 1 when the profile is at another version.

    \b
    Examples:
      icctl discovery profile
      icctl discovery profile update --keyword-weights='{"sqlite": 0.5}'
      icctl discovery profile update --source-weights=@sources.json --if-version=3
      icctl discovery profile update --topic-vector=@topic.f32
    """
    given = (keyword_weights, source_weights, topic_vector)
    if word is None:
        if any(value is not None for value in (*given, if_version)):
            hint = "to change it, write: icctl discovery profile update"
            raise Usage("without 'update' the profile is only shown", hint=hint)
        return Ask("discovery.profile", methods.Show(), render.to_json if world.json else _lines)
    if all(value is None for value in given):
        raise Usage("give --keyword-weights, --source-weights or --topic-vector")
    params = methods.Update(
        keyword_weights=_weights(world, keyword_weights),
        source_weights=_weights(world, source_weights),
        topic_vector=_vector(world, topic_vector),
        if_version=if_version,
    )
    return Ask("discovery.update_profile", params, render.to_json if world.json else _updated)


@click.command("rank", add_help_option=False, short_help="Order discoveries by interest.")
@click.option("--source", metavar="S", help="Only of this source.")
@click.option("--status", type=click.Choice(STATUSES), help="Only with this status.")
@click.option(
    "--limit",
    type=Whole(1, MAX_LIMIT),
    default=methods.DEFAULT_LIMIT,
    metavar="N",
    help=f"At most so many; {methods.DEFAULT_LIMIT}.",
)
def rank(world: World, *, source: str | None, status: str | None, limit: int) -> Ask:
    """Print the discoveries that the interest profile speaks for, the best first, and why.

    Each line: id, source, title, status, rank, and what the rank is the sum of: the score, the
    weights of keywords in title or summary, the weight of the source, and the similarity to the
    topic; between tabs.
    Promoted and dismissed ones are left out, unless --status asks for them.

    \b
    Examples:
      icctl discovery rank --limit=5
      icctl discovery rank --source=arxiv --status=new --json
    """
    wanted = {"limit": limit, "source": source or None, "status": status}
    params = msgspec.convert(wanted, methods.Rank)

    def show(found: list[methods.Ranked]) -> Output:
        return render.text(*map(_line, found))

    return Ask("discovery.rank", params, render.to_json if world.json else show)


@click.command("prune", add_help_option=False, short_help="Forget dismissed discoveries.")
@click.option("--older-than", type=DURATION, required=True, metavar="D", help="Dismissed by then.")
def prune(world: World, *, older_than: int) -> Ask:
    """Delete what was dismissed at least this long ago, with its embeddings and feedback.

    A scanner that finds it again may submit it again: keep it as long as that is likely.
    The log of events keeps what happened.

    \b
    Example:
      icctl discovery prune --older-than=90d
    """

    def show(result: methods.Pruned) -> Output:
        return render.text(f"{result.pruned} pruned")

    ask = methods.Prune(older_than_ms=older_than)
    return Ask("discovery.prune", ask, render.to_json if world.json else show)


def _weights(world: World, given: str | None) -> Raw:
    if given is None:
        return methods.NOTHING
    content = world.read_file(given[1:]) if given.startswith("@") else given.encode()
    if content.strip() == b"null":  # which would mean: keep them
        raise Usage("null is no object of weights", hint="write {} for none")
    return Raw(content)


def _vector(world: World, given: str | None) -> bytes | None:
    if not given:
        return None if given is None else b""
    if not given.startswith("@"):
        raise Usage("a vector is read from a file: write --topic-vector=@FILE")
    content = world.read_file(given[1:])
    if not content:
        raise Usage(f"{given[1:]} is empty", hint="write --topic-vector= to forget the topic")
    return content


def _lines(found: methods.Profile) -> Output:
    return render.text(
        f"keyword_weights: {found.keyword_weights}",
        f"source_weights: {found.source_weights}",
        f"updated_at: {found.updated_at}",
    )


def _updated(_done: methods.Profile) -> Output:
    return render.text("profile updated")


def _line(item: methods.Ranked) -> str:
    parts = [f"{item.relevance_score:.2f} score"]
    parts += [f"{weight:+.2f} {keyword}" for keyword, weight in item.keywords.items()]
    if item.source_weight:
        parts.append(f"{item.source_weight:+.2f} {item.source}")
    if item.similarity is not None:
        parts.append(f"{item.similarity:+.2f} topic")
    names = item.id, item.source, render.one_line(item.title), item.status
    return render.columns(*names, f"{item.rank_score:.2f}", ", ".join(parts))


COMMANDS = [profile, rank, prune]
