PRAGMA application_id = 0;
PRAGMA user_version = 2;
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
    verdict_status TEXT, verdict_summary TEXT, error_message TEXT, scope_id TEXT, parent_id TEXT);
INSERT INTO "dispatches" VALUES ('d1', 'codex', 'spawned', '/p', 'prompt.md', NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'workspace-write', NULL, 0, 0, 0, 0, 0, 1600000000, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
CREATE INDEX idx_dispatches_status ON dispatches (status) WHERE status IN ('spawned', 'running');
CREATE INDEX idx_dispatches_scope ON dispatches (scope_id) WHERE scope_id IS NOT NULL;
