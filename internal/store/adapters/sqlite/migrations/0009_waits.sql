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

-- How jobs ended, in the order in which they did. Jobs up to an id have been told.
CREATE TABLE ends (
	number INTEGER PRIMARY KEY AUTOINCREMENT,
	job_id INTEGER NOT NULL,
	token INTEGER NOT NULL,
	ended_as TEXT NOT NULL,
	up_to INTEGER NOT NULL DEFAULT 0
) STRICT;

-- Whoever ends a job that others wait for notes it, also a process that opened the file before this step.
CREATE TRIGGER jobs_ended AFTER UPDATE OF finished_at ON jobs
WHEN NEW.links & 1 AND OLD.finished_at IS NULL AND NEW.finished_at IS NOT NULL
BEGIN
	INSERT INTO ends (job_id, token, ended_as)
	VALUES (NEW.id, NEW.token, iif(NEW.state = 'failed', 'dead', NEW.state));
END;

-- A job that was dead is gone: what needs its success will never have it.
CREATE TRIGGER jobs_deleted AFTER DELETE ON jobs
WHEN OLD.links & 1 AND OLD.state = 'failed' AND OLD.retry_at IS NULL
BEGIN
	INSERT INTO ends (job_id, token, ended_as)
	VALUES (OLD.id, OLD.token, 'gone');
END;
