-- The jobs of a group as runs of ids, and how many of them are live, in place of an index with an entry for each job in each state. A program of
-- an earlier version would add jobs to a group that no list of the group has.
--
-- Least compatible version: 12.

-- This comes first, so that what follows sees all jobs: it waits for those who are adding some, and lets nobody add more.
DROP INDEX {schema}.jobs_group;

-- All jobs with an id from first_id to last_id are in the group. A run without jobs is deleted.
CREATE TABLE {schema}.group_runs (
	name text COLLATE "C" NOT NULL,
	first_id bigint NOT NULL,
	last_id bigint NOT NULL,
	PRIMARY KEY (name, first_id)
);

INSERT INTO {schema}.group_runs (name, first_id, last_id)
SELECT group_name, min(id), max(id)
FROM (
	SELECT group_name, id, id - row_number() OVER (PARTITION BY group_name ORDER BY id) AS run
	FROM {schema}.jobs
	WHERE group_name IS NOT NULL
) AS grouped
GROUP BY group_name, run;

-- How many jobs of a group are live, without what the rows of the table ends say that are not counted here yet. These mostly have the
-- number behind_from or a higher one.
CREATE TABLE {schema}.group_counts (
	name text COLLATE "C" PRIMARY KEY,
	live bigint NOT NULL,
	behind_from bigint NOT NULL DEFAULT 0
);

INSERT INTO {schema}.group_counts (name, live)
SELECT group_name, count(*)
FROM {schema}.jobs
WHERE group_name IS NOT NULL AND finished_at IS NULL
GROUP BY group_name;

-- How many more jobs of the group are live.
ALTER TABLE {schema}.ends ADD COLUMN live bigint NOT NULL DEFAULT 0;

CREATE INDEX ends_group ON {schema}.ends (group_name, number) WHERE group_name IS NOT NULL;

CREATE INDEX jobs_group_dead ON {schema}.jobs (group_name, id) WHERE group_name IS NOT NULL AND unleased_state = 'failed' AND finished_at IS NOT NULL;
