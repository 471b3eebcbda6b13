-- What agents work on: runs, the agents and artifacts of each, the processes that were started for
-- it, and claims with a lease.

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
) STRICT;

-- At most one active run of a project works on the same thing.
CREATE UNIQUE INDEX runs_by_claim ON runs (project_dir, scope_id)
    WHERE status = 'active' AND scope_id IS NOT NULL;
CREATE INDEX runs_by_project ON runs (project_dir, created_ms) WHERE status = 'active';
CREATE INDEX runs_by_scope ON runs (scope_id) WHERE scope_id IS NOT NULL;
CREATE INDEX runs_by_age ON runs (created_ms);

-- Phases that a run passes over.  Not read from the log: that may be pruned.
CREATE TABLE run_skips (
    run_id     TEXT    NOT NULL REFERENCES runs (id),
    phase      TEXT    NOT NULL,
    reason     TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (run_id, phase)
) STRICT, WITHOUT ROWID;

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

CREATE INDEX run_artifacts_by_phase ON run_artifacts (run_id, phase);

-- An agent's process and what came of it.
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

CREATE INDEX dispatches_by_run ON dispatches (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX dispatches_by_scope ON dispatches (scope_id) WHERE scope_id IS NOT NULL;
CREATE INDEX dispatches_by_age ON dispatches (created_ms);
CREATE INDEX dispatches_alive ON dispatches (status) WHERE status IN ('spawned', 'running');

-- Claims that outlive processes.  A row stays after its release or expiry: whoever comes next takes
-- over from it.
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

-- The last fencing token that was given away.
INSERT INTO counters (name, value) VALUES ('leases', 0);
