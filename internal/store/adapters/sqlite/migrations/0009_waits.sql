-- Jobs that wait for other jobs. A program of an earlier version would requeue them as if they waited for nothing.
--
-- Least compatible version: 9.

-- 1 if others wait for the job, or have waited for it, and 2 if it waits for others, or has waited.
ALTER TABLE jobs ADD COLUMN links INTEGER NOT NULL DEFAULT 0;

CREATE INDEX jobs_blocked ON jobs (queue) WHERE state = 'blocked';
CREATE INDEX jobs_blocked_ids ON jobs (id) WHERE state = 'blocked';

-- Ends of a job count from the token on. A job that is deleted takes along what it waits for.
CREATE TABLE waits (
	job_id INTEGER NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
	number INTEGER NOT NULL,
	on_id INTEGER NOT NULL,
	any_end INTEGER NOT NULL,
	met INTEGER NOT NULL,
	from_token INTEGER NOT NULL,
	PRIMARY KEY (job_id, number)
) STRICT, WITHOUT ROWID;

CREATE INDEX waits_unmet ON waits (on_id, job_id) WHERE met = 0;

-- How jobs ended, in the order in which they did. Jobs up to an id have been told. Triggers add the rows: see waits.go.
CREATE TABLE ends (
	number INTEGER PRIMARY KEY AUTOINCREMENT,
	job_id INTEGER NOT NULL,
	token INTEGER NOT NULL,
	ended_as TEXT NOT NULL,
	up_to INTEGER NOT NULL DEFAULT 0
) STRICT;
