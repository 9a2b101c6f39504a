-- How a job is retried and how long it may run, in one column instead of five: claims read it, and most jobs have the same. NULL
-- is what clients set by default, and anything else is five numbers with spaces between them.
--
-- Least compatible version: 8.
ALTER TABLE jobs ADD COLUMN rules TEXT;

UPDATE jobs
SET rules = max_retries || ' ' || backoff_base || ' ' || backoff_cap || ' ' || backoff_jitter || ' ' || timeout
WHERE (max_retries, backoff_base, backoff_cap, backoff_jitter, timeout) <> (20, 1000000, 3600000000, 10, 0);

ALTER TABLE jobs DROP COLUMN max_retries;
ALTER TABLE jobs DROP COLUMN backoff_base;
ALTER TABLE jobs DROP COLUMN backoff_cap;
ALTER TABLE jobs DROP COLUMN backoff_jitter;
ALTER TABLE jobs DROP COLUMN timeout;
