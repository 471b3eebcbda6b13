-- Sessions of agents, and what each of them works on.  How that changed is in the log of events.

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

INSERT INTO counters (name, value) VALUES ('sessions', 0);
