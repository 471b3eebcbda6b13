"""discovery.submit, and many of them from a file."""

import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import msgspec
from msgspec import Meta, Raw, Struct, field

from icd.app import lines
from icd.app.call import Context, Params
from icd.app.verb import Method, Runs, Writes, no_rows
from icd.db.files import private as files
from icd.errors import (
    DuplicateDiscovery,
    IcError,
    InvalidName,
    InvalidVector,
    PayloadTooLarge,
    UnreadableInput,
)
from icd.features.discoveries import arrays, tiers, vectors
from icd.features.discoveries import submission as submissions
from icd.features.discoveries.store import Told
from icd.features.discoveries.submission import Outcome, Submission, Verdict
from icd.values import payloads
from icd.values import validation as names
from icd.values.wire import Result

_UNFIT = "see docs/discoveries.md for what a line holds; nothing was submitted"
_EMPTY = Raw(b"{}")
# Lines that are compared with all others at once; each is a few kilobytes, unless it is huge.
CHUNK_LINES = 256
CHUNK_BYTES = 16 * 1024 * 1024

Text = Annotated[str, Meta(max_length=payloads.STRING_BYTES)]


class Submit(Params):
    """`embedding` is little-endian float32, in base64."""

    source: str
    source_id: str
    title: Text
    summary: Text = ""
    url: Text = ""
    score: float = 0.0
    metadata: Raw = field(default_factory=lambda: _EMPTY)  # a default could not be described
    embedding: bytes | None = None
    dedup_threshold: float = 0.0


class SubmitFile(Params):
    file: str
    source: str | None = None
    dedup_threshold: float = 0.0


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


class Submitted(Result):
    """Of the discovery that is new, or that the submission resembles."""

    id: str
    verdict: Outcome


class SubmittedFile(Result):
    """`verdicts`: one for each line, in order."""

    file: str
    new: int
    deduped: int
    duplicate: int
    verdicts: list[Submitted]


_decoder = msgspec.json.Decoder(Line)


def check_submit(p: Submit) -> None:
    """Judge it outside the lock: a megabyte takes its time."""
    tiers.millionths(p.dedup_threshold)
    p.metadata = Raw(payloads.check(bytes(p.metadata)))
    _check(_submission(p, p.embedding, p.source))


def submit(ctx: Context, p: Submit) -> Submitted:
    if p.dedup_threshold and p.embedding is None:
        ctx.warnings.append("without an embedding it was compared with nothing")
    found = submissions.submit(
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
    return Submitted(found.id, found.verdict)


def check_file(p: SubmitFile) -> None:
    files.check_absolute(p.file)
    tiers.millionths(p.dedup_threshold)
    if p.source is not None:
        names.check_name(p.source)


def submit_file(ctx: Context, p: SubmitFile) -> SubmittedFile:
    """All of it, or nothing."""
    among = vectors.Batch(ctx.conn)
    verdicts: list[Verdict] = []
    for chunk in _chunks(ctx, p):
        if p.dedup_threshold:
            _look_ahead(among, chunk, p.dedup_threshold)
        verdicts += [_submit_line(ctx, p, number, line, among) for number, line in chunk]
    count = Counter(found.verdict for found in verdicts)
    shown = [Submitted(found.id, found.verdict) for found in verdicts]
    return SubmittedFile(p.file, count["new"], count["deduped"], count["duplicate"], shown)


def _chunks(ctx: Context, p: SubmitFile) -> Iterator[list[tuple[int, Submission]]]:
    chunk: list[tuple[int, Submission]] = []
    size = 0
    for number, text in lines.read(ctx, p.file, hint=_UNFIT):
        with _naming(p.file, number):
            chunk.append((number, _read(text, p)))
        size += len(text)
        if len(chunk) >= CHUNK_LINES or size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    yield chunk


def _look_ahead(
    among: vectors.Batch, chunk: list[tuple[int, Submission]], threshold: float
) -> None:
    for source in {line.source for _, line in chunk}:
        given = [line.embedding for _, line in chunk if line.source == source and line.embedding]
        among.expect(source, given, threshold=threshold)


def _submit_line(
    ctx: Context, p: SubmitFile, number: int, line: Submission, among: vectors.Batch
) -> Verdict:
    with _naming(p.file, number):
        return submissions.submit(
            ctx.conn,
            line,
            threshold=p.dedup_threshold,
            among=among,
            settings=ctx.settings,
            told=Told(ctx.writer, ctx.now_ms),
        )


@contextmanager
def _naming(file: str, number: int) -> Iterator[None]:
    """Whatever is wrong with a line is wrong with the file."""
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
        raise UnreadableInput("it names no source, nor does --source")
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
        raise InvalidVector("the embedding holds a number beyond float32") from exc


def _submission(given: Submit | Line, embedding: bytes | None, source: str) -> Submission:
    return Submission(
        source=source,
        source_id=given.source_id,
        title=given.title,
        summary=given.summary,
        url=given.url,
        metadata=bytes(given.metadata).decode(),
        relevance=tiers.millionths(given.score),
        embedding=embedding,
    )


def _check(given: Submission) -> None:
    names.check_name(given.source)
    names.check_name(given.source_id)
    if not given.title.strip():
        raise InvalidName("the title is empty", hint="is the variable that holds it unset?")
    for text in (given.title, given.summary, given.url):  # a command line is no JSON to be judged
        if len(text) > payloads.STRING_BYTES:
            raise PayloadTooLarge(
                f"a text of {len(text)} characters is too long (max {payloads.STRING_BYTES})"
            )
    if given.embedding is not None:
        vectors.parse(given.embedding)


def warm_up(p: Submit | SubmitFile) -> None:
    if p.dedup_threshold:
        arrays.load()


METHODS = [
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
        check=check_file,
        writes=Writes(no_rows, appends=True, keeps_effects=False),
        runs=Runs(local=True),
        warm_up=warm_up,
    ),
]
