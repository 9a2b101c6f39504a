-- Groups of jobs, for which others can wait as a whole. A program of an earlier version would end a job of a group and tell nobody.
--
-- Least compatible version: 11.

ALTER TABLE jobs ADD COLUMN group_name TEXT;

-- The jobs of a group, and whether one of them is dead.
CREATE INDEX jobs_group ON jobs (group_name, id) WHERE group_name IS NOT NULL;
CREATE INDEX jobs_group_dead ON jobs (group_name) WHERE group_name IS NOT NULL AND state = 'failed' AND retry_at IS NULL;

-- Groups, with the number of their jobs that are live. An index of these jobs would be changed at the end of each.
CREATE TABLE groups (
	name TEXT PRIMARY KEY,
	opened_at INTEGER,
	spoiled INTEGER NOT NULL DEFAULT 0,
	live INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE INDEX groups_open ON groups (name) WHERE opened_at IS NOT NULL;

-- What waits for a group has the group in place of on_id, which is 0 then. A wait for a group is met when the job becomes ready.
ALTER TABLE waits ADD COLUMN on_group TEXT;

CREATE INDEX waits_on_group ON waits (on_group, job_id) WHERE on_group IS NOT NULL;

-- An end with a group says that something has changed in that.
ALTER TABLE ends ADD COLUMN group_name TEXT;
