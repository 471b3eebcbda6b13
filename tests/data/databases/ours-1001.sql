PRAGMA application_id = 1768113218;
PRAGMA user_version = 1001;
CREATE TABLE migrations (
    version    INTEGER PRIMARY KEY,
    program    TEXT    NOT NULL,
    applied_at INTEGER NOT NULL
) STRICT;
INSERT INTO "migrations" VALUES (1001, '0.4.0', 1600000000);
CREATE TABLE counters (
    name  TEXT    PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
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
