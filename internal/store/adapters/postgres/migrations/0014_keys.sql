-- What jobs count for under a limit for each key of their queue. A program of an earlier version would claim more.
--
-- Least compatible version: 14.

ALTER TABLE {schema}.jobs ADD COLUMN limit_key text COLLATE "C";
ALTER TABLE {schema}.policies ADD COLUMN max_per_key integer;

-- How many times all keys were looked for since the limit was set, or -1 while they are looked for the first time: see countAll and know.
ALTER TABLE {schema}.queues
	ADD COLUMN max_per_key integer,
	ADD COLUMN keys_known integer NOT NULL DEFAULT 0;

-- The waiting jobs of each key. A job stays here while it is in flight. The indexes begin with the key, so that the order of a query can say that
-- it needs one of them, whatever the planner knows.
CREATE INDEX jobs_ready_by_key ON {schema}.jobs (limit_key, queue, priority, run_at, id)
	WHERE unleased_state = 'ready' AND limit_key IS NOT NULL;
CREATE INDEX jobs_retrying_by_key ON {schema}.jobs (limit_key, queue, priority, retry_at, id)
	WHERE unleased_state = 'failed' AND retry_at IS NOT NULL AND limit_key IS NOT NULL;

-- Keys of queues that limit them: see keys.go. The state is the JSON of a sqlkit.Key. A key that has room stands in the order of its first
-- fresh job, and of its first retry, that was due when the key was looked at, and waits for the time at which others become due. The primary
-- key begins with the key, because a queue may have many, and the planner may not know.
CREATE TABLE {schema}.keys (
	queue text COLLATE "C" NOT NULL,
	limit_key text COLLATE "C" NOT NULL,
	state text NOT NULL,
	fresh_level integer,
	fresh_at timestamptz,
	fresh_id bigint,
	retry_level integer,
	retry_at timestamptz,
	retry_id bigint,
	look_at timestamptz,
	PRIMARY KEY (limit_key, queue)
) WITH (fillfactor = 70, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_cost_delay = 1);

CREATE INDEX keys_fresh ON {schema}.keys (queue, fresh_level, fresh_at, fresh_id) WHERE fresh_level IS NOT NULL;
CREATE INDEX keys_retry ON {schema}.keys (queue, retry_level, retry_at, retry_id) WHERE retry_level IS NOT NULL;
CREATE INDEX keys_look_at ON {schema}.keys (queue, look_at, limit_key) WHERE look_at IS NOT NULL;

-- What may have changed for a key: a job waits in a lane from a time on or, without a priority, a lease has ended.
CREATE TABLE {schema}.hints (
	queue text COLLATE "C" NOT NULL,
	number bigint GENERATED ALWAYS AS IDENTITY,
	limit_key text COLLATE "C" NOT NULL,
	retry boolean,
	priority integer,
	due_at timestamptz
) WITH (autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_cost_delay = 1);

-- Not unique: a number that comes twice, such as after a move to another server, must not keep anybody from enqueueing.
CREATE INDEX hints_number ON {schema}.hints (queue, number);

-- Triggers leave the hints, so that nobody has to think of it. They cost a job without a key next to nothing. They read the table of
-- policies: see know.
CREATE FUNCTION {schema}.hint() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO {schema}.hints (queue, limit_key, retry, priority, due_at)
	SELECT NEW.queue, NEW.limit_key, NEW.unleased_state = 'failed', NEW.priority,
		CASE NEW.unleased_state WHEN 'ready' THEN NEW.run_at ELSE NEW.retry_at END
	FROM {schema}.policies
	WHERE name = NEW.queue AND max_per_key IS NOT NULL;
	RETURN NULL;
END
$$;

CREATE FUNCTION {schema}.hint_ended() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO {schema}.hints (queue, limit_key)
	SELECT OLD.queue, OLD.limit_key
	FROM {schema}.policies
	WHERE name = OLD.queue AND max_per_key IS NOT NULL;
	RETURN NULL;
END
$$;

CREATE TRIGGER jobs_added AFTER INSERT ON {schema}.jobs
	FOR EACH ROW WHEN (NEW.limit_key IS NOT NULL AND (NEW.unleased_state = 'ready' OR NEW.retry_at IS NOT NULL))
	EXECUTE FUNCTION {schema}.hint();

CREATE TRIGGER jobs_moved AFTER UPDATE ON {schema}.jobs
	FOR EACH ROW WHEN (NEW.limit_key IS NOT NULL AND NEW.lease_expires_at IS NULL AND (NEW.unleased_state = 'ready' OR NEW.retry_at IS NOT NULL)
		AND (OLD.lease_expires_at, OLD.unleased_state, OLD.priority, OLD.run_at, OLD.retry_at, OLD.expires_at, OLD.queue, OLD.limit_key)
			IS DISTINCT FROM (NEW.lease_expires_at, NEW.unleased_state, NEW.priority, NEW.run_at, NEW.retry_at, NEW.expires_at, NEW.queue, NEW.limit_key))
	EXECUTE FUNCTION {schema}.hint();

CREATE TRIGGER jobs_ended AFTER UPDATE ON {schema}.jobs
	FOR EACH ROW WHEN (OLD.limit_key IS NOT NULL AND OLD.lease_expires_at IS NOT NULL AND NEW.lease_expires_at IS NULL
		AND NEW.unleased_state <> 'ready' AND NEW.retry_at IS NULL)
	EXECUTE FUNCTION {schema}.hint_ended();

CREATE TRIGGER jobs_deleted AFTER DELETE ON {schema}.jobs
	FOR EACH ROW WHEN (OLD.limit_key IS NOT NULL AND OLD.lease_expires_at IS NOT NULL)
	EXECUTE FUNCTION {schema}.hint_ended();
