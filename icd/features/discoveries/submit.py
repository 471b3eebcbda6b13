"""discovery submit: one thing that was found, or many from a file."""

import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Annotated

import msgspec
from msgspec import Meta, Raw, Struct, field

from icd.app import line_files, render
from icd.app.call import Context, Params
from icd.app.invocation import Ask, Caller, Local, Output, World
from icd.app.types import SCORE
from icd.app.verb import Command, Method, Option, Runs, Writes, no_rows
from icd.db import permissions
from icd.errors import (
    DuplicateDiscovery,
    IcError,
    InvalidName,
    InvalidVector,
    PayloadTooLarge,
    UnreadableInput,
    Usage,
)
from icd.features.discoveries import lifecycle, similarity, store, vectors
from icd.features.discoveries.lifecycle import Submission, Submitted
from icd.features.discoveries.search import PATH_CHARACTERS
from icd.features.discoveries.search import read as read_embedding
from icd.features.discoveries.store import Told
from icd.values import payloads, validation
from icd.values.wire import Result

PIPE = "-"
_UNFIT = "correct the line; nothing was submitted"
_EMPTY = Raw(b"{}")
# Lines that are compared with all others at once; each is a few kilobytes, unless it is huge.
CHUNK_LINES = 256
CHUNK_BYTES = 16 * 1024 * 1024

Text = Annotated[str, Meta(max_length=payloads.STRING_BYTES)]
Source = Annotated[str, Option("--source", "Name of the scanner that found it.", "S")]
SourceId = Annotated[str, Option("--source-id", "Id of the discovery at its source.", "ID")]
Title = Annotated[Text, Option("--title", "Title, one line.", "TEXT")]
Summary = Annotated[Text, Option("--summary", "Summary.", "TEXT")]
Url = Annotated[Text, Option("--url", "URL of the finding.", "URL")]
Score = Annotated[float, SCORE, Option("--score", "Relevance, from 0 to 1 (default 0).", "F")]
Threshold = Annotated[
    float,
    SCORE,
    store.millionths,
    Option(
        "--dedup-threshold",
        "Skip a discovery whose cosine similarity to another of this source is at least F.",
        "F",
    ),
]


# --- parameters and results -----------------------------------------------------------------------


class Submit(Params):
    """Store a discovery, unless its source has already submitted it or a similar one."""

    source: Source
    source_id: SourceId
    title: Title
    summary: Summary = ""
    url: Url = ""
    score: Score = 0.0
    metadata: Annotated[Raw, Meta(description="Metadata, as JSON.")] = field(
        default_factory=lambda: _EMPTY  # a default could not be described
    )
    embedding: Annotated[bytes | None, Meta(description="Little-endian float32 in base64.")] = None
    dedup_threshold: Threshold = 0.0


class SubmitFile(Params):
    """Submit each line of a file of JSON lines, all or none."""

    file: Annotated[str, Meta(description="Absolute path of the file."), permissions.check_absolute]
    source: Annotated[Source, validation.check_name] | None = None
    dedup_threshold: Threshold = 0.0


class SubmitForm(Params):
    """Store a discovery and print its id.

    A second submission with the same source and source id is a duplicate: exit 1, and nothing
    changes.
    With --dedup-threshold, a discovery similar to another one of the same source is not stored: the
    id of that one is printed, exit 0.

    --from=FILE submits one discovery per line, all or none, and prints for each the id and new,
    deduped or duplicate.
    On a terminal, stderr shows how far it is.
    The whole file must be done within --timeout (5s): allow more for 10,000 lines or above.
    """

    source: Source | None = None
    source_id: SourceId | None = None
    title: Title | None = None
    summary: Summary | None = None
    url: Url | None = None
    score: Score | None = None
    metadata: Annotated[
        str | None, Option("--metadata", "Metadata, as JSON; @FILE or a path reads a file.", "JSON")
    ] = None
    embedding: Annotated[
        str | None, Option("--embedding", "Embedding: little-endian float32.", "@FILE")
    ] = None
    dedup_threshold: Threshold = 0.0
    file: Annotated[
        str | None,
        Option("--from", "Submit every line of a file of JSON lines; - is stdin.", "FILE"),
    ] = None


class Line(Struct, forbid_unknown_fields=True):
    """What a line of a file may say; `embedding` is base64 or an array of numbers."""

    source_id: str
    title: Text
    source: str | None = None
    summary: Text = ""
    url: Text = ""
    score: float = 0.0
    metadata: Raw = _EMPTY
    embedding: bytes | list[float] | None = None


class SubmittedFile(Result):
    """`verdicts`: one for each line, in order."""

    file: str
    new: int
    deduped: int
    duplicate: int
    verdicts: list[Submitted]


_decoder = msgspec.json.Decoder(Line)


# --- what is done ---------------------------------------------------------------------------------


def submit(ctx: Context, p: Submit) -> Submitted:
    if p.dedup_threshold and p.embedding is None:
        ctx.warnings.append("not checked for similar discoveries, because there is no embedding")
    found = lifecycle.submit(
        ctx.conn,
        _submission(p, p.embedding, p.source),
        threshold=p.dedup_threshold,
        settings=ctx.settings,
        told=Told(ctx.writer, ctx.now_ms),
    )
    if found.verdict == "duplicate":
        raise DuplicateDiscovery(
            "duplicate discovery: source/source_id already exists: "
            f"source={p.source} source_id={p.source_id}",
            hint=f"nothing was changed; see 'icctl discovery status {found.id}'",
        )
    return found


def check_submit(p: Submit) -> None:
    """Judge it outside the lock: a megabyte takes its time."""
    p.metadata = Raw(payloads.check(bytes(p.metadata)))
    _check(_submission(p, p.embedding, p.source))


def warm_up(p: Submit | SubmitFile) -> None:
    if p.dedup_threshold:
        similarity.warm_up()


def submit_file(ctx: Context, p: SubmitFile) -> SubmittedFile:
    """All of it, or nothing."""
    among = vectors.Batch(ctx.conn)
    verdicts: list[Submitted] = []
    for chunk in _chunks(ctx, p):
        if p.dedup_threshold:
            _look_ahead(among, [line for _, line in chunk], p.dedup_threshold)
        for number, line in chunk:
            with _naming(p.file, number):
                found = lifecycle.submit(
                    ctx.conn,
                    line,
                    threshold=p.dedup_threshold,
                    among=among,
                    settings=ctx.settings,
                    told=Told(ctx.writer, ctx.now_ms),
                )
            verdicts.append(found)
    count = Counter(found.verdict for found in verdicts)
    return SubmittedFile(p.file, count["new"], count["deduped"], count["duplicate"], verdicts)


def _chunks(ctx: Context, p: SubmitFile) -> Iterator[list[tuple[int, Submission]]]:
    chunk: list[tuple[int, Submission]] = []
    size = 0
    for number, text in line_files.read(ctx, p.file, hint=_UNFIT):
        with _naming(p.file, number):
            chunk.append((number, _read(text, p)))
        size += len(text)
        if len(chunk) >= CHUNK_LINES or size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    yield chunk


def _look_ahead(among: vectors.Batch, chunk: list[Submission], threshold: float) -> None:
    for source in {line.source for line in chunk}:
        given = [line.embedding for line in chunk if line.source == source and line.embedding]
        among.expect(source, given, threshold=threshold)


@contextmanager
def _naming(file: str, number: int) -> Iterator[None]:
    """What is wrong with a line is wrong with the file."""
    try:
        yield
    except IcError as exc:
        raise UnreadableInput(f"{file}:{number}: {exc.message}", hint=_UNFIT) from exc


def _read(text: bytes, p: SubmitFile) -> Submission:
    try:
        line = _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise UnreadableInput(str(exc)) from exc
    source = line.source if line.source is not None else p.source
    if source is None:
        raise UnreadableInput("no source given, in the line or with --source")
    line.metadata = Raw(payloads.check(bytes(line.metadata)))
    found = _submission(line, _packed(line.embedding), source)
    _check(found)
    return found


def _packed(given: bytes | list[float] | None) -> bytes | None:
    if not isinstance(given, list):
        return given
    try:
        return struct.pack(f"<{len(given)}f", *given)
    except OverflowError as exc:
        raise InvalidVector("the embedding has a number outside the range of float32") from exc


def _submission(given: Submit | Line, embedding: bytes | None, source: str) -> Submission:
    return Submission(
        source=source,
        source_id=given.source_id,
        title=given.title,
        summary=given.summary,
        url=given.url,
        metadata=bytes(given.metadata).decode(),
        relevance=store.millionths(given.score),
        embedding=embedding,
    )


def _check(given: Submission) -> None:
    validation.check_name(given.source)
    validation.check_name(given.source_id)
    if not given.title.strip():
        raise InvalidName("the title is empty", hint="is the variable that holds it unset?")
    for text in (given.title, given.summary, given.url):  # a command line is no JSON to be judged
        if len(text) > payloads.STRING_BYTES:
            raise PayloadTooLarge(
                f"a text of {len(text)} characters is too long (max {payloads.STRING_BYTES})"
            )
    if given.embedding is not None:
        vectors.parse(given.embedding)


# --- what is typed and shown ----------------------------------------------------------------------


def ask_submit(world: World, f: SubmitForm) -> Ask | Local:
    typed = {name: getattr(f, name) for name in _OF_ONE}
    given = {name: value for name, value in typed.items() if value is not None}
    if f.file is not None:
        for name in given:
            raise Usage(
                f"--{name.replace('_', '-')} cannot be combined with --from: each line has it"
            )
        return _ask_many(world, f.file, f.source, f.dedup_threshold)
    for name in ("source", "source_id", "title"):
        if not getattr(f, name):
            raise Usage(f"--{name.replace('_', '-')} is missing")
    note = b""
    if f.embedding is not None:
        given["embedding"], note = read_embedding(world, f.embedding, "discovery submit")
    given["metadata"] = Raw(_metadata(world, f.metadata or "{}"))

    def show(result: Submitted) -> Output:
        output = render.to_json(result) if world.json else render.text(result.id)
        output.stderr = note
        return output

    params = Submit(source=f.source or "", dedup_threshold=f.dedup_threshold, **given)
    return Ask("discovery.submit", params, show)


_OF_ONE = ("source_id", "title", "summary", "url", "score", "metadata", "embedding")


def _ask_many(world: World, file: str, source: str | None, dedup_threshold: float) -> Local:
    path = world.path(file)

    def run(ask: Caller) -> Output:
        filled = line_files.filled() if file == PIPE else nullcontext(path)
        with filled as lines:
            params = SubmitFile(lines, source, dedup_threshold)
            done: SubmittedFile = ask("discovery.submit_file", params)
        if file == PIPE:
            done.file = PIPE
        if world.json:
            return render.to_json(done)
        return render.text(*(render.columns(each.id, each.verdict) for each in done.verdicts))

    return Local(run)


def _metadata(world: World, given: str) -> bytes:
    """JSON, or a file, whose @ newer scripts leave out."""
    literal = given.encode()
    if given.startswith("@") or len(given) > PATH_CHARACTERS or payloads.is_json(given):
        return content(world, given)
    try:
        return world.read_file(given)
    except UnreadableInput:
        if given.startswith(("/", "./", "../")):
            raise
        return literal


def content(world: World, given: str) -> bytes:
    """What stands in a file of the caller, or the words themselves."""
    return world.read_file(given[1:]) if given.startswith("@") else given.encode()


VERBS = [
    Method(
        "discovery.submit",
        Submit,
        Submitted,
        submit,
        check=check_submit,
        writes=Writes(no_rows, appends=True),
        warm_up=warm_up,
    ),
    # A second attempt finds what the first has stored, so there is no effect to keep.
    Method(
        "discovery.submit_file",
        SubmitFile,
        SubmittedFile,
        submit_file,
        writes=Writes(no_rows, appends=True, keeps_effects=False),
        runs=Runs(local=True, long="submitting"),
        warm_up=warm_up,
    ),
    Command(
        "discovery submit",
        SubmitForm,
        ask_submit,
        summary="Store a discovery.",
        examples=[
            'icctl discovery submit --source=arxiv --source-id=2401.1 --title="A paper"',
            """icctl discovery submit --source=exa --source-id="$URL" --title="$TITLE" \\
    --embedding=@vector.f32 --dedup-threshold=0.92""",
            "icctl discovery submit --from=found.jsonl --source=arxiv --timeout=1m",
        ],
    ),
]
