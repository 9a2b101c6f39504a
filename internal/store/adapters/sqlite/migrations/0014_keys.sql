-- What jobs count for under a limit for each key of their queue. A program of an earlier version would claim more.
--
-- Least compatible version: 14.

ALTER TABLE jobs ADD COLUMN limit_key TEXT;
ALTER TABLE policies ADD COLUMN max_per_key INTEGER;

-- The waiting jobs of each key. In a queue that limits its keys, a waiting job without a key has the empty one.
CREATE INDEX jobs_ready_by_key ON jobs (queue, limit_key, priority, run_at, id) WHERE state = 'ready' AND limit_key IS NOT NULL;
CREATE INDEX jobs_retrying_by_key ON jobs (queue, limit_key, priority, retry_at, id)
	WHERE state = 'failed' AND retry_at IS NOT NULL AND limit_key IS NOT NULL;

-- Keys of queues that limit them: see keys.go. The state is the JSON of a sqlkit.Key. A key that has room stands in the order of its first
-- fresh job, and of its first retry, that was due when the key was looked at, and waits for the time at which others become due.
CREATE TABLE keys (
	queue TEXT NOT NULL,
	limit_key TEXT NOT NULL,
	state TEXT NOT NULL,
	fresh_level INTEGER,
	fresh_at INTEGER,
	fresh_id INTEGER,
	retry_level INTEGER,
	retry_at INTEGER,
	retry_id INTEGER,
	look_at INTEGER,
	PRIMARY KEY (queue, limit_key)
) STRICT, WITHOUT ROWID;

CREATE INDEX keys_fresh ON keys (queue, fresh_level, fresh_at, fresh_id) WHERE fresh_level IS NOT NULL;
CREATE INDEX keys_retry ON keys (queue, retry_level, retry_at, retry_id) WHERE retry_level IS NOT NULL;
CREATE INDEX keys_look_at ON keys (queue, look_at) WHERE look_at IS NOT NULL;

-- What may have changed for a key: a job waits in lane 0, of fresh jobs, or 1, of retries, from a time on, or, with lane 2, a lease has ended.
-- Triggers add the rows.
CREATE TABLE hints (
	queue TEXT NOT NULL,
	limit_key TEXT NOT NULL,
	lane INTEGER NOT NULL,
	priority INTEGER NOT NULL,
	due_at INTEGER NOT NULL,
	PRIMARY KEY (queue, limit_key, lane, priority)
) STRICT, WITHOUT ROWID;
