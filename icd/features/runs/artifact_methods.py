"""artifact.*: what a run has produced.

The digest of a file is the caller's to take: whoever serves others opens no file for them.
"""

from typing import Annotated

from msgspec import Meta

from icd.app.call import Context, Params
from icd.app.verb import Method, Writes, no_rows
from icd.features.runs import artifacts
from icd.features.runs.artifacts import Origin
from icd.values import validation as names
from icd.values.wire import Result, iso

# Python's `$` also stands before a line break; the length does not.
Digest = Annotated[str, Meta(pattern="^sha256:[0-9a-f]{64}$", max_length=71)]


class Add(Params):
    run_id: str
    phase: str
    path: str
    type: str = "file"
    content_hash: Digest | None = None
    dispatch_id: str | None = None


class List(Params):
    run_id: str
    phase: str | None = None


class Origins(Params):
    run_id: str
    phase: str | None = None


class Added(Result):
    id: str


class Artifact(Result):
    id: str
    run_id: str
    phase: str
    path: str
    type: str
    status: str
    created_at: int
    created_at_iso: str
    content_hash: str | None = None
    dispatch_id: str | None = None


def add(ctx: Context, p: Add) -> Added:
    found = artifacts.add(
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
    return [shown(artifact) for artifact in artifacts.of_run(ctx.conn, p.run_id, p.phase)]


def origins(ctx: Context, p: Origins) -> list[Origin]:
    return artifacts.origins(ctx.conn, p.run_id, p.phase)


def shown(artifact: artifacts.Artifact) -> Artifact:
    return Artifact(
        id=artifact.id,
        run_id=artifact.run_id,
        phase=artifact.phase,
        path=artifact.path,
        type=artifact.type,
        status=artifact.status,
        created_at=artifact.created_at,
        created_at_iso=iso(artifact.created_at),
        content_hash=artifact.content_hash,
        dispatch_id=artifact.dispatch_id,
    )


def check_add(p: Add) -> None:
    for word in (p.phase, p.path, p.type):
        names.check_name(word)
    names.check_scope(p.dispatch_id or "")


METHODS = [
    Method("artifact.add", Add, Added, add, check=check_add, writes=Writes(no_rows)),
    Method("artifact.list", List, list[Artifact], list_),
    Method("artifact.origins", Origins, list[Origin], origins),
]
