-- One log for everything that happens, in one sequence; `source` says what an event is about.
-- No foreign keys: the log outlives what it describes.

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

-- Each ends with the rowid, `seq`, by itself.
CREATE INDEX events_by_run ON events (run_id) WHERE run_id <> '';
CREATE INDEX events_by_source ON events (source);
CREATE UNIQUE INDEX events_by_key ON events (source, idempotency_key)
    WHERE idempotency_key IS NOT NULL;

-- Up to where the log has been pruned: who has read less than that has missed something.
INSERT INTO counters (name, value) VALUES ('events_pruned', 0);

-- How far a consumer has read.
CREATE TABLE cursors (
    consumer   TEXT    NOT NULL,
    run_id     TEXT    NOT NULL,  -- '': all events
    seq        INTEGER NOT NULL,  -- the last event that was acknowledged
    updated_at INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL,
    expires_ms INTEGER,           -- NULL: durable
    PRIMARY KEY (consumer, run_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX cursors_by_expiry ON cursors (expires_ms) WHERE expires_ms IS NOT NULL;
