-- An index for filters by waits: who waits for a job, or has waited for it.
--
-- Least compatible version: 9.

CREATE INDEX waits_on ON waits (on_id, job_id);
