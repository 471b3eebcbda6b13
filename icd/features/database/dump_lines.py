"""What the lines of an export say: a row each, with every column, and how they are read.

Types are as narrow as what intercore itself stores, so that a file from elsewhere brings nothing
that no command could have written.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from icd.features.discoveries.vectors import MAX_DIMENSION

Int = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Count = Annotated[int, Meta(ge=0, le=2**62)]
Millionths = Annotated[int, Meta(ge=0, le=1_000_000)]
# What somebody has counted elsewhere: as large as they may say.
Amount = Annotated[int, Meta(ge=0, le=2**63 - 1)]
# The year 9999: the last one that RFC 3339 can show.
Seconds = Annotated[int, Meta(ge=0, le=253_402_300_799)]
Milliseconds = Annotated[int, Meta(ge=0, le=253_402_300_799_999)]
# Absolute: else it would mean another directory in every process that reads it.
Directory = Annotated[str, Meta(pattern=r"\A/[^\x00]*\Z")]


class Row(Struct, tag_field="kind", forbid_unknown_fields=True):
    """A row of the table that `kind` names; its fields are the columns."""


class Header(Row, tag="header", forbid_unknown_fields=False):
    """Always the first line; a later intercore may say more in it, and still be told apart."""

    format: Literal["intercore-export"]
    schema: int
    program: str


class Migration(Row, tag="migrations"):
    version: int
    program: str
    applied_at: Seconds


class Counter(Row, tag="counters"):
    name: Literal["state", "events_pruned", "leases", "discoveries", "discoveries_deleted"]
    value: Count


class State(Row, tag="state"):
    key: str
    scope_id: str
    payload: str
    version: Count
    updated_at: Seconds
    expires_at: Seconds | None
    expires_ms: Milliseconds | None
    writer_pid: Int | None
    writer_session: str | None


class Sentinel(Row, tag="sentinels"):
    name: str
    scope_id: str
    last_fired: Seconds
    fired_ms: Milliseconds
    interval_ms: Count
    once: Literal[0, 1]
    prune_ms: Count | None
    claim_ms: Count | None
    request_id: str | None


class Request(Row, tag="requests"):
    id: str
    method: str
    digest: Int
    effect: str
    at_ms: Milliseconds


class Event(Row, tag="events"):
    seq: Count
    source: str
    type: str
    run_id: str
    subject_id: str
    from_state: str
    to_state: str
    reason: str
    payload: str | None
    at: Seconds
    at_ms: Milliseconds
    actor_pid: Int | None
    actor_uid: Int | None
    actor_session: str | None
    trace_id: str | None
    span_id: str | None
    project_dir: str | None
    source_id: Count | None
    idempotency_key: str | None


class Cursor(Row, tag="cursors"):
    consumer: str
    run_id: str
    seq: Count
    updated_at: Seconds
    updated_ms: Milliseconds
    expires_ms: Milliseconds | None


class HookPosition(Row, tag="hook_positions"):
    hook: str
    seq: Count
    started: Count


class Run(Row, tag="runs"):
    id: str
    project_dir: Directory
    goal: str
    status: Literal["active", "completed", "cancelled", "failed", "abandoned"]
    phase: str
    complexity: Annotated[int, Meta(ge=1, le=5)]
    force_full: Literal[0, 1]
    auto_advance: Literal[0, 1]
    auto_spawn: Literal[0, 1]
    scope_id: str | None
    phases: str | None
    gates: str | None
    token_budget: Annotated[int, Meta(ge=1, le=2**63 - 1)] | None
    budget_warn_pct: Annotated[int, Meta(ge=1, le=99)]
    budget_told: Literal[0, 1, 2]
    metadata: str | None
    actions: str | None
    session: str | None
    owner_pid: Count | None
    owner_start: Count | None
    owner_boot: str | None
    owner_pidns: str | None
    created_at: Seconds
    created_ms: Milliseconds
    updated_at: Seconds
    updated_ms: Milliseconds
    completed_at: Seconds | None


class RunSkip(Row, tag="run_skips"):
    run_id: str
    phase: str
    reason: str
    created_at: Seconds


class RunAgent(Row, tag="run_agents"):
    id: str
    run_id: str
    agent_type: str
    name: str | None
    status: Literal["active", "completed", "failed"]
    dispatch_id: str | None
    created_at: Seconds
    updated_at: Seconds


class RunArtifact(Row, tag="run_artifacts"):
    id: str
    run_id: str
    phase: str
    path: str
    type: str
    content_hash: str | None
    dispatch_id: str | None
    status: Literal["active", "rolled_back"]
    created_at: Seconds


class Dispatch(Row, tag="dispatches"):
    id: str
    run_id: str | None
    scope_id: str | None
    parent_id: str | None
    agent_type: str
    status: Literal["spawned", "running", "completed", "failed", "timeout", "cancelled"]
    name: str | None
    model: str | None
    sandbox: str | None
    project_dir: Directory
    prompt_file: str | None
    prompt_hash: str | None
    output_file: str | None
    verdict_file: str | None
    timeout_ms: Count | None
    runner_pid: Count | None
    runner_start: Count | None
    pid: Count | None
    pid_start: Count | None
    boot: str | None
    pidns: str | None
    exit_code: Int | None
    verdict_status: str | None
    verdict_summary: str | None
    error_message: str | None
    turns: Amount
    commands: Amount
    messages: Amount
    input_tokens: Amount
    output_tokens: Amount
    cache_hits: Amount | None
    session: str | None
    created_at: Seconds
    created_ms: Milliseconds
    started_at: Seconds | None
    completed_at: Seconds | None
    version: Count


class Lease(Row, tag="leases"):
    name: str
    scope_id: str
    owner: str
    token: Count
    ttl_ms: Count
    acquired_at: Seconds
    renewed_at: Seconds
    expires_at: Seconds
    expires_ms: Milliseconds
    session: str | None
    pid: Count | None


class Discovery(Row, tag="discoveries"):
    id: str
    source: str
    source_id: str
    title: str
    summary: str
    url: str
    raw_metadata: str
    relevance: Millionths
    decay: Millionths
    status: Literal["new", "scored", "proposed", "promoted", "dismissed"]
    run_id: str | None
    bead_id: str | None
    discovered_at: Seconds
    discovered_ms: Milliseconds
    decayed_ms: Milliseconds | None
    promoted_at: Seconds | None
    reviewed_at: Seconds | None
    dismissed_ms: Milliseconds | None
    version: Count


class EmbeddingSource(Row, tag="embedding_sources"):
    source: str
    dimension: Annotated[int, Meta(ge=1, le=MAX_DIMENSION)]


class Embedding(Row, tag="embeddings"):
    """The vector is base64."""

    discovery_id: str
    source: str
    vector: bytes


class Feedback(Row, tag="feedback_signals"):
    id: Count
    discovery_id: str
    signal_type: str
    signal_data: str
    actor: str
    created_at: Seconds


class Profile(Row, tag="interest_profile"):
    id: Literal[1]
    version: Count
    topic_vector: bytes | None
    keyword_weights: str
    source_weights: str
    updated_at: Seconds


class End(Row, tag="end"):
    """Always the last line: what ends without it was cut off."""


Line = (
    Header | Migration | Counter | State | Sentinel | Request | Event | Cursor | HookPosition
    | Run | RunSkip | RunAgent | RunArtifact | Dispatch | Lease
    | Discovery | EmbeddingSource | Embedding | Feedback | Profile | End
)  # fmt: skip

_STATE = """
SELECT key, scope_id, payload, version, updated_at, expires_at, expires_ms,
       writer_pid, writer_session
FROM state ORDER BY version
"""
_SENTINELS = """
SELECT name, scope_id, last_fired, fired_ms, interval_ms, once, prune_ms, claim_ms, request_id
FROM sentinels ORDER BY name, scope_id
"""
_EVENTS = """
SELECT seq, source, type, run_id, subject_id, from_state, to_state, reason, payload, at, at_ms,
       actor_pid, actor_uid, actor_session, trace_id, span_id, project_dir, source_id,
       idempotency_key
FROM events ORDER BY seq
"""
_CURSORS = """
SELECT consumer, run_id, seq, updated_at, updated_ms, expires_ms
FROM cursors ORDER BY consumer, run_id
"""
# In the order of their creation, which decides between two of the same millisecond.
_RUNS = """
SELECT id, project_dir, goal, status, phase, complexity, force_full, auto_advance, auto_spawn,
       scope_id, phases, gates, token_budget, budget_warn_pct, budget_told, metadata, actions,
       session, owner_pid, owner_start, owner_boot, owner_pidns, created_at, created_ms,
       updated_at, updated_ms, completed_at
FROM runs ORDER BY rowid
"""
_SKIPS = "SELECT run_id, phase, reason, created_at FROM run_skips ORDER BY run_id, phase"
_AGENTS = """
SELECT id, run_id, agent_type, name, status, dispatch_id, created_at, updated_at
FROM run_agents ORDER BY rowid
"""
_ARTIFACTS = """
SELECT id, run_id, phase, path, type, content_hash, dispatch_id, status, created_at
FROM run_artifacts ORDER BY rowid
"""
_DISPATCHES = """
SELECT id, run_id, scope_id, parent_id, agent_type, status, name, model, sandbox, project_dir,
       prompt_file, prompt_hash, output_file, verdict_file, timeout_ms, runner_pid, runner_start,
       pid, pid_start, boot, pidns, exit_code, verdict_status, verdict_summary, error_message,
       turns, commands, messages, input_tokens, output_tokens, cache_hits, session, created_at,
       created_ms, started_at, completed_at, version
FROM dispatches ORDER BY rowid
"""
_LEASES = """
SELECT name, scope_id, owner, token, ttl_ms, acquired_at, renewed_at, expires_at, expires_ms,
       session, pid
FROM leases ORDER BY name, scope_id
"""
_DISCOVERIES = """
SELECT id, source, source_id, title, summary, url, raw_metadata, relevance, decay, status, run_id,
       bead_id, discovered_at, discovered_ms, decayed_ms, promoted_at, reviewed_at, dismissed_ms,
       version
FROM discoveries ORDER BY version, id
"""
_FEEDBACK = """
SELECT id, discovery_id, signal_type, signal_data, actor, created_at
FROM feedback_signals ORDER BY id
"""
_PROFILE = """
SELECT id, version, topic_vector, keyword_weights, source_weights, updated_at
FROM interest_profile
"""
# Counters before state: what is taken in must not get a version that was in use over there.
# Runs and discoveries before what belongs to them.
TABLES: list[tuple[type[Row], str]] = [
    (Migration, "SELECT version, program, applied_at FROM migrations ORDER BY version"),
    # Those of requests tell about the clocks of this machine, and mean nothing elsewhere.
    (Counter, "SELECT name, value FROM counters WHERE name NOT GLOB 'requests_*' ORDER BY name"),
    (State, _STATE),
    (Sentinel, _SENTINELS),
    (Request, "SELECT id, method, digest, effect, at_ms FROM requests ORDER BY id"),
    (Event, _EVENTS),
    (Cursor, _CURSORS),
    (HookPosition, "SELECT hook, seq, started FROM hook_positions ORDER BY hook"),
    (Run, _RUNS),
    (RunSkip, _SKIPS),
    (RunAgent, _AGENTS),
    (RunArtifact, _ARTIFACTS),
    (Dispatch, _DISPATCHES),
    (Lease, _LEASES),
    (Discovery, _DISCOVERIES),
    (EmbeddingSource, "SELECT source, dimension FROM embedding_sources ORDER BY source"),
    (Embedding, "SELECT discovery_id, source, vector FROM embeddings ORDER BY discovery_id"),
    (Feedback, _FEEDBACK),
    (Profile, _PROFILE),
]
