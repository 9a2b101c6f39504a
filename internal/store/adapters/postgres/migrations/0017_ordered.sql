-- Whether the jobs of each key of a queue are claimed one at a time, in the order of their ids. A program of an earlier version would take others.
--
-- Least compatible version: 17.

-- First of all, as programs do: they change jobs, and then triggers read policies.
LOCK TABLE {schema}.jobs IN ACCESS EXCLUSIVE MODE;

ALTER TABLE {schema}.policies ADD COLUMN ordered boolean NOT NULL DEFAULT FALSE;

-- Here too, because claims look here whether the queue is paused. The column max_per_key is 1 if the queue is ordered.
ALTER TABLE {schema}.queues ADD COLUMN ordered boolean NOT NULL DEFAULT FALSE;

-- The live jobs with a key of queues that are ordered, and some that were: see keys_known.go. The primary key begins with the key, as that of keys.
CREATE TABLE {schema}.ordered (
	queue text COLLATE "C" NOT NULL,
	limit_key text COLLATE "C" NOT NULL,
	job_id bigint NOT NULL,
	PRIMARY KEY (limit_key, queue, job_id)
) WITH (autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_cost_delay = 1);

-- As before. In a queue that is ordered it also adds a job that has become live, or has another key now, to the table ordered: one that is in flight or
-- blocked too. A job that leaves no hint of its own, because the one before is for the same line, still does that. So the setting says whether the queue
-- of that line is ordered.
CREATE OR REPLACE FUNCTION {schema}.hint() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	waits boolean := NEW.lease_expires_at IS NULL AND NEW.unleased_state <> 'blocked';
	due timestamptz := CASE NEW.unleased_state WHEN 'ready' THEN NEW.run_at ELSE NEW.retry_at END;
	due_micros bigint := extract(epoch FROM due) * 1000000;
	line text := concat_ws(' ', TG_RELID, NEW.unleased_state, NEW.priority, length(NEW.queue), NEW.queue, NEW.limit_key);
	in_order boolean;
BEGIN
	IF waits AND current_setting('jq.hinted_line', TRUE) = line AND current_setting('jq.hinted_due', TRUE)::bigint <= due_micros THEN
		in_order := current_setting('jq.hinted_ordered', TRUE)::boolean;
	ELSE
		SELECT ordered
		INTO in_order
		FROM {schema}.policies
		WHERE name = NEW.queue AND (max_per_key IS NOT NULL OR fair OR ordered);
		IF FOUND AND waits THEN
			INSERT INTO {schema}.hints (queue, limit_key, retry, priority, due_at)
			VALUES (NEW.queue, NEW.limit_key, NEW.unleased_state = 'failed', NEW.priority, due);
			line := set_config('jq.hinted_line', line, TRUE); -- an assignment costs less than a query
			line := set_config('jq.hinted_due', due_micros::text, TRUE);
			line := set_config('jq.hinted_ordered', in_order::text, TRUE);
		END IF;
	END IF;
	IF in_order AND (TG_OP = 'INSERT' OR (OLD.queue, OLD.limit_key) IS DISTINCT FROM (NEW.queue, NEW.limit_key)
			OR NOT (OLD.unleased_state IN ('ready', 'blocked') OR OLD.unleased_state = 'failed' AND OLD.retry_at IS NOT NULL)) THEN
		INSERT INTO {schema}.ordered (queue, limit_key, job_id)
		VALUES (NEW.queue, NEW.limit_key, NEW.id)
		ON CONFLICT DO NOTHING;
	END IF;
	RETURN NULL;
END
$$;

-- As before. In a queue that is ordered, whatever ends a job may make another one the first of its key, and so may a change of its key. If the job was
-- in flight, that makes room under a limit for each key. Such a hint is for no lane, so its retry can tell whether the queue is ordered: that saves a query.
CREATE OR REPLACE FUNCTION {schema}.hint_ended() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	in_order boolean;
BEGIN
	INSERT INTO {schema}.hints (queue, limit_key, retry)
	SELECT OLD.queue, OLD.limit_key, ordered
	FROM {schema}.policies
	WHERE name = OLD.queue AND (max_per_key IS NOT NULL AND OLD.lease_expires_at IS NOT NULL OR ordered)
	RETURNING retry INTO in_order;
	IF in_order THEN
		DELETE FROM {schema}.ordered
		WHERE limit_key = OLD.limit_key AND queue = OLD.queue AND job_id = OLD.id;
	END IF;
	RETURN NULL;
END
$$;

DROP TRIGGER jobs_added ON {schema}.jobs;
DROP TRIGGER jobs_moved ON {schema}.jobs;
DROP TRIGGER jobs_ended ON {schema}.jobs;
DROP TRIGGER jobs_deleted ON {schema}.jobs;

CREATE TRIGGER jobs_added AFTER INSERT ON {schema}.jobs
	FOR EACH ROW WHEN (NEW.limit_key IS NOT NULL AND (NEW.unleased_state IN ('ready', 'blocked') OR NEW.retry_at IS NOT NULL))
	EXECUTE FUNCTION {schema}.hint();

CREATE TRIGGER jobs_moved AFTER UPDATE ON {schema}.jobs
	FOR EACH ROW WHEN (NEW.limit_key IS NOT NULL AND (NEW.unleased_state IN ('ready', 'blocked') OR NEW.retry_at IS NOT NULL)
		AND (NEW.lease_expires_at IS NULL
				AND (OLD.lease_expires_at, OLD.unleased_state, OLD.priority, OLD.run_at, OLD.retry_at, OLD.expires_at)
					IS DISTINCT FROM (NEW.lease_expires_at, NEW.unleased_state, NEW.priority, NEW.run_at, NEW.retry_at, NEW.expires_at)
			OR (OLD.queue, OLD.limit_key) IS DISTINCT FROM (NEW.queue, NEW.limit_key)))
	EXECUTE FUNCTION {schema}.hint();

-- A lease has ended and the job does not wait, or a live job is live no more, or has another key.
CREATE TRIGGER jobs_ended AFTER UPDATE ON {schema}.jobs
	FOR EACH ROW WHEN (OLD.limit_key IS NOT NULL AND (
		OLD.lease_expires_at IS NOT NULL AND NEW.lease_expires_at IS NULL AND NEW.unleased_state <> 'ready' AND NEW.retry_at IS NULL
		OR (OLD.unleased_state IN ('ready', 'blocked') OR OLD.unleased_state = 'failed' AND OLD.retry_at IS NOT NULL)
			AND (NOT (NEW.unleased_state IN ('ready', 'blocked') OR NEW.unleased_state = 'failed' AND NEW.retry_at IS NOT NULL)
				OR (OLD.queue, OLD.limit_key) IS DISTINCT FROM (NEW.queue, NEW.limit_key))))
	EXECUTE FUNCTION {schema}.hint_ended();

CREATE TRIGGER jobs_deleted AFTER DELETE ON {schema}.jobs
	FOR EACH ROW WHEN (OLD.limit_key IS NOT NULL AND (OLD.lease_expires_at IS NOT NULL
		OR OLD.unleased_state IN ('ready', 'blocked') OR OLD.unleased_state = 'failed' AND OLD.retry_at IS NOT NULL))
	EXECUTE FUNCTION {schema}.hint_ended();
