-- How many jobs of a queue may be claimed in how many microseconds, or NULL. A program of an earlier version would claim more.
--
-- Least compatible version: 15.

ALTER TABLE policies ADD COLUMN rate_n INTEGER;
ALTER TABLE policies ADD COLUMN rate_per INTEGER;

-- The program that has declared the policy, and the version of that.
ALTER TABLE policies ADD COLUMN owner TEXT;
ALTER TABLE policies ADD COLUMN declared INTEGER;

-- When jobs of queues with a rate were claimed, as long as the claims count: see rates.go.
CREATE TABLE claims (
	queue TEXT NOT NULL,
	claimed_at INTEGER NOT NULL,
	jobs INTEGER NOT NULL,
	PRIMARY KEY (queue, claimed_at)
) STRICT, WITHOUT ROWID;
