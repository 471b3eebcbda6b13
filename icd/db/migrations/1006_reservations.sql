-- Who works on which files.

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

CREATE INDEX reservations_by_key ON reservations (scope, key);
CREATE INDEX reservations_by_owner ON reservations (owner, scope);
CREATE INDEX reservations_by_expiry ON reservations (expires_ms) WHERE expires_ms IS NOT NULL;
