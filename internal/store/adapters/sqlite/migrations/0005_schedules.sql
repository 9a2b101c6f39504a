-- What enqueues jobs at the times of an expression. The column job has the job without its payload, as JSON. Every change of a
-- row gives it a revision that no row had before, so the numbers come from a counter.
CREATE TABLE schedules (
	name TEXT PRIMARY KEY,
	revision INTEGER NOT NULL,
	cron TEXT NOT NULL,
	timezone TEXT NOT NULL,
	job TEXT NOT NULL,
	payload TEXT NOT NULL,
	catch_up TEXT NOT NULL,
	overlap TEXT NOT NULL,
	paused INTEGER NOT NULL,
	owner TEXT NOT NULL,
	version INTEGER NOT NULL,
	next_at INTEGER,
	last_at INTEGER,
	last_job INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX schedules_due ON schedules (next_at) WHERE next_at IS NOT NULL;

CREATE TABLE schedule_revisions (
	one INTEGER PRIMARY KEY CHECK (one = 1),
	latest INTEGER NOT NULL
) STRICT;

INSERT INTO schedule_revisions (one, latest) VALUES (1, 0);

-- Which schedule enqueued the job, and for which time, as JSON. A server of an earlier version leaves it as it is.
ALTER TABLE jobs ADD COLUMN scheduled TEXT;
