"""`icctl discovery search`"""

import click
import msgspec

from icd.app import render
from icd.app.invocation import Ask, Output, World
from icd.app.types import Whole
from icd.errors import InvalidScore, UnreadableInput, Usage
from icd.features.discoveries import search_methods as methods
from icd.features.discoveries.search_store import MAX_LIMIT
from icd.features.discoveries.store import STATUSES
from icd.features.discoveries.tiers import TIERS

# Longer than any path: no need to ask whether there is such a file.
PATH_CHARACTERS = 4096


@click.command("search", add_help_option=False, short_help="Find discoveries by meaning.")
@click.option("--embedding", metavar="@FILE", help="What to compare with: little-endian float32.")
@click.option("--like", metavar="ID", help="Compare with this discovery, which is left out.")
@click.option("--source", metavar="S", help="Only of this source.")
@click.option("--tier", type=click.Choice(TIERS), help="Only of this tier.")
@click.option("--status", type=click.Choice(STATUSES), help="Only with this status.")
@click.option("--include-dismissed", is_flag=True, help="Also those that were dismissed.")
@click.option("--min-score", type=float, metavar="F", help="Only with at least this similarity.")
@click.option(
    "--limit", type=Whole(1, MAX_LIMIT), default=10, metavar="N", help="At most so many; 10."
)
def search(
    world: World,
    *,
    embedding: str | None,
    like: str | None,
    source: str | None,
    tier: str | None,
    status: str | None,
    include_dismissed: bool,
    min_score: float | None,
    limit: int,
) -> Ask:
    """Print the discoveries that resemble an embedding most, by the cosine, the best first.

    Each line: id, source, title, score, similarity and tier, between tabs.
    Whatever passes the filters competes; dismissed ones only with --status=dismissed or
    --include-dismissed.  Sources of another dimension are left out, with a warning.
    If it is not done within --timeout (10s), it fails: there are no partial results.

    \b
    Examples:
      icctl discovery search --embedding=@query.f32 --limit=5
      icctl discovery search --like="$ID" --source=arxiv --min-score=0.8
      icctl discovery search --embedding=@query.f32 --tier=high --json
    """
    if (embedding is None) == (like is None):
        raise Usage("say what to compare with: either --embedding=@FILE or --like=ID")
    if min_score is not None and not -1 <= min_score <= 1:
        raise InvalidScore(f"--min-score {min_score:g} is not a similarity", hint=_SIMILARITY)
    vector, note = (None, b"") if embedding is None else read(world, embedding, "discovery search")
    params = msgspec.convert(
        {
            "embedding": vector,
            "like": like,
            "source": source or None,  # as from an unset variable
            "tier": tier,
            "status": status,
            "include_dismissed": include_dismissed,
            "min_score": min_score,
            "limit": limit,
        },
        methods.Search,
    )

    def show(found: list[methods.Match]) -> Output:
        output = render.in_order(found) if world.json else render.text(*map(_line, found))
        output.stderr = note
        return output

    return Ask("discovery.search", params, show)


_SIMILARITY = "a similarity is a number from -1 to 1"


def read(world: World, given: str, context: str) -> tuple[bytes, bytes]:
    """An embedding as a caller gives it, and what is to be said about that."""
    if given.startswith("@"):
        return world.read_file(given[1:]), b""
    literal = given.encode()
    if not given or len(given) > PATH_CHARACTERS:
        return literal, b""
    try:
        content = world.read_file(given)
    except UnreadableInput:
        return literal, b""
    told = f"{given} is read as a file; write --embedding=@{given}"
    note = f"{world.program}: {context}: warning: {told}\n"
    return content, note.encode("utf-8", "backslashreplace")


def _line(found: methods.Match) -> str:
    return render.columns(
        found.id,
        found.source,
        render.one_line(found.title),
        f"{found.relevance_score:.2f}",
        f"{found.similarity:.4f}",
        found.confidence_tier,
    )


COMMANDS = [search]
