-- One row. Tokens and ids go on above the floor of the epoch: see Fence. The database is known by its system identifier and its
-- timeline, NULL as long as nobody has noted them.
CREATE TABLE {schema}.fence (
	one boolean PRIMARY KEY DEFAULT TRUE CHECK (one),
	epoch bigint NOT NULL,
	system bigint,
	timeline bigint
);

INSERT INTO {schema}.fence (epoch)
VALUES (0);

-- How long a lease was when it was given or extended: so its end says when that was. NULL for one of an earlier program.
ALTER TABLE {schema}.jobs ADD COLUMN IF NOT EXISTS lease_for bigint;
