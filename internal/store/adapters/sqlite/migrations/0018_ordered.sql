-- Whether the jobs of each key of a queue are claimed one at a time, in the order of their ids. A program of an earlier version would claim others.
--
-- Least compatible version: 18.

ALTER TABLE policies ADD COLUMN ordered INTEGER NOT NULL DEFAULT FALSE;

-- The live jobs that have a key, of ordered queues alone. Triggers add and delete the rows: see ordered.go.
CREATE TABLE ordered (
	queue TEXT NOT NULL,
	limit_key TEXT NOT NULL,
	job_id INTEGER NOT NULL,
	PRIMARY KEY (queue, limit_key, job_id)
) STRICT, WITHOUT ROWID;
