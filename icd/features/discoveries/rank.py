"""discovery profile, discovery rank: what a project is interested in, and which discoveries most.

    rank = effective score
         + the weight of each keyword that occurs in title or summary
         + the weight of the source
         + the cosine of its embedding and the topic, if they have the same dimension

Everything is summed as integers, in millionths, so the order depends on no rounding: by rank, then
by id.  Keywords are found word by word, whatever their case, and each counts once.
"""

import sqlite3
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta, Raw, Struct, field

from icd.app import render
from icd.app.call import Context, Params
from icd.app.invocation import Ask, World
from icd.app.verb import (
    Argument,
    Card,
    Column,
    Command,
    Method,
    Option,
    Table,
    Verb,
    Writes,
    narrow,
    no_rows,
)
from icd.db.rows import checked
from icd.errors import InvalidParams, Usage
from icd.features.discoveries import profile as profiles
from icd.features.discoveries import store
from icd.features.discoveries import vectors as embeddings
from icd.features.discoveries.profile import Profile
from icd.features.discoveries.search import unless_empty
from icd.features.discoveries.similarity import Query, cosines, require
from icd.features.discoveries.store import ONE, Status, Told
from icd.features.discoveries.submit import content
from icd.values import validation
from icd.values.wire import Result, Version, iso

MAX_LIMIT = 1000
DEFAULT_LIMIT = 20
# So many are compared, those with the highest scores: others wait while it is done.
CANDIDATES = 1000
# Of a summary: what comes later is hardly what it is about.
TEXT_CHARACTERS = 10_000


class Rank(Params):
    """Print the discoveries that best match the interest profile, best first, and why.

    Each line: id, source, title, status, rank, and the summands of the rank: the score, the weights
    of keywords in title or summary, the weight of the source, and the similarity to the topic;
    separated by tabs.
    Promoted and dismissed discoveries are left out, unless --status asks for them.
    """

    rpc = (
        "List the discoveries that best match the interest profile, best first, and why.\n"
        "A rank is the sum of the score, the weights of keywords and source, and the similarity"
        " to the topic."
    )
    limit: Annotated[
        int,
        Meta(ge=1, le=MAX_LIMIT),
        Option("--limit", f"Maximum number of results (default {DEFAULT_LIMIT}).", "N"),
    ] = DEFAULT_LIMIT
    source: Annotated[
        str | None,
        Option("--source", "Include only this source.", "S", resolve=unless_empty),
        validation.check_name,
    ] = None
    status: Annotated[Status | None, Option("--status", "Include only this status.")] = None


class Ranked(Result):
    """`rank_score` is the sum of what stands between it and `similarity`; what does not apply is 0,
    or null."""

    id: str
    source: str
    source_id: str
    title: str
    status: str
    discovered_at: int
    rank_score: float
    relevance_score: float
    keywords: dict[str, float]
    source_weight: float
    similarity: float | None
    summary: str = ""
    url: str = ""


class Ranking(NamedTuple):
    """`is_cut`: there were more than could be compared."""

    items: list[Ranked]
    is_cut: bool


class _Candidate(Struct):
    """The columns of one, and then what its rank is made of, in millionths."""

    id: str
    source: str
    title: str
    status: str
    score: int
    summary: str
    keywords: dict[str, int] = {}
    source_weight: int = 0
    similarity: int | None = None

    @property
    def rank(self) -> int:
        return (
            self.score + sum(self.keywords.values()) + self.source_weight + (self.similarity or 0)
        )


# A status that is NULL means those that are still open.  The scores are millionths of millionths
# until here.
_CANDIDATES = """
SELECT d.id, d.source, d.title, d.status, d.relevance * d.decay / 1000000,
       substr(d.summary, 1, ?1), e.vector
FROM discoveries d
LEFT JOIN embeddings e ON e.discovery_id = d.id AND length(e.vector) = ?2
WHERE (d.source = ?3 OR ?3 IS NULL)
  AND (d.status = ?4 OR ?4 IS NULL AND d.status NOT IN ('promoted', 'dismissed'))
ORDER BY d.relevance * d.decay DESC, d.id LIMIT ?5
"""


def rank(
    conn: sqlite3.Connection,
    profile: Profile,
    *,
    limit: int,
    source: str | None = None,
    status: Status | None = None,
) -> Ranking:
    """Callers run it in the transaction in which the profile was read."""
    keywords = _Keywords(profiles.parse_weights(profile.keyword_weights))
    sources = profiles.parse_weights(profile.source_weights)
    topic = profile.topic_vector
    size = None if topic is None else len(topic)
    asked = (TEXT_CHARACTERS, size, source, status, CANDIDATES + 1)
    rows = conn.execute(_CANDIDATES, asked).fetchall()
    vectors = {row[0]: row[-1] for row in rows[:CANDIDATES] if row[-1] is not None}
    similar = {} if topic is None else _similarities(topic, vectors)
    found = [checked(_Candidate, row[:-1]) for row in rows[:CANDIDATES]]
    for each in found:
        each.keywords = keywords.found_in(each.title, each.summary)
        each.source_weight = sources.get(each.source, 0)
        each.similarity = similar.get(each.id)
    found.sort(key=lambda each: (-each.rank, each.id))
    return Ranking([_ranked(conn, each) for each in found[:limit]], len(rows) > CANDIDATES)


def _ranked(conn: sqlite3.Connection, each: _Candidate) -> Ranked:
    found = store.require(conn, each.id)
    return Ranked(
        id=each.id,
        source=each.source,
        source_id=found.source_id,
        title=each.title,
        status=each.status,
        discovered_at=found.discovered_at,
        rank_score=store.fraction(each.rank),
        relevance_score=store.fraction(each.score),
        keywords={keyword: store.fraction(weight) for keyword, weight in each.keywords.items()},
        source_weight=store.fraction(each.source_weight),
        similarity=None if each.similarity is None else store.fraction(each.similarity),
        summary=found.summary,
        url=found.url,
    )


class _Keywords:
    """By their first words, so that a text costs its own words, however many keywords there are."""

    def __init__(self, given: dict[str, int]) -> None:
        self._weights = given
        self._beginning: dict[str, list[tuple[str, str]]] = {}
        for keyword in given:
            words = profiles.words(keyword)
            # One without a word is found nowhere: no command stores it.
            if words:
                phrase = f" {' '.join(words)} "
                self._beginning.setdefault(words[0], []).append((phrase, keyword))

    def found_in(self, *texts: str) -> dict[str, int]:
        """With their weights, in the order of their names."""
        parts = [profiles.words(text) for text in texts] if self._beginning else []
        words = [word for part in parts for word in part]
        whole = " | ".join(f" {' '.join(part)} " for part in parts)  # no phrase spans two texts
        found = [
            keyword
            for word in self._beginning.keys() & set(words)
            for phrase, keyword in self._beginning[word]
            if phrase in whole
        ]
        return {keyword: self._weights[keyword] for keyword in sorted(found)}


def _similarities(topic: bytes, vectors: dict[str, bytes]) -> dict[str, int]:
    """By the names of the vectors.  numpy is loaded only if there are any."""
    if not vectors:
        return {}
    require()
    found = cosines(Query(topic), list(vectors.values()))
    return {name: round(cosine * ONE) for name, cosine in zip(vectors, found, strict=True)}


def run(ctx: Context, p: Rank) -> list[Ranked]:
    profile = profiles.get(ctx.conn)
    found = rank(ctx.conn, profile, limit=p.limit, source=p.source, status=p.status)
    if found.is_cut:
        ctx.warnings.append(
            f"only the {CANDIDATES} with the highest scores were ranked; "
            "narrow the list with --source or --status"
        )
    return found.items


def _line(item: Ranked) -> str:
    parts = [f"{item.relevance_score:.2f} score"]
    parts += [f"{weight:+.2f} {keyword}" for keyword, weight in item.keywords.items()]
    if item.source_weight:
        parts.append(f"{item.source_weight:+.2f} {item.source}")
    if item.similarity is not None:
        parts.append(f"{item.similarity:+.2f} topic")
    names = item.id, item.source, render.one_line(item.title), item.status
    return render.columns(*names, f"{item.rank_score:.2f}", ", ".join(parts))


# --- the profile ----------------------------------------------------------------------------------

_NOTHING = Raw(b"null")

Weights = Annotated[
    Raw, Meta(description="Object of weights by name; null keeps the current ones.")
]


class Show(Params):
    """Show the interest profile."""


class Update(Params):
    """Change the interest profile; omitted fields keep their values."""

    # A default could not be described.
    keyword_weights: Weights = field(default_factory=lambda: _NOTHING)
    source_weights: Weights = field(default_factory=lambda: _NOTHING)
    topic_vector: Annotated[
        bytes | None,
        Meta(description="Little-endian float32 in base64; an empty value clears the topic."),
    ] = None
    if_version: Annotated[
        Version | None,
        Option("--if-version", "Update only if the profile is at this version (0: absent).", "N"),
    ] = None


class ProfileForm(Update):
    """Show the interest profile; with `update`, change it.

    Weights are JSON objects of numbers; omitted fields keep their values.
    Every update gives the profile a new version, which --json shows.
    With --if-version, exit 1 if the profile is at another version.
    """

    word: Annotated[Literal["update"] | None, Argument("update", "Change the profile.")] = None
    keywords: Annotated[
        str | None, Option("--keyword-weights", "Weights by keyword; @FILE reads a file.", "JSON")
    ] = None
    sources: Annotated[
        str | None, Option("--source-weights", "Weights by source; @FILE reads a file.", "JSON")
    ] = None
    topic: Annotated[
        str | None,
        Option(
            "--topic-vector", "Topic as little-endian float32; an empty value clears it.", "@FILE"
        ),
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
    return _shown(profiles.get(ctx.conn))


def update_profile(ctx: Context, p: Update) -> Shown:
    given = {"keyword_weights": p.keyword_weights, "source_weights": p.source_weights}
    changes: dict[str, str | bytes] = {
        name: bytes(raw).decode() for name, raw in given.items() if bytes(raw) != b"null"
    }
    if p.topic_vector is not None:
        changes["topic_vector"] = p.topic_vector
    told = Told(ctx.writer, ctx.now_ms)
    return _shown(profiles.update(ctx.conn, changes, if_version=p.if_version, told=told))


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
        raise InvalidParams("nothing to change: pass weights or a topic vector")
    if bytes(p.keyword_weights) != b"null":
        p.keyword_weights = Raw(profiles.check_keywords(bytes(p.keyword_weights)))
    if bytes(p.source_weights) != b"null":
        p.source_weights = Raw(profiles.check_weights(bytes(p.source_weights)))
    if p.topic_vector:
        embeddings.parse(p.topic_vector)


# --- what is typed and shown ----------------------------------------------------------------------


def ask_profile(world: World, f: ProfileForm) -> Ask:
    given = (f.keywords, f.sources, f.topic)
    if f.word is None:
        if any(value is not None for value in (*given, f.if_version)):
            hint = "to change it, run: icctl discovery profile update"
            raise Usage("options require 'update'", hint=hint)
        return Ask("discovery.profile", Show())
    if all(value is None for value in given):
        raise Usage("pass --keyword-weights, --source-weights or --topic-vector")
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
        raise Usage("weights must be a JSON object", hint="use {} for no weights")
    return Raw(found)


def _vector(world: World, given: str | None) -> bytes | None:
    if not given:
        return None if given is None else b""
    if not given.startswith("@"):
        raise Usage("a vector must be in a file: use --topic-vector=@FILE")
    found = world.read_file(given[1:])
    if not found:
        raise Usage(f"{given[1:]} is empty", hint="use --topic-vector= to clear the topic")
    return found


def show_profile(found: Shown, f: ProfileForm) -> list[str]:
    if f.word is not None:
        return ["profile updated"]
    return [
        f"keyword_weights: {found.keyword_weights}",
        f"source_weights: {found.source_weights}",
        f"updated_at: {found.updated_at}",
    ]


RANKED = Table(
    Column("DISCOVERY", "id", "id"),
    Column("RANK", "rank_score", "score"),
    Column("SCORE", lambda r: f"{r.relevance_score:.2f}"),
    Column("STATE", "status", "state"),
    Column("WORDS", lambda r: ", ".join(r.keywords) or None, spare=True),
    Column("SOURCE", "source", spare=True),
    Column("TITLE", "title"),
    empty="No discoveries. Submit one: icctl discovery submit --source=S --title=T",
)
PROFILE = Card(
    Column("Keywords", "keyword_weights"),
    Column("Sources", "source_weights"),
    Column("Topic", lambda p: p.topic_dimension and f"a vector of {p.topic_dimension} numbers"),
    Column("Version", "version"),
    Column("Updated", lambda p: p.updated_at if p.version else None, "age"),
)


def _profile(found: Shown, f: ProfileForm, screen: Any) -> list[str]:
    return show_profile(found, f) if f.word is not None else screen.show(PROFILE, found)


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
        human=_profile,
        order=("if_version",),
        summary="Show or change the interest profile.",
        examples=[
            "icctl discovery profile",
            "icctl discovery profile update --keyword-weights='{\"sqlite\": 0.5}'",
            "icctl discovery profile update --source-weights=@sources.json --if-version=3",
            "icctl discovery profile update --topic-vector=@topic.f32",
        ],
    ),
    Verb(
        "discovery rank",
        Rank,
        list[Ranked],
        run,
        show=lambda found, _: map(_line, found),
        human=RANKED,
        order=("source", "status", "limit"),
        summary="Rank discoveries by interest.",
        examples=[
            "icctl discovery rank --limit=5",
            "icctl discovery rank --source=arxiv --status=new --json",
        ],
    ),
]
