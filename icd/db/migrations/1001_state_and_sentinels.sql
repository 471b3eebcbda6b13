-- Seconds (…_at, last_fired) are shown; milliseconds (…_ms) decide.
-- Numbers start above 1000 so that no version of the original program mistakes our file for its own.

CREATE TABLE migrations (
    version    INTEGER PRIMARY KEY,
    program    TEXT    NOT NULL,
    applied_at INTEGER NOT NULL
) STRICT;

-- 'state' counts every change of state: a row's version is the count at its last write, so that a
-- version number never comes back after a deletion.
CREATE TABLE counters (
    name  TEXT    PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO counters (name, value) VALUES ('state', 0);

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
) STRICT, WITHOUT ROWID;  -- one search instead of two

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

CREATE INDEX sentinels_by_prune ON sentinels (prune_ms) WHERE prune_ms IS NOT NULL;

-- What a write with a request id did, so that its retry is answered and not executed again.
CREATE TABLE requests (
    id     TEXT    PRIMARY KEY,
    method TEXT    NOT NULL,
    digest INTEGER NOT NULL,
    effect TEXT    NOT NULL,
    at_ms  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX requests_by_age ON requests (at_ms);
