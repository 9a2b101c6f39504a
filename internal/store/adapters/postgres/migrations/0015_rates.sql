-- How many jobs of a queue may be claimed in how many microseconds. A program of an earlier version would claim more.
--
-- Least compatible version: 15.

ALTER TABLE {schema}.policies
	ADD COLUMN rate_n integer,
	ADD COLUMN rate_per bigint;

-- The program that has declared the policy, and the version of that.
ALTER TABLE {schema}.policies
	ADD COLUMN owner text COLLATE "C",
	ADD COLUMN declared bigint;

-- The rate is here too, because claims look here whether the queue is paused.
ALTER TABLE {schema}.queues
	ADD COLUMN rate_n integer,
	ADD COLUMN rate_per bigint;

-- When jobs of queues with a rate were claimed, as long as the claims count: see rates.go.
CREATE TABLE {schema}.claims (
	queue text COLLATE "C" NOT NULL,
	claimed_at timestamptz NOT NULL,
	jobs integer NOT NULL,
	PRIMARY KEY (queue, claimed_at)
) WITH (autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_cost_delay = 1);
