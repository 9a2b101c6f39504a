-- How many jobs of a queue may be in flight at once. A program of an earlier version would claim more.
--
-- Least compatible version: 13.

ALTER TABLE {schema}.policies ADD COLUMN max_in_flight integer;

-- The limit is here too, because claims look here whether the queue is paused. Until the jobs that were in flight before have slots, the queue
-- is not counted, and nothing is claimed from it. The version is that of the policy which has set the limit. No slot before the first counts.
ALTER TABLE {schema}.queues
	ADD COLUMN max_in_flight integer,
	ADD COLUMN limit_version bigint NOT NULL DEFAULT 0,
	ADD COLUMN counted boolean NOT NULL DEFAULT FALSE,
	ADD COLUMN first_slot bigint NOT NULL DEFAULT 0;

-- The jobs in flight of queues that are limited, and some that were in flight: see limits.go.
CREATE TABLE {schema}.slots (
	queue text COLLATE "C" NOT NULL,
	number bigint NOT NULL,
	job_id bigint NOT NULL,
	PRIMARY KEY (queue, number)
) WITH (autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_cost_delay = 1);
