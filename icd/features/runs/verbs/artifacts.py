"""run artifact: what a run has produced; and the files that `run rollback --layer=code` lists.

The digest of a file is the caller's to take: the daemon opens no file for a caller.
"""

import hashlib
import os
import stat
from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta, structs

from icd.app import render
from icd.app.call import Context, Params
from icd.app.invocation import INPUT_BYTES, Ask, Caller, Local, Output, World
from icd.app.verb import Column, Command, Method, Option, Table, Verb, Writes, no_rows
from icd.errors import UnreadableInput, Usage
from icd.features.runs import store as runs
from icd.features.runs.store import Artifact, Origin
from icd.features.runs.verbs import RunId
from icd.values import validation
from icd.values.wire import Result

DIGEST_CHARACTERS = 12  # of a hash in a column: enough to tell two contents apart

# Python's `$` also stands before a line break; the length does not.
Digest = Annotated[str, Meta(pattern="^sha256:[0-9a-f]{64}$", max_length=71)]


class Add(Params):
    """Add an artifact to a run and print the artifact's id; exit 1 if the run is unknown.

    If FILE is readable, the SHA-256 of its content is stored as well.
    FILE need not exist.
    """

    rpc = "Add an artifact to a run.\nIts file need not exist."
    run_id: RunId
    phase: Annotated[
        str, Option("--phase", "Phase that the artifact belongs to.", "P"), validation.check_name
    ]
    path: Annotated[
        str, Option("--path", "Path of the file, stored as given.", "FILE"), validation.check_name
    ]
    type: Annotated[
        str, Option("--type", "Type of the artifact (default file).", "T"), validation.check_name
    ] = "file"
    content_hash: Annotated[
        Digest | None, Meta(description="SHA-256 of the content, as sha256: and hex digits.")
    ] = None
    dispatch_id: Annotated[
        str | None,
        Option("--dispatch", "Id of the dispatch that produced it.", "ID"),
        validation.check_scope,
    ] = None


class List(Params):
    """Print id, phase, type and path of the artifacts of a run, oldest first."""

    rpc = "List the artifacts of a run, oldest first."
    run_id: RunId
    phase: Annotated[
        str | None, Option("--phase", "Include only artifacts of this phase.", "P")
    ] = None


class Origins(Params):
    """List the artifacts of a run with the dispatch that produced each, by phase and age."""

    run_id: Annotated[str, Meta(description="Id of the run.")]
    phase: Annotated[str | None, Meta(description="Include only artifacts of this phase.")] = None


class Added(Result):
    id: str


def add(ctx: Context, p: Add) -> Added:
    found = runs.add_artifact(
        ctx.conn,
        p.run_id,
        phase=p.phase,
        path=p.path,
        type=p.type,
        content_hash=p.content_hash,
        dispatch_id=p.dispatch_id or None,
        now_ms=ctx.now_ms,
    )
    return Added(found)


def list_(ctx: Context, p: List) -> list[Artifact]:
    return runs.artifacts_of(ctx.conn, p.run_id, p.phase)


def origins(ctx: Context, p: Origins) -> list[Origin]:
    return runs.origins(ctx.conn, p.run_id, p.phase)


# --- what is shown --------------------------------------------------------------------------------


def ask_add(world: World, f: Add) -> Ask | Local:
    if not (f.phase and f.path):
        raise Usage("--phase and --path must not be empty")
    try:
        content = world.read_file(f.path)
    except UnreadableInput:
        return Ask("artifact.add", f)
    if len(content) <= INPUT_BYTES:
        digest = _prefixed(hashlib.sha256(content).hexdigest())
        return Ask("artifact.add", structs.replace(f, content_hash=digest))

    def run_here(ask: Caller) -> Output:  # too large to be sent
        made = structs.replace(f, content_hash=_digest(world.path(f.path)))
        added: Added = ask("artifact.add", made)
        return render.to_json(added) if world.json else render.text(added.id)

    return Local(run_here)


def show_list(found: list[Artifact], _p: List) -> Iterator[str]:
    return (render.columns(a.id, a.phase, a.type, a.path) for a in found)


def ask_origins(run_id: str, phase: str | None, form: str) -> Ask:
    """`run rollback --layer=code`: the files to look at, and which dispatch made each."""
    show = _origins_text if form == "text" else _origins_json
    return Ask("artifact.origins", Origins(run_id, phase), show)


def _origins_json(found: list[Origin]) -> Output:
    compact = render.lines([found]).stdout
    return Output(0, msgspec.json.format(compact, indent=2).rstrip() + b"\n")


def _origins_text(found: list[Origin]) -> Output:
    return render.text(*map(_row, found))


def _row(made: Origin) -> str:
    name = made.dispatch_name or "<unknown>"
    digest = f"{made.content_hash[:DIGEST_CHARACTERS]}..." if made.content_hash else "<none>"
    return f"{made.phase:<20} {made.status:<12} {name:<20} {made.path:<40} {digest}"


def _digest(path: str) -> str | None:
    """Of a large file, in the caller's own process; what cannot be read has none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None  # it might never end, or not be there again
            return _prefixed(hashlib.file_digest(file, "sha256").hexdigest())
    except OSError:
        return None


def _prefixed(digest: str) -> str:
    return f"sha256:{digest}"


VERBS = [
    Method("artifact.add", Add, Added, add, writes=Writes(no_rows)),
    Command(
        "run artifact add",
        Add,
        ask_add,
        show=lambda r, _: [r.id],
        summary="Add an artifact to a run.",
        examples=[
            'icctl run artifact add "$RUN" --phase=planned --path=docs/plan.md',
            'icctl run artifact add "$RUN" --phase=review --path=notes.md --type=review',
        ],
    ),
    Verb(
        "run artifact list",
        List,
        list[Artifact],
        list_,
        method="artifact.list",
        show=show_list,
        human=Table(
            Column("ARTIFACT", "id", "id"),
            Column("PHASE", "phase"),
            Column("TYPE", "type", spare=True),
            Column("STATE", "status", "state"),
            Column("ADDED", "created_at", "age"),
            Column("PATH", "path", "path"),
            empty="No artifacts yet. Add one: icctl run artifact add RUN --phase=P --path=FILE",
            filtered=True,
        ),
        summary="List the artifacts of a run.",
        examples=[
            'icctl run artifact list "$RUN"',
            'icctl run artifact list "$RUN" --phase=planned --json',
        ],
    ),
    Method("artifact.origins", Origins, list[Origin], origins),
]
