-- From when on no claim takes a waiting job. A server of an earlier version leaves it as it is, and goes on claiming the job.
ALTER TABLE {schema}.jobs ADD COLUMN IF NOT EXISTS expires_at timestamptz;

CREATE INDEX jobs_expiring ON {schema}.jobs (expires_at, id) WHERE expires_at IS NOT NULL AND finished_at IS NULL;
