-- The jobs of a group as runs of ids, in place of an index with an entry for each job. A program of an earlier version would add jobs to
-- a group that no list of the group has.
--
-- Least compatible version: 12.

-- All jobs with an id from first_id to last_id are in the group. A run without jobs is deleted.
CREATE TABLE group_runs (
	name TEXT NOT NULL,
	first_id INTEGER NOT NULL,
	last_id INTEGER NOT NULL,
	PRIMARY KEY (name, first_id)
) STRICT, WITHOUT ROWID;

INSERT INTO group_runs (name, first_id, last_id)
SELECT group_name, min(id), max(id)
FROM (
	SELECT group_name, id, id - row_number() OVER (PARTITION BY group_name ORDER BY id) AS run
	FROM jobs
	WHERE group_name IS NOT NULL)
GROUP BY group_name, run;

DROP INDEX jobs_group;
