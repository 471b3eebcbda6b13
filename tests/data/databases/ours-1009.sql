PRAGMA application_id = 1768113218;
PRAGMA user_version = 1009;
CREATE TABLE migrations (
    version    INTEGER PRIMARY KEY,
    program    TEXT    NOT NULL,
    applied_at INTEGER NOT NULL
) STRICT;
INSERT INTO "migrations" VALUES (1001, '0.4.0', 1600000000);
INSERT INTO "migrations" VALUES (1002, '0.4.0', 1600000000);
INSERT INTO "migrations" VALUES (1003, '0.4.0', 1600000000);
INSERT INTO "migrations" VALUES (1004, '0.4.0', 1600000000);
INSERT INTO "migrations" VALUES (1005, '0.4.0', 1600000000);
INSERT INTO "migrations" VALUES (1006, '0.4.0', 1600000000);
INSERT INTO "migrations" VALUES (1007, '0.4.0', 1600000000);
INSERT INTO "migrations" VALUES (1008, '0.4.0', 1600000000);
INSERT INTO "migrations" VALUES (1009, '0.4.0', 1600000000);
CREATE TABLE counters (
    name  TEXT    PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO "counters" VALUES ('discoveries', 2);
INSERT INTO "counters" VALUES ('discoveries_deleted', 0);
INSERT INTO "counters" VALUES ('events_pruned', 4);
INSERT INTO "counters" VALUES ('leases', 7);
INSERT INTO "counters" VALUES ('run_actions', 1);
INSERT INTO "counters" VALUES ('sessions', 1);
INSERT INTO "counters" VALUES ('state', 9);
CREATE TABLE state (
    key            TEXT    NOT NULL,
    scope_id       TEXT    NOT NULL,
    payload        TEXT    NOT NULL,
    version        INTEGER NOT NULL,
    updated_at     INTEGER NOT NULL,
    expires_at     INTEGER,
    expires_ms     INTEGER,
    writer_pid     INTEGER,
    writer_session TEXT,
    PRIMARY KEY (key, scope_id)
) STRICT, WITHOUT ROWID;
INSERT INTO "state" VALUES ('cursor', 'old', '{"phase":7,"dispatch":0}', 4, 1600000000, NULL, NULL, NULL, NULL);
INSERT INTO "state" VALUES ('dispatch', 's1', '{"phase": "executing"}', 1, 1600000000, NULL, NULL, 4711, 'session');
INSERT INTO "state" VALUES ('dispatch', 's2', '[1,  2]', 2, 1600000000, 200000000000, 200000000000000, NULL, NULL);
INSERT INTO "state" VALUES ('gone', 's1', '0', 3, 1600000000, 1600000000, 1600000000000, NULL, NULL);
CREATE INDEX state_by_scope ON state (scope_id, key);
CREATE INDEX state_by_expiry ON state (expires_ms) WHERE expires_ms IS NOT NULL;
CREATE TABLE sentinels (
    name        TEXT    NOT NULL,
    scope_id    TEXT    NOT NULL,
    last_fired  INTEGER NOT NULL,
    fired_ms    INTEGER NOT NULL,
    interval_ms INTEGER NOT NULL,  -- the largest interval anybody asked with
    once        INTEGER NOT NULL,  -- 1: claimed with interval 0, never fires again
    prune_ms    INTEGER,           -- auto-prune after this moment; NULL: never
    claim_ms    INTEGER,           -- the interval of the last claim
    request_id  TEXT,              -- of the last claim, so that its retry is told the same
    PRIMARY KEY (name, scope_id)
) STRICT, WITHOUT ROWID;
INSERT INTO "sentinels" VALUES ('drift', 's1', 1600000000, 1600000000999, 60000, 0, NULL, 60000, NULL);
INSERT INTO "sentinels" VALUES ('stop', 's1', 1600000000, 1600000000123, 0, 1, NULL, 0, 'r1');
CREATE INDEX sentinels_by_prune ON sentinels (prune_ms) WHERE prune_ms IS NOT NULL;
CREATE TABLE requests (
    id     TEXT    PRIMARY KEY,
    method TEXT    NOT NULL,
    digest INTEGER NOT NULL,
    effect TEXT    NOT NULL,
    at_ms  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO "requests" VALUES ('q1', 'state.set', 42, '{}', 1600000000000);
CREATE INDEX requests_by_age ON requests (at_ms);
CREATE TABLE events (
    seq             INTEGER PRIMARY KEY AUTOINCREMENT,  -- the order, whatever the clock says
    source          TEXT    NOT NULL,
    type            TEXT    NOT NULL,
    run_id          TEXT    NOT NULL,  -- '': of no run
    subject_id      TEXT    NOT NULL,  -- the dispatch, discovery, agent, … that it is about
    from_state      TEXT    NOT NULL,
    to_state        TEXT    NOT NULL,
    reason          TEXT    NOT NULL,
    payload         TEXT,              -- JSON
    at              INTEGER NOT NULL,
    at_ms           INTEGER NOT NULL,
    actor_pid       INTEGER,
    actor_uid       INTEGER,
    actor_session   TEXT,
    trace_id        TEXT,
    span_id         TEXT,
    project_dir     TEXT,
    source_id       INTEGER,           -- the number that the original gave it; NULL: it is `seq`
    idempotency_key TEXT
) STRICT;
INSERT INTO "events" VALUES (5, 'phase', 'advance', 'run00001', '', 'a', 'b', 'because', '{"gate_result": "pass"}', 1600000000, 1600000000000, 4711, 1000, 'session', 't', 's', '/p', 7, NULL);
INSERT INTO "events" VALUES (6, 'review', 'found', '', 'x', '', '', '', NULL, 1600000000, 1600000000500, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'once');
INSERT INTO "events" VALUES (9, 'phase', 'skip', 'run00001', '', 'b', 'c', '', NULL, 1600000000, 1600000000900, NULL, NULL, NULL, NULL, NULL, NULL, 8, NULL);
CREATE INDEX events_by_run ON events (run_id) WHERE run_id <> '';
CREATE INDEX events_by_source ON events (source);
CREATE UNIQUE INDEX events_by_key ON events (source, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
CREATE TABLE cursors (
    consumer   TEXT    NOT NULL,
    run_id     TEXT    NOT NULL,  -- '': all events
    seq        INTEGER NOT NULL,  -- the last event that was acknowledged
    updated_at INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL,
    expires_ms INTEGER,           -- NULL: durable
    PRIMARY KEY (consumer, run_id)
) STRICT, WITHOUT ROWID;
INSERT INTO "cursors" VALUES ('reader', '', 6, 1600000000, 1600000000000, NULL);
INSERT INTO "cursors" VALUES ('reader', 'run00001', 5, 1600000000, 1600000000000, NULL);
CREATE INDEX cursors_by_expiry ON cursors (expires_ms) WHERE expires_ms IS NOT NULL;
CREATE TABLE hook_positions (
    hook    TEXT    PRIMARY KEY,
    seq     INTEGER NOT NULL,  -- the last event that was delivered
    started INTEGER NOT NULL   -- the event that is being delivered; not after `seq`: none is
) STRICT, WITHOUT ROWID;
INSERT INTO "hook_positions" VALUES ('notify', 6, 6);
CREATE TABLE runs (
    id              TEXT    PRIMARY KEY,
    project_dir     TEXT    NOT NULL,  -- the project's identity: a real path
    goal            TEXT    NOT NULL,
    status          TEXT    NOT NULL
        CHECK (status IN ('active', 'completed', 'cancelled', 'failed', 'abandoned')),
    phase           TEXT    NOT NULL,
    complexity      INTEGER NOT NULL,
    force_full      INTEGER NOT NULL,
    auto_advance    INTEGER NOT NULL,
    auto_spawn      INTEGER NOT NULL,
    scope_id        TEXT,              -- what it is about, such as a bead
    phases          TEXT,              -- a JSON array; NULL: the default chain
    gates           TEXT,              -- JSON; NULL: the default rules
    token_budget    INTEGER,
    budget_warn_pct INTEGER NOT NULL,
    budget_told     INTEGER NOT NULL,  -- events recorded: 1 the warning, 2 that it is exceeded
    metadata        TEXT,
    actions         TEXT,
    session         TEXT,              -- who created it
    owner_pid       INTEGER,           -- the process that did, so that others can tell if it lives
    owner_start     INTEGER,
    owner_boot      TEXT,
    owner_pidns     TEXT,
    created_at      INTEGER NOT NULL,
    created_ms      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL,
    updated_ms      INTEGER NOT NULL,  -- the last sign of life
    completed_at    INTEGER
, max_agents INTEGER, max_dispatches INTEGER, budget_enforce INTEGER NOT NULL DEFAULT 0) STRICT;
INSERT INTO "runs" VALUES ('run00001', '/p', 'ship it', 'active', 'b', 4, 0, 1, 0, 'bead-1', '["a","b","c","d"]', NULL, 1000, 80, 1, '{"k":1}', NULL, 'session', 4711, 1, 'boot', 'pidns', 1600000000, 1600000000000, 1600000000, 1600000000000, NULL, 3, 2, 1);
INSERT INTO "runs" VALUES ('run00002', '/p', 'done', 'completed', 'done', 3, 1, 0, 1, NULL, NULL, NULL, NULL, 90, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 1600000000, 1600000000001, 1600000000, 1600000000001, 1600000000, NULL, NULL, 0);
CREATE UNIQUE INDEX runs_by_claim ON runs (project_dir, scope_id)
    WHERE status = 'active' AND scope_id IS NOT NULL;
CREATE INDEX runs_by_project ON runs (project_dir, created_ms) WHERE status = 'active';
CREATE INDEX runs_by_scope ON runs (scope_id) WHERE scope_id IS NOT NULL;
CREATE INDEX runs_by_age ON runs (created_ms);
CREATE TABLE run_skips (
    run_id     TEXT    NOT NULL REFERENCES runs (id),
    phase      TEXT    NOT NULL,
    reason     TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (run_id, phase)
) STRICT, WITHOUT ROWID;
INSERT INTO "run_skips" VALUES ('run00001', 'c', 'not needed', 1600000000);
CREATE TABLE run_agents (
    id          TEXT    PRIMARY KEY,
    run_id      TEXT    NOT NULL REFERENCES runs (id),
    agent_type  TEXT    NOT NULL,
    name        TEXT,
    status      TEXT    NOT NULL CHECK (status IN ('active', 'completed', 'failed')),
    dispatch_id TEXT,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL
) STRICT;
INSERT INTO "run_agents" VALUES ('agent001', 'run00001', 'claude', 'reviewer', 'active', 'disp0001', 1600000000, 1600000000);
CREATE INDEX run_agents_by_run ON run_agents (run_id);
CREATE TABLE run_artifacts (
    id           TEXT    PRIMARY KEY,
    run_id       TEXT    NOT NULL REFERENCES runs (id),
    phase        TEXT    NOT NULL,
    path         TEXT    NOT NULL,
    type         TEXT    NOT NULL,
    content_hash TEXT,
    dispatch_id  TEXT,
    status       TEXT    NOT NULL CHECK (status IN ('active', 'rolled_back')),
    created_at   INTEGER NOT NULL
) STRICT;
INSERT INTO "run_artifacts" VALUES ('artif001', 'run00001', 'a', 'plan.md', 'file', 'abc', 'disp0001', 'active', 1600000000);
CREATE INDEX run_artifacts_by_phase ON run_artifacts (run_id, phase);
CREATE TABLE dispatches (
    id              TEXT    PRIMARY KEY,
    run_id          TEXT,
    scope_id        TEXT,              -- as it was given
    parent_id       TEXT,
    agent_type      TEXT    NOT NULL,
    status          TEXT    NOT NULL CHECK (
        status IN ('spawned', 'running', 'completed', 'failed', 'timeout', 'cancelled')),
    name            TEXT,
    model           TEXT,
    sandbox         TEXT,
    project_dir     TEXT    NOT NULL,
    prompt_file     TEXT,
    prompt_hash     TEXT,
    output_file     TEXT,
    verdict_file    TEXT,
    timeout_ms      INTEGER,
    runner_pid      INTEGER,           -- the process that waits for the agent
    runner_start    INTEGER,
    pid             INTEGER,           -- the agent, leader of its own process group
    pid_start       INTEGER,
    boot            TEXT,              -- pids and start times are those of this boot
    pidns           TEXT,              -- and of this namespace
    exit_code       INTEGER,
    verdict_status  TEXT,
    verdict_summary TEXT,
    error_message   TEXT,
    turns           INTEGER NOT NULL,
    commands        INTEGER NOT NULL,
    messages        INTEGER NOT NULL,
    input_tokens    INTEGER NOT NULL,
    output_tokens   INTEGER NOT NULL,
    cache_hits      INTEGER,
    session         TEXT,
    created_at      INTEGER NOT NULL,
    created_ms      INTEGER NOT NULL,
    started_at      INTEGER,
    completed_at    INTEGER,
    version         INTEGER NOT NULL   -- counts its changes
) STRICT;
INSERT INTO "dispatches" VALUES ('disp0001', 'run00001', 'bead-1', NULL, 'codex', 'completed', 'worker', 'gpt', 'workspace-write', '/p', 'prompt.md', 'hash', 'out', 'verdict', 60000, 4712, 2, 4713, 3, 'boot', 'pidns', 0, 'pass', 'fine', NULL, 3, 4, 5, 600, 70, 8, 'session', 1600000000, 1600000000000, 1600000000, 1600000000, 4);
CREATE INDEX dispatches_by_run ON dispatches (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX dispatches_by_scope ON dispatches (scope_id) WHERE scope_id IS NOT NULL;
CREATE INDEX dispatches_by_age ON dispatches (created_ms);
CREATE INDEX dispatches_alive ON dispatches (status) WHERE status IN ('spawned', 'running');
CREATE TABLE leases (
    name        TEXT    NOT NULL,
    scope_id    TEXT    NOT NULL,
    owner       TEXT    NOT NULL,
    token       INTEGER NOT NULL,      -- grows with every acquisition of any lease
    ttl_ms      INTEGER NOT NULL,
    acquired_at INTEGER NOT NULL,
    renewed_at  INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL,      -- rounded up; shown
    expires_ms  INTEGER NOT NULL,      -- decides; 0: it was released
    session     TEXT,
    pid         INTEGER,
    PRIMARY KEY (name, scope_id)
) STRICT, WITHOUT ROWID;
INSERT INTO "leases" VALUES ('deploy', 'p', 'me', 7, 60000, 1600000000, 1600000000, 200000000000, 200000000000000, 'session', 4711);
CREATE TABLE discoveries (
    id            TEXT    PRIMARY KEY,
    source        TEXT    NOT NULL,
    source_id     TEXT    NOT NULL,
    title         TEXT    NOT NULL,
    summary       TEXT    NOT NULL,
    url           TEXT    NOT NULL,
    raw_metadata  TEXT    NOT NULL,  -- JSON
    relevance     INTEGER NOT NULL CHECK (relevance BETWEEN 0 AND 1000000),
    decay         INTEGER NOT NULL CHECK (decay BETWEEN 0 AND 1000000),
    status        TEXT    NOT NULL
        CHECK (status IN ('new', 'scored', 'proposed', 'promoted', 'dismissed')),
    run_id        TEXT,
    bead_id       TEXT,
    discovered_at INTEGER NOT NULL,
    discovered_ms INTEGER NOT NULL,
    decayed_ms    INTEGER,           -- the last decay; NULL: none yet
    promoted_at   INTEGER,
    reviewed_at   INTEGER,
    dismissed_ms  INTEGER,           -- decides about its retention
    version       INTEGER NOT NULL,  -- of the counter 'discoveries' at its last change
    UNIQUE (source, source_id)
) STRICT;
INSERT INTO "discoveries" VALUES ('disc00000001', 'web', '1', 'A title', 'Sum', 'http://x', '{"k": 1}', 750000, 1000000, 'scored', NULL, NULL, 1600000000, 1600000000000, NULL, NULL, 1600000000, NULL, 1);
INSERT INTO "discoveries" VALUES ('disc00000002', 'web', '2', 'Promoted', '', '', '{}', 900000, 1000000, 'promoted', 'run00001', 'bead-1', 1600000000, 1600000000000, NULL, 1600000000, 1600000000, NULL, 2);
CREATE INDEX discoveries_by_score ON discoveries (relevance * decay DESC, id);
CREATE INDEX discoveries_by_version ON discoveries (version, id);
CREATE INDEX discoveries_by_dismissal ON discoveries (dismissed_ms) WHERE dismissed_ms IS NOT NULL;
CREATE TABLE embeddings (
    discovery_id TEXT PRIMARY KEY REFERENCES discoveries (id) ON DELETE CASCADE,
    source       TEXT NOT NULL,
    vector       BLOB NOT NULL       -- little-endian float32
) STRICT;
INSERT INTO "embeddings" VALUES ('disc00000001', 'web', X'0000803F00000040');
CREATE INDEX embeddings_by_source ON embeddings (source);
CREATE TABLE embedding_sources (
    source    TEXT    PRIMARY KEY,
    dimension INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO "embedding_sources" VALUES ('web', 2);
CREATE TABLE feedback_signals (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    discovery_id TEXT    NOT NULL,
    signal_type  TEXT    NOT NULL,
    signal_data  TEXT    NOT NULL,   -- JSON
    actor        TEXT    NOT NULL,
    created_at   INTEGER NOT NULL
, idempotency_key TEXT) STRICT;
INSERT INTO "feedback_signals" VALUES (1, 'disc00000001', 'boost', '{"s": 1}', 'me', 1600000000, 'cycle-1');
CREATE INDEX feedback_signals_by_discovery ON feedback_signals (discovery_id);
CREATE TABLE interest_profile (
    id              INTEGER PRIMARY KEY CHECK (id = 1),
    version         INTEGER NOT NULL,
    topic_vector    BLOB,
    keyword_weights TEXT    NOT NULL,  -- a JSON object of numbers
    source_weights  TEXT    NOT NULL,  -- likewise
    updated_at      INTEGER NOT NULL
) STRICT;
INSERT INTO "interest_profile" VALUES (1, 3, X'0000803F00000040', '{"sqlite": 1.5}', '{"web": 0.5}', 1600000000);
CREATE TABLE reservations (
    id          TEXT    PRIMARY KEY,
    type        TEXT    NOT NULL CHECK (type IN ('file_reservation', 'named_lock', 'write_set')),
    owner       TEXT    NOT NULL,
    scope       TEXT    NOT NULL,
    pattern     TEXT    NOT NULL,      -- normalised
    exclusive   INTEGER NOT NULL CHECK (exclusive IN (0, 1)),
    reason      TEXT    NOT NULL,
    ttl_ms      INTEGER,               -- NULL: no deadline
    run_id      TEXT    NOT NULL,
    dispatch_id TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    renewed_ms  INTEGER NOT NULL,
    expires_at  INTEGER,               -- rounded up; shown
    expires_ms  INTEGER,               -- decides; NULL: no deadline
    session     TEXT,
    pid         INTEGER,               -- ends with this process, if there is one
    pid_start   INTEGER,
    pid_boot    TEXT,
    pid_ns      TEXT,
    key         TEXT    NOT NULL       -- what is literal in the pattern, to find it by
) STRICT;
INSERT INTO "reservations" VALUES ('lock0001', 'file_reservation', 'me', '.', 'src/*.py', 1, 'why', NULL, '', '', 1600000000, 1600000000000, NULL, NULL, 'session', NULL, NULL, NULL, NULL, 'src/');
CREATE INDEX reservations_by_key ON reservations (scope, key);
CREATE INDEX reservations_by_owner ON reservations (owner, scope);
CREATE INDEX reservations_by_expiry ON reservations (expires_ms) WHERE expires_ms IS NOT NULL;
CREATE TABLE sessions (
    session_id            TEXT    NOT NULL,
    project_dir           TEXT    NOT NULL,
    id                    INTEGER NOT NULL,  -- of the counter 'sessions', when it first started
    agent_type            TEXT    NOT NULL,
    model                 TEXT,
    metadata              TEXT,              -- JSON
    started_at            INTEGER NOT NULL,
    ended_at              INTEGER,           -- NULL: it goes on
    input_tokens          INTEGER NOT NULL,
    output_tokens         INTEGER NOT NULL,
    cache_creation_tokens INTEGER NOT NULL,
    cache_read_tokens     INTEGER NOT NULL,
    PRIMARY KEY (session_id, project_dir)
) STRICT, WITHOUT ROWID;
INSERT INTO "sessions" VALUES ('s1', '/p', 1, 'codex', 'm', '{}', 1600000000, NULL, 5, 6, 7, 8);
CREATE INDEX sessions_by_start ON sessions (started_at, id);
CREATE TABLE attributions (
    session_id  TEXT    NOT NULL,
    project_dir TEXT    NOT NULL,
    bead_id     TEXT,
    run_id      TEXT,
    phase       TEXT,
    updated_at  INTEGER NOT NULL,
    PRIMARY KEY (session_id, project_dir)
) STRICT, WITHOUT ROWID;
INSERT INTO "attributions" VALUES ('s1', '/p', 'b', 'r', NULL, 1600000000);
CREATE TABLE lanes (
    id          TEXT    PRIMARY KEY,
    name        TEXT    NOT NULL,
    lane_type   TEXT    NOT NULL CHECK (lane_type IN ('standing', 'arc')),
    status      TEXT    NOT NULL CHECK (status IN ('active', 'closed', 'archived')),
    description TEXT    NOT NULL,
    intent      TEXT    NOT NULL,
    metadata    TEXT    NOT NULL,      -- a JSON object
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    updated_ms  INTEGER NOT NULL,
    closed_at   INTEGER
) STRICT;
INSERT INTO "lanes" VALUES ('lane0001', 'kernel', 'standing', 'active', 'the core', 'go', '{"paused":true}', 1600000000, 1600000000, 1600000000000, NULL);
CREATE UNIQUE INDEX lanes_by_name ON lanes (name);
CREATE TABLE lane_members (
    lane_id    TEXT    NOT NULL REFERENCES lanes (id),
    bead_id    TEXT    NOT NULL,
    added_at   INTEGER NOT NULL,
    removed_at INTEGER,                -- NULL: it is in the lane
    changed_ms INTEGER NOT NULL,
    PRIMARY KEY (lane_id, bead_id)
) STRICT, WITHOUT ROWID;
INSERT INTO "lane_members" VALUES ('lane0001', 'B-1', 1600000000, NULL, 1600000000000);
INSERT INTO "lane_members" VALUES ('lane0001', 'B-2', 1600000000, 1600000000, 1600000000000);
CREATE TABLE run_actions (
    run_id      TEXT    NOT NULL REFERENCES runs (id),
    phase       TEXT    NOT NULL,
    command     TEXT    NOT NULL,
    id          INTEGER NOT NULL,      -- of the counter 'run_actions'
    action_type TEXT    NOT NULL,
    args        TEXT,                  -- a JSON array
    mode        TEXT    NOT NULL,
    priority    INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    updated_ms  INTEGER NOT NULL,
    PRIMARY KEY (run_id, phase, command)
) STRICT, WITHOUT ROWID;
INSERT INTO "run_actions" VALUES ('run00001', 'c', '/work', 1, 'command', '["${run_id}"]', 'both', -1, 1600000000, 1600000000, 1600000000000);
CREATE UNIQUE INDEX feedback_by_key ON feedback_signals (discovery_id, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
