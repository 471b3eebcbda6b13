"""discovery profile: what a project is interested in.  There is one profile, or none yet.

Invariants
    - every update gives it the next version, and keeps what it does not mention;
    - an update that expects another version changes nothing: of two that have read the same
      profile, one wins, and the other is told so;
    - weights are objects of numbers (see `weights`), the topic is a vector (see `vectors`).
"""

import sqlite3
from typing import Annotated, Literal

from msgspec import Meta, Raw, Struct, field, structs

from icd.app.call import Context, Params
from icd.app.invocation import Ask, World
from icd.app.verb import Argument, Command, Method, Option, Writes, narrow, no_rows
from icd.db.rows import checked, columns, select
from icd.errors import InvalidParams, ProfileConflict, Usage
from icd.features.discoveries import store, vectors, weights
from icd.features.discoveries.store import Told
from icd.features.discoveries.submit import content
from icd.values.wire import Result, Version, iso

_NOTHING = Raw(b"null")

Weights = Annotated[Raw, Meta(description="Weights by name, an object; null keeps them.")]


class Profile(Struct, frozen=True):
    version: int
    topic_vector: bytes | None
    keyword_weights: str
    source_weights: str
    updated_at: int


# Before the first update, nothing is of interest.
NONE = Profile(0, None, "{}", "{}", 0)

_GET = select(Profile, "interest_profile", "WHERE id = 1")
_PUT = f"REPLACE INTO interest_profile (id, {columns(Profile)}) VALUES (1, ?, ?, ?, ?, ?)"  # noqa: S608


def get(conn: sqlite3.Connection) -> Profile:
    row = conn.execute(_GET).fetchone()
    return NONE if row is None else checked(Profile, row)


def put(conn: sqlite3.Connection, profile: Profile) -> None:
    """Replace it as a whole."""
    conn.execute(_PUT, structs.astuple(profile))


def update(
    conn: sqlite3.Connection,
    changes: dict[str, str | bytes],
    *,
    if_version: int | None = None,
    told: Told,
) -> Profile:
    """Change what is mentioned, and was checked; an empty topic vector forgets the topic.

    `if_version` 0: only if there is no profile yet.
    """
    there = get(conn)
    if if_version is not None and if_version != there.version:
        here = f"at version {there.version}" if there.version else "not there yet"
        wanted = f"version {if_version}" if if_version else "that there is none"
        raise ProfileConflict(f"the profile is {here}, expected {wanted}")
    version = there.version + 1
    new = structs.replace(there, **changes, version=version, updated_at=max(told.at, 0))
    put(conn, structs.replace(new, topic_vector=new.topic_vector or None))
    payload = {"changed": sorted(changes), "version": version}
    store.tell(conn, "profile.updated", "", payload, told)
    return get(conn)


# --- parameters and results -----------------------------------------------------------------------


class Show(Params):
    """Show the interest profile."""


class Update(Params):
    """Change the interest profile: what is not mentioned stays as it is."""

    # A default could not be described.
    keyword_weights: Weights = field(default_factory=lambda: _NOTHING)
    source_weights: Weights = field(default_factory=lambda: _NOTHING)
    topic_vector: Annotated[
        bytes | None,
        Meta(description="Little-endian float32, in base64; an empty one forgets the topic."),
    ] = None
    if_version: Annotated[
        Version | None, Option("--if-version", "Only over version N (0: over nothing).", "N")
    ] = None


class ProfileForm(Update):
    """Show the interest profile or, with `update`, change it.

    Weights are JSON objects of numbers; what an update does not mention stays as it is.
    Every update gives the profile another version, which --json shows.
    With --if-version the exit code is 1 when the profile is at another version.
    """

    word: Annotated[Literal["update"] | None, Argument("update", "To change it.")] = None
    keywords: Annotated[
        str | None, Option("--keyword-weights", "Weights by keyword, or @FILE.", "JSON")
    ] = None
    sources: Annotated[
        str | None, Option("--source-weights", "Weights by source, or @FILE.", "JSON")
    ] = None
    topic: Annotated[
        str | None, Option("--topic-vector", "Little-endian float32; empty: no topic.", "@FILE")
    ] = None


class Shown(Result):
    """Weights are strings that hold JSON, as in the original; version 0: there is none yet."""

    id: int
    version: int
    keyword_weights: str
    source_weights: str
    topic_dimension: int | None
    updated_at: int
    updated_at_iso: str | None


# --- what is done ---------------------------------------------------------------------------------


def show(ctx: Context, _p: Show) -> Shown:
    return _shown(get(ctx.conn))


def update_profile(ctx: Context, p: Update) -> Shown:
    given = {"keyword_weights": p.keyword_weights, "source_weights": p.source_weights}
    changes: dict[str, str | bytes] = {
        name: bytes(raw).decode() for name, raw in given.items() if bytes(raw) != b"null"
    }
    if p.topic_vector is not None:
        changes["topic_vector"] = p.topic_vector
    told = Told(ctx.writer, ctx.now_ms)
    return _shown(update(ctx.conn, changes, if_version=p.if_version, told=told))


def _shown(profile: Profile) -> Shown:
    topic = profile.topic_vector
    return Shown(
        id=1,
        version=profile.version,
        keyword_weights=profile.keyword_weights,
        source_weights=profile.source_weights,
        topic_dimension=None if topic is None else len(topic) // 4,
        updated_at=profile.updated_at,
        updated_at_iso=iso(profile.updated_at) if profile.version else None,
    )


def check_update(p: Update) -> None:
    """Judge everything outside the lock."""
    given = [p.keyword_weights, p.source_weights]
    if all(bytes(raw) == b"null" for raw in given) and p.topic_vector is None:
        raise InvalidParams("nothing to change: give weights or a topic vector")
    if bytes(p.keyword_weights) != b"null":
        p.keyword_weights = Raw(weights.check_keywords(bytes(p.keyword_weights)))
    if bytes(p.source_weights) != b"null":
        p.source_weights = Raw(weights.check(bytes(p.source_weights)))
    if p.topic_vector:
        vectors.parse(p.topic_vector)


# --- what is typed and shown ----------------------------------------------------------------------


def ask_profile(world: World, f: ProfileForm) -> Ask:
    given = (f.keywords, f.sources, f.topic)
    if f.word is None:
        if any(value is not None for value in (*given, f.if_version)):
            hint = "to change it, write: icctl discovery profile update"
            raise Usage("without 'update' the profile is only shown", hint=hint)
        return Ask("discovery.profile", Show())
    if all(value is None for value in given):
        raise Usage("give --keyword-weights, --source-weights or --topic-vector")
    params = narrow(
        f,
        Update,
        keyword_weights=_weights(world, f.keywords),
        source_weights=_weights(world, f.sources),
        topic_vector=_vector(world, f.topic),
    )
    return Ask("discovery.update_profile", params)


def _weights(world: World, given: str | None) -> Raw:
    if given is None:
        return _NOTHING
    found = content(world, given)
    if found.strip() == b"null":  # which would mean: keep them
        raise Usage("null is no object of weights", hint="write {} for none")
    return Raw(found)


def _vector(world: World, given: str | None) -> bytes | None:
    if not given:
        return None if given is None else b""
    if not given.startswith("@"):
        raise Usage("a vector is read from a file: write --topic-vector=@FILE")
    found = world.read_file(given[1:])
    if not found:
        raise Usage(f"{given[1:]} is empty", hint="write --topic-vector= to forget the topic")
    return found


def show_profile(found: Shown, f: ProfileForm) -> list[str]:
    if f.word is not None:
        return ["profile updated"]
    return [
        f"keyword_weights: {found.keyword_weights}",
        f"source_weights: {found.source_weights}",
        f"updated_at: {found.updated_at}",
    ]


VERBS = [
    Method("discovery.profile", Show, Shown, show),
    Method(
        "discovery.update_profile",
        Update,
        Shown,
        update_profile,
        check=check_update,
        writes=Writes(no_rows, appends=True),
    ),
    Command(
        "discovery profile",
        ProfileForm,
        ask_profile,
        show=show_profile,
        order=("if_version",),
        summary="Show or change what is of interest.",
        examples=[
            "icctl discovery profile",
            "icctl discovery profile update --keyword-weights='{\"sqlite\": 0.5}'",
            "icctl discovery profile update --source-weights=@sources.json --if-version=3",
            "icctl discovery profile update --topic-vector=@topic.f32",
        ],
    ),
]
