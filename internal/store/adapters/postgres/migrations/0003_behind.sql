-- What sweeps have found (see sweep.go): one row a queue that is claimed from, and the row '' for the leases of all queues, which
-- also says when the latest turn began.
CREATE TABLE {schema}.sweeps (
	queue text COLLATE "C" PRIMARY KEY,
	wanted_at timestamptz NOT NULL,
	swept_at timestamptz,
	turn_at timestamptz,
	heads bigint[] NOT NULL DEFAULT '{}',
	found bigint[] NOT NULL DEFAULT '{}',
	place text NOT NULL DEFAULT ''
) WITH (autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);

-- When the store has last raised the epoch by itself, since the database came from another server, and from which.
ALTER TABLE {schema}.fence
	ADD COLUMN adopted_at timestamptz,
	ADD COLUMN adopted_from text COLLATE "C" NOT NULL DEFAULT '';
