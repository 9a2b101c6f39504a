-- The settings of a queue. NULL is what its policy does not set, and a negative retention is for ever.
CREATE TABLE {schema}.policies (
	name text COLLATE "C" PRIMARY KEY,
	retain_succeeded bigint,
	retain_cancelled bigint,
	retain_dead bigint,
	version bigint NOT NULL
);
