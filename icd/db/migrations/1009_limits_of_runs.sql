-- Limits that a run is created with, and feedback that is given once.

-- How many agents and dispatches of a run may be active at once; NULL: any number.
ALTER TABLE runs ADD COLUMN max_agents INTEGER;
ALTER TABLE runs ADD COLUMN max_dispatches INTEGER;
-- Whether a budget that is used up closes every gate.
ALTER TABLE runs ADD COLUMN budget_enforce INTEGER NOT NULL DEFAULT 0;

ALTER TABLE feedback_signals ADD COLUMN idempotency_key TEXT;
CREATE UNIQUE INDEX feedback_by_key ON feedback_signals (discovery_id, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
