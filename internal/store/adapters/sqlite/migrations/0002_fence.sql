-- One row. Tokens and ids go on above the floor of the epoch: see Fence.
CREATE TABLE fence (
	one INTEGER PRIMARY KEY DEFAULT 1 CHECK (one = 1),
	epoch INTEGER NOT NULL
) STRICT;

INSERT INTO fence (epoch)
VALUES (0);
