-- Triggers that cost less: the server reads their conditions anew in every statement that changes jobs, also in one without keys. So the conditions are
-- short, and the function asks what is left.
--
-- Least compatible version: 17.

-- First of all, as programs do: they change jobs, and then triggers read policies.
LOCK TABLE {schema}.jobs IN ACCESS EXCLUSIVE MODE;

DROP TRIGGER jobs_added ON {schema}.jobs;
DROP TRIGGER jobs_moved ON {schema}.jobs;
DROP TRIGGER jobs_ended ON {schema}.jobs;
DROP TRIGGER jobs_deleted ON {schema}.jobs;
DROP FUNCTION {schema}.hint();
DROP FUNCTION {schema}.hint_ended();

-- Leaves hints, and keeps the table ordered. Without a row before or after the change, all of that row is null.
CREATE FUNCTION {schema}.hint() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	moves boolean := (OLD.queue, OLD.limit_key) IS DISTINCT FROM (NEW.queue, NEW.limit_key);
	lived boolean := coalesce(OLD.unleased_state IN ('ready', 'blocked') OR OLD.unleased_state = 'failed' AND OLD.retry_at IS NOT NULL, FALSE);
	lives boolean := coalesce(NEW.unleased_state IN ('ready', 'blocked') OR NEW.unleased_state = 'failed' AND NEW.retry_at IS NOT NULL, FALSE);
	waits boolean := lives AND NEW.lease_expires_at IS NULL AND NEW.unleased_state <> 'blocked';
	freed boolean := OLD.lease_expires_at IS NOT NULL AND NEW.lease_expires_at IS NULL AND NOT waits;
	due timestamptz;
	due_micros bigint;
	line text;
	in_order boolean;
	limited boolean;
BEGIN
	-- A lease has ended and the job does not wait, or a live job is live no more, or has another key. In a queue that is ordered, that may make another
	-- one the first of its key. The setting is read by a query of its own: the server plans one that inserts what it has read anew for each row.
	IF OLD.limit_key IS NOT NULL AND (freed OR lived AND (NOT lives OR moves)) THEN
		SELECT ordered, max_per_key IS NOT NULL
		INTO in_order, limited
		FROM {schema}.policies
		WHERE name = OLD.queue;
		IF in_order OR limited AND OLD.lease_expires_at IS NOT NULL THEN
			INSERT INTO {schema}.hints (queue, limit_key)
			VALUES (OLD.queue, OLD.limit_key);
		END IF;
		IF in_order THEN
			DELETE FROM {schema}.ordered
			WHERE limit_key = OLD.limit_key AND queue = OLD.queue AND job_id = OLD.id;
		END IF;
	END IF;

	IF NEW.limit_key IS NULL OR NOT lives
		OR NOT moves AND (NEW.lease_expires_at IS NOT NULL
			OR (OLD.lease_expires_at, OLD.unleased_state, OLD.priority, OLD.run_at, OLD.retry_at, OLD.expires_at)
				IS NOT DISTINCT FROM (NEW.lease_expires_at, NEW.unleased_state, NEW.priority, NEW.run_at, NEW.retry_at, NEW.expires_at)) THEN
		RETURN NULL;
	END IF;

	-- A job waits, or is live and has another key. A transaction leaves no hint after one for the same line that tells of an earlier job: both are seen
	-- together, and new jobs of one customer may be many. A setting of the transaction says which hint was the last one, so it is undone with it. It also
	-- says whether the queue of that line is ordered.
	due := CASE NEW.unleased_state WHEN 'ready' THEN NEW.run_at ELSE NEW.retry_at END;
	due_micros := extract(epoch FROM due) * 1000000;
	line := concat_ws(' ', TG_RELID, NEW.unleased_state, NEW.priority, length(NEW.queue), NEW.queue, NEW.limit_key);
	in_order := NULL;
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
	IF in_order AND (moves OR NOT lived) THEN
		INSERT INTO {schema}.ordered (queue, limit_key, job_id)
		VALUES (NEW.queue, NEW.limit_key, NEW.id)
		ON CONFLICT DO NOTHING;
	END IF;
	RETURN NULL;
END
$$;

CREATE TRIGGER jobs_added AFTER INSERT ON {schema}.jobs
	FOR EACH ROW WHEN (NEW.limit_key IS NOT NULL)
	EXECUTE FUNCTION {schema}.hint();

-- Claims and heartbeats leave a job in flight, and its key as it is.
CREATE TRIGGER jobs_changed AFTER UPDATE ON {schema}.jobs
	FOR EACH ROW WHEN (NEW.limit_key IS NOT NULL AND NEW.lease_expires_at IS NULL)
	EXECUTE FUNCTION {schema}.hint();

CREATE TRIGGER jobs_moved AFTER UPDATE OF queue, limit_key ON {schema}.jobs
	FOR EACH ROW WHEN ((OLD.queue, OLD.limit_key) IS DISTINCT FROM (NEW.queue, NEW.limit_key) AND (NEW.limit_key IS NULL OR NEW.lease_expires_at IS NOT NULL))
	EXECUTE FUNCTION {schema}.hint();

CREATE TRIGGER jobs_deleted AFTER DELETE ON {schema}.jobs
	FOR EACH ROW WHEN (OLD.limit_key IS NOT NULL)
	EXECUTE FUNCTION {schema}.hint();
