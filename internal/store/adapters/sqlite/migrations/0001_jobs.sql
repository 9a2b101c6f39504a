-- Times are microseconds since 1970 and durations microseconds. The documents stand last, so that a row whose payload
-- fills many pages is still decided on by its first one.
CREATE TABLE jobs (
	id INTEGER PRIMARY KEY AUTOINCREMENT,
	queue TEXT NOT NULL,
	kind TEXT NOT NULL,
	priority INTEGER NOT NULL,
	state TEXT NOT NULL,
	run_at INTEGER NOT NULL,
	retry_at INTEGER,
	token INTEGER NOT NULL DEFAULT 0,
	lease_expires_at INTEGER,
	worker TEXT NOT NULL DEFAULT '',
	attempts INTEGER NOT NULL DEFAULT 0,
	retries INTEGER NOT NULL DEFAULT 0,
	max_retries INTEGER NOT NULL,
	backoff_base INTEGER NOT NULL,
	backoff_cap INTEGER NOT NULL,
	backoff_jitter INTEGER NOT NULL,
	timeout INTEGER NOT NULL,
	unique_key TEXT NOT NULL,
	unique_for INTEGER NOT NULL,
	enqueued_at INTEGER NOT NULL,
	finished_at INTEGER,
	finished_by TEXT NOT NULL DEFAULT '',
	claim_token INTEGER NOT NULL DEFAULT 0,
	claimed_at INTEGER,
	ended_at INTEGER,
	ending TEXT NOT NULL DEFAULT '',
	checkpoint_seq INTEGER NOT NULL DEFAULT 0,
	progress_seq INTEGER NOT NULL DEFAULT 0,
	trace TEXT NOT NULL,
	tags TEXT,
	error TEXT NOT NULL DEFAULT '',
	payload TEXT NOT NULL,
	checkpoint TEXT,
	progress TEXT,
	result TEXT
) STRICT;

-- What is claimable, in the order in which it is claimed. Every index ends with the id.
CREATE INDEX jobs_ready ON jobs (queue, priority, run_at) WHERE state = 'ready';
CREATE INDEX jobs_retrying ON jobs (queue, priority, retry_at) WHERE state = 'failed' AND retry_at IS NOT NULL;

-- Leases by their end.
CREATE INDEX jobs_leased ON jobs (lease_expires_at) WHERE state = 'in_flight';

-- What is finished, by age, for those who prune; and the few that people look for, by id.
CREATE INDEX jobs_finished ON jobs (queue, state, finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX jobs_dead ON jobs (id) WHERE state = 'failed' AND retry_at IS NULL;

-- A live job holds its unique key.
CREATE UNIQUE INDEX jobs_unique ON jobs (unique_key) WHERE unique_key <> '' AND unique_for = 0 AND finished_at IS NULL;
CREATE INDEX jobs_unique_key ON jobs (unique_key) WHERE unique_key <> '';

-- Windows outlive their jobs.
CREATE TABLE unique_windows (
	unique_key TEXT PRIMARY KEY,
	job_id INTEGER NOT NULL,
	until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX unique_windows_until ON unique_windows (until);

-- Earlier attempts. The latest one stands in the row of its job.
CREATE TABLE attempts (
	job_id INTEGER NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
	token INTEGER NOT NULL,
	worker TEXT NOT NULL,
	started_at INTEGER NOT NULL,
	ended_at INTEGER NOT NULL,
	ending TEXT NOT NULL,
	error TEXT NOT NULL,
	PRIMARY KEY (job_id, token)
) STRICT, WITHOUT ROWID;

CREATE TABLE request_keys (
	request_key TEXT PRIMARY KEY,
	fingerprint TEXT NOT NULL,
	answer TEXT NOT NULL,
	created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX request_keys_created_at ON request_keys (created_at);

CREATE TABLE queues (
	name TEXT PRIMARY KEY,
	paused INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE workers (
	name TEXT PRIMARY KEY,
	host TEXT NOT NULL,
	pid INTEGER NOT NULL,
	queues TEXT,
	slots INTEGER NOT NULL,
	running INTEGER NOT NULL,
	stale_after INTEGER NOT NULL,
	beat_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
