PRAGMA application_id = 0;
PRAGMA user_version = 1;
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
