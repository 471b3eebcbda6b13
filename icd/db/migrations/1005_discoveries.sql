-- What scanners find.  Scores are millionths, so that no rounding adds up.

CREATE TABLE discoveries (
    id            TEXT    PRIMARY KEY,
    source        TEXT    NOT NULL,
    source_id     TEXT    NOT NULL,
    title         TEXT    NOT NULL,
    summary       TEXT    NOT NULL,
    url           TEXT    NOT NULL,
    raw_metadata  TEXT    NOT NULL,  -- JSON
    relevance     INTEGER NOT NULL CHECK (relevance BETWEEN 0 AND 1000000),
    decay         INTEGER NOT NULL CHECK (decay BETWEEN 0 AND 1000000),
    status        TEXT    NOT NULL
        CHECK (status IN ('new', 'scored', 'proposed', 'promoted', 'dismissed')),
    run_id        TEXT,
    bead_id       TEXT,
    discovered_at INTEGER NOT NULL,
    discovered_ms INTEGER NOT NULL,
    decayed_ms    INTEGER,           -- the last decay; NULL: none yet
    promoted_at   INTEGER,
    reviewed_at   INTEGER,
    dismissed_ms  INTEGER,           -- decides about its retention
    version       INTEGER NOT NULL,  -- of the counter 'discoveries' at its last change
    UNIQUE (source, source_id)
) STRICT;

-- The effective score, in millionths of millionths, as lists are ordered.
CREATE INDEX discoveries_by_score ON discoveries (relevance * decay DESC, id);
CREATE INDEX discoveries_by_version ON discoveries (version, id);  -- as they are paged through
CREATE INDEX discoveries_by_dismissal ON discoveries (dismissed_ms) WHERE dismissed_ms IS NOT NULL;

-- Apart from the rows, so that lists do not read past them.
CREATE TABLE embeddings (
    discovery_id TEXT PRIMARY KEY REFERENCES discoveries (id) ON DELETE CASCADE,
    source       TEXT NOT NULL,
    vector       BLOB NOT NULL       -- little-endian float32
) STRICT;

CREATE INDEX embeddings_by_source ON embeddings (source);

-- All vectors of a source have the same dimension: that of the first.
CREATE TABLE embedding_sources (
    source    TEXT    PRIMARY KEY,
    dimension INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE feedback_signals (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    discovery_id TEXT    NOT NULL,
    signal_type  TEXT    NOT NULL,
    signal_data  TEXT    NOT NULL,   -- JSON
    actor        TEXT    NOT NULL,
    created_at   INTEGER NOT NULL
) STRICT;

CREATE INDEX feedback_signals_by_discovery ON feedback_signals (discovery_id);

CREATE TABLE interest_profile (
    id              INTEGER PRIMARY KEY CHECK (id = 1),
    version         INTEGER NOT NULL,
    topic_vector    BLOB,
    keyword_weights TEXT    NOT NULL,  -- a JSON object of numbers
    source_weights  TEXT    NOT NULL,  -- likewise
    updated_at      INTEGER NOT NULL
) STRICT;

-- Every change of a discovery takes the next number; deletions are counted apart.
INSERT INTO counters (name, value) VALUES ('discoveries', 0), ('discoveries_deleted', 0);
