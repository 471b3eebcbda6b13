-- How far each hook of the project has come in the log.
CREATE TABLE hook_positions (
    hook    TEXT    PRIMARY KEY,
    seq     INTEGER NOT NULL,  -- the last event that was delivered
    started INTEGER NOT NULL   -- the event that is being delivered; not after `seq`: none is
) STRICT, WITHOUT ROWID;
