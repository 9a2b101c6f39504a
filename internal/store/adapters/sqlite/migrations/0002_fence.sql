-- One row. Tokens and ids go on above the floor of the epoch: see Fence.
CREATE TABLE fence (
	one INTEGER PRIMARY KEY DEFAULT 1 CHECK (one = 1),
	epoch INTEGER NOT NULL
) STRICT;

INSERT INTO fence (epoch)
VALUES (0);

-- How long a lease was when it was given or extended: so its end says when that was. NULL for one of an earlier program.
ALTER TABLE jobs ADD COLUMN lease_for INTEGER;
