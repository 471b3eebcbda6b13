"""`icctl discovery submit`"""

import click
from msgspec import Raw

from icd.app import progress, render, spool
from icd.app.invocation import Ask, Caller, Local, Output, World
from icd.app.types import SCORE
from icd.errors import Usage
from icd.features.discoveries import submit_methods as methods
from icd.features.discoveries.search_commands import read as read_embedding

_OF_ONE = ("source_id", "title", "summary", "url", "score", "metadata", "embedding")


@click.command("submit", add_help_option=False, short_help="Store something that was found.")
@click.option("--source", metavar="S", help="Who found it.")
@click.option("--source-id", metavar="ID", help="What the source calls it.")
@click.option("--title", metavar="TEXT", help="One line about it.")
@click.option("--summary", metavar="TEXT", help="More about it.")
@click.option("--url", metavar="URL", help="Where it is.")
@click.option("--score", type=SCORE, metavar="F", help="Its relevance, from 0 to 1 (default 0).")
@click.option("--metadata", metavar="JSON", help="Anything else, or @FILE.")
@click.option("--embedding", metavar="@FILE", help="Its embedding: little-endian float32.")
@click.option(
    "--dedup-threshold",
    type=SCORE,
    default=0.0,
    metavar="F",
    help="Store nothing that resembles what this source found before, from this cosine on.",
)
@click.option("--from", "file", metavar="FILE", help="Submit each line of a file of JSON lines.")
def submit(
    world: World, *, source: str | None, dedup_threshold: float, file: str | None, **given: object
) -> Ask | Local:
    """Store a discovery and print its id.

    What the same source submitted under the same id already is a duplicate: exit 1, and nothing is
    changed.
    With --dedup-threshold, what resembles a discovery of the same source is not stored: the id of
    that one is printed, exit 0.

    --from=FILE submits a line at a time, - is stdin, all of them or none; each is answered by a
    line: the id, and new, deduped or duplicate.
    On a terminal, stderr shows how far it is.
    The whole must be done within --timeout, 5s: give some 10,000 lines more.

    \b
    Examples:
      icctl discovery submit --source=arxiv --source-id=2401.1 --title="A paper"
      icctl discovery submit --source=exa --source-id="$URL" --title="$TITLE" \\
        --embedding=@vector.f32 --dedup-threshold=0.92
      icctl discovery submit --from=found.jsonl --source=arxiv --timeout=1m
    """
    if file is not None:
        odd = [name for name in _OF_ONE if given[name] is not None]
        if odd:
            raise Usage(f"--{odd[0].replace('_', '-')} does not go with --from: each line says it")
        return _many(world, file, source, dedup_threshold)
    values = {"source": source, **given}
    for name in ("source", "source_id", "title"):
        if not values[name]:
            raise Usage(f"--{name.replace('_', '-')} is missing")
    return _one(world, values, dedup_threshold)


def _one(world: World, given: dict[str, object], dedup_threshold: float) -> Ask:
    texts = {name: value for name, value in given.items() if isinstance(value, str)}
    embedding, note = None, b""
    if "embedding" in texts:
        embedding, note = read_embedding(world, texts["embedding"], "discovery submit")
    score = given["score"]
    params = methods.Submit(
        source=texts["source"],
        source_id=texts["source_id"],
        title=texts["title"],
        summary=texts.get("summary", ""),
        url=texts.get("url", ""),
        score=score if isinstance(score, float) else 0.0,
        metadata=Raw(content(world, texts.get("metadata") or "{}")),
        embedding=embedding,
        dedup_threshold=dedup_threshold,
    )

    def show(result: methods.Submitted) -> Output:
        output = render.to_json(result) if world.json else render.text(result.id)
        output.stderr = note
        return output

    return Ask("discovery.submit", params, show)


def _many(world: World, file: str, source: str | None, dedup_threshold: float) -> Local:
    path = world.path(file)

    def run(ask: Caller) -> Output:
        if file == spool.PIPE:
            with spool.filled() as lines:
                done = submitted(ask, lines)
            done.file = spool.PIPE
        else:
            done = submitted(ask, path)
        if world.json:
            return render.to_json(done)
        return render.text(*(render.columns(each.id, each.verdict) for each in done.verdicts))

    def submitted(ask: Caller, path: str) -> methods.SubmittedFile:
        params = methods.SubmitFile(path, source, dedup_threshold)
        with progress.bar("submitting") as tell:
            done: methods.SubmittedFile = ask("discovery.submit_file", params, progress=tell)
        return done

    return Local(run)


def content(world: World, given: str) -> bytes:
    """What stands in a file of the caller, or the words themselves."""
    return world.read_file(given[1:]) if given.startswith("@") else given.encode()


COMMANDS = [submit]
