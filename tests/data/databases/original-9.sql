PRAGMA application_id = 0;
PRAGMA user_version = 9;
CREATE TABLE state (
    key TEXT NOT NULL, scope_id TEXT NOT NULL, payload TEXT NOT NULL,
    updated_at INTEGER NOT NULL DEFAULT (unixepoch()), expires_at INTEGER,
    PRIMARY KEY (key, scope_id));
INSERT INTO "state" VALUES ('dispatch', 's1', '{"phase": "executing"}', 1600000000, NULL);
INSERT INTO "state" VALUES ('dispatch', 's2', '[1,  2]', 1600000000, 200000000000);
INSERT INTO "state" VALUES ('expired', 's1', '"gone"', 1600000000, 1600000000);
INSERT INTO "state" VALUES ('turns', 's1', '41', 1600000000, NULL);
CREATE INDEX idx_state_scope ON state (scope_id, key);
CREATE INDEX idx_state_expires ON state (expires_at) WHERE expires_at IS NOT NULL;
CREATE TABLE sentinels (
    name TEXT NOT NULL, scope_id TEXT NOT NULL,
    last_fired INTEGER NOT NULL DEFAULT (unixepoch()),
    PRIMARY KEY (name, scope_id));
INSERT INTO "sentinels" VALUES ('drift', 's1', 1600000000);
INSERT INTO "sentinels" VALUES ('stop', 's1', 1600000000);
CREATE TABLE _migrate_lock (x INTEGER);
CREATE TABLE dispatches (
    id TEXT PRIMARY KEY, agent_type TEXT NOT NULL DEFAULT 'codex',
    status TEXT NOT NULL DEFAULT 'spawned', project_dir TEXT NOT NULL, prompt_file TEXT,
    prompt_hash TEXT, output_file TEXT, verdict_file TEXT, pid INTEGER, exit_code INTEGER,
    name TEXT, model TEXT, sandbox TEXT DEFAULT 'workspace-write', timeout_sec INTEGER,
    turns INTEGER DEFAULT 0, commands INTEGER DEFAULT 0, messages INTEGER DEFAULT 0,
    input_tokens INTEGER DEFAULT 0, output_tokens INTEGER DEFAULT 0,
    created_at INTEGER NOT NULL DEFAULT (unixepoch()), started_at INTEGER, completed_at INTEGER,
    verdict_status TEXT, verdict_summary TEXT, error_message TEXT, scope_id TEXT, parent_id TEXT, cache_hits INTEGER);
INSERT INTO "dispatches" VALUES ('d1', 'codex', 'spawned', '/p', 'prompt.md', NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'workspace-write', NULL, 0, 0, 0, 0, 0, 1600000000, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
CREATE INDEX idx_dispatches_status ON dispatches (status) WHERE status IN ('spawned', 'running');
CREATE INDEX idx_dispatches_scope ON dispatches (scope_id) WHERE scope_id IS NOT NULL;
CREATE TABLE runs (
    id TEXT PRIMARY KEY, project_dir TEXT NOT NULL, goal TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'active', phase TEXT NOT NULL DEFAULT 'brainstorm',
    complexity INTEGER NOT NULL DEFAULT 3, force_full INTEGER NOT NULL DEFAULT 0,
    auto_advance INTEGER NOT NULL DEFAULT 1, created_at INTEGER NOT NULL DEFAULT (unixepoch()),
    updated_at INTEGER NOT NULL DEFAULT (unixepoch()), completed_at INTEGER, scope_id TEXT,
    metadata TEXT, phases TEXT, token_budget INTEGER, budget_warn_pct INTEGER DEFAULT 80);
INSERT INTO "runs" VALUES ('r1', '/p', 'ship it', 'active', 'brainstorm', 3, 0, 1, 1600000000, 1600000000, NULL, NULL, NULL, NULL, NULL, 80);
CREATE INDEX idx_runs_status ON runs (status) WHERE status = 'active';
CREATE TABLE phase_events (
    id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL REFERENCES runs (id),
    from_phase TEXT NOT NULL, to_phase TEXT NOT NULL,
    event_type TEXT NOT NULL DEFAULT 'advance', gate_result TEXT, gate_tier TEXT, reason TEXT,
    created_at INTEGER NOT NULL DEFAULT (unixepoch()));
INSERT INTO "phase_events" VALUES (1, 'r1', 'a', 'b', 'advance', NULL, NULL, NULL, 1600000000);
CREATE INDEX idx_phase_events_run ON phase_events (run_id);
CREATE TABLE run_agents (
    id TEXT PRIMARY KEY, run_id TEXT NOT NULL REFERENCES runs (id),
    agent_type TEXT NOT NULL DEFAULT 'claude', name TEXT,
    status TEXT NOT NULL DEFAULT 'active', dispatch_id TEXT,
    created_at INTEGER NOT NULL DEFAULT (unixepoch()),
    updated_at INTEGER NOT NULL DEFAULT (unixepoch()));
INSERT INTO "run_agents" VALUES ('a1', 'r1', 'claude', 'reviewer', 'active', NULL, 1600000000, 1600000000);
CREATE INDEX idx_run_agents_run ON run_agents (run_id);
CREATE TABLE run_artifacts (
    id TEXT PRIMARY KEY, run_id TEXT NOT NULL REFERENCES runs (id), phase TEXT NOT NULL,
    path TEXT NOT NULL, type TEXT NOT NULL DEFAULT 'file',
    created_at INTEGER NOT NULL DEFAULT (unixepoch()), content_hash TEXT, dispatch_id TEXT, status TEXT NOT NULL DEFAULT 'active');
INSERT INTO "run_artifacts" VALUES ('f1', 'r1', 'b', 'plan.md', 'file', 1600000000, NULL, NULL, 'active');
CREATE INDEX idx_run_artifacts_run ON run_artifacts (run_id);
CREATE INDEX idx_run_artifacts_phase ON run_artifacts (run_id, phase);
CREATE TABLE dispatch_events (
    id INTEGER PRIMARY KEY AUTOINCREMENT, dispatch_id TEXT NOT NULL, run_id TEXT,
    from_status TEXT NOT NULL, to_status TEXT NOT NULL,
    event_type TEXT NOT NULL DEFAULT 'status_change', reason TEXT,
    created_at INTEGER NOT NULL DEFAULT (unixepoch()));
INSERT INTO "dispatch_events" VALUES (1, 'd1', NULL, '', 'x', 'status_change', NULL, 1600000000);
CREATE INDEX idx_dispatch_events_dispatch ON dispatch_events (dispatch_id);
CREATE TABLE interspect_events (
    id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT, agent_name TEXT NOT NULL,
    event_type TEXT NOT NULL, override_reason TEXT, context_json TEXT, session_id TEXT,
    project_dir TEXT, created_at INTEGER NOT NULL DEFAULT (unixepoch()));
INSERT INTO "interspect_events" VALUES (1, NULL, 'reviewer', 'override', NULL, NULL, NULL, NULL, 1600000000);
CREATE INDEX idx_interspect_agent ON interspect_events (agent_name);
CREATE TABLE discoveries (
    id TEXT PRIMARY KEY, source TEXT NOT NULL, source_id TEXT NOT NULL, title TEXT NOT NULL,
    summary TEXT NOT NULL DEFAULT '', url TEXT NOT NULL DEFAULT '',
    raw_metadata TEXT NOT NULL DEFAULT '{}', embedding BLOB,
    relevance_score REAL NOT NULL DEFAULT 0.0, confidence_tier TEXT NOT NULL DEFAULT 'low',
    status TEXT NOT NULL DEFAULT 'new', run_id TEXT, bead_id TEXT,
    discovered_at INTEGER NOT NULL DEFAULT (unixepoch()), promoted_at INTEGER,
    reviewed_at INTEGER, UNIQUE (source, source_id));
INSERT INTO "discoveries" VALUES ('x1', 'w', '1', 'a title', '', '', '{}', X'00FF', 0.0, 'low', 'new', NULL, NULL, 1600000000, NULL, NULL);
CREATE INDEX idx_discoveries_source ON discoveries (source);
CREATE TABLE discovery_events (
    id INTEGER PRIMARY KEY AUTOINCREMENT, discovery_id TEXT NOT NULL, event_type TEXT NOT NULL,
    from_status TEXT NOT NULL DEFAULT '', to_status TEXT NOT NULL DEFAULT '',
    payload TEXT NOT NULL DEFAULT '{}', created_at INTEGER NOT NULL DEFAULT (unixepoch()));
INSERT INTO "discovery_events" VALUES (1, 'x1', 'new', '', '', '{}', 1600000000);
CREATE TABLE feedback_signals (
    id INTEGER PRIMARY KEY AUTOINCREMENT, discovery_id TEXT NOT NULL, signal_type TEXT NOT NULL,
    signal_data TEXT NOT NULL DEFAULT '{}', actor TEXT NOT NULL DEFAULT 'system',
    created_at INTEGER NOT NULL DEFAULT (unixepoch()));
INSERT INTO "feedback_signals" VALUES (1, 'x1', 'up', '{}', 'system', 1600000000);
CREATE TABLE interest_profile (
    id INTEGER PRIMARY KEY CHECK (id = 1), topic_vector BLOB,
    keyword_weights TEXT NOT NULL DEFAULT '{}', source_weights TEXT NOT NULL DEFAULT '{}',
    updated_at INTEGER NOT NULL DEFAULT (unixepoch()));
INSERT INTO "interest_profile" VALUES (1, X'01', '{}', '{}', 1600000000);
