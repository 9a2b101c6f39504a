-- How a job is retried and how long it may run, in one column instead of five: claims read it, and most jobs have the same. NULL
-- is what clients set by default, and anything else is five numbers with spaces between them.
--
-- Least compatible version: 10.
ALTER TABLE {schema}.jobs ADD COLUMN IF NOT EXISTS rules text COLLATE "C";

UPDATE {schema}.jobs
SET rules = concat_ws(' ', max_retries, backoff_base, backoff_cap, backoff_jitter, timeout)
WHERE (max_retries, backoff_base, backoff_cap, backoff_jitter, timeout) <> (20, 1000000, 3600000000, 10, 0);

ALTER TABLE {schema}.jobs
	DROP COLUMN max_retries,
	DROP COLUMN backoff_base,
	DROP COLUMN backoff_cap,
	DROP COLUMN backoff_jitter,
	DROP COLUMN timeout;
