-- Lanes, which group issues; and what is to be done in each phase of a run.

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

CREATE UNIQUE INDEX lanes_by_name ON lanes (name);

-- What was once in a lane stays, with the moment at which it left: that is the lane's throughput.
CREATE TABLE lane_members (
    lane_id    TEXT    NOT NULL REFERENCES lanes (id),
    bead_id    TEXT    NOT NULL,
    added_at   INTEGER NOT NULL,
    removed_at INTEGER,                -- NULL: it is in the lane
    changed_ms INTEGER NOT NULL,
    PRIMARY KEY (lane_id, bead_id)
) STRICT, WITHOUT ROWID;

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

INSERT INTO counters (name, value) VALUES ('run_actions', 0);
