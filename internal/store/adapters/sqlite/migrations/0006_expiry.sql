-- From when on no claim takes a waiting job. A server of an earlier version leaves it as it is, and goes on claiming the job.
ALTER TABLE jobs ADD COLUMN expires_at INTEGER;

CREATE INDEX jobs_expiring ON jobs (expires_at, id) WHERE expires_at IS NOT NULL AND finished_at IS NULL;
