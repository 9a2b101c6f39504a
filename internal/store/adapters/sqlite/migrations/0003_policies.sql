-- The settings of a queue. NULL is what its policy does not set, and a negative retention is for ever. The table is not that of
-- pauses: programs of the step before write those rows as a whole.
CREATE TABLE policies (
	name TEXT PRIMARY KEY,
	retain_succeeded INTEGER,
	retain_cancelled INTEGER,
	retain_dead INTEGER,
	version INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
