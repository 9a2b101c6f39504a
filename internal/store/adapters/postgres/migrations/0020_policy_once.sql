-- Triggers that read the policy of a queue once for many jobs of a statement.
--
-- Least compatible version: 17.

-- Leaves hints, and keeps the table ordered. Without a row before or after the change, all of that row is null.
CREATE OR REPLACE FUNCTION {schema}.hint() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	moves boolean := (OLD.queue, OLD.limit_key) IS DISTINCT FROM (NEW.queue, NEW.limit_key);
	lived boolean := coalesce(OLD.unleased_state IN ('ready', 'blocked') OR OLD.unleased_state = 'failed' AND OLD.retry_at IS NOT NULL, FALSE);
	lives boolean := coalesce(NEW.unleased_state IN ('ready', 'blocked') OR NEW.unleased_state = 'failed' AND NEW.retry_at IS NOT NULL, FALSE);
	waits boolean := lives AND NEW.lease_expires_at IS NULL AND NEW.unleased_state <> 'blocked';

	-- A lease has ended and the job does not wait, or a live job is live no more, or has another key.
	leaves boolean := OLD.limit_key IS NOT NULL
		AND (OLD.lease_expires_at IS NOT NULL AND NEW.lease_expires_at IS NULL AND NOT waits OR lived AND (NOT lives OR moves));

	-- A job waits in another place than before, or is live and has another key.
	comes boolean := NEW.limit_key IS NOT NULL AND lives
		AND (moves OR NEW.lease_expires_at IS NULL
			AND (OLD.lease_expires_at, OLD.unleased_state, OLD.priority, OLD.run_at, OLD.retry_at, OLD.expires_at)
				IS DISTINCT FROM (NEW.lease_expires_at, NEW.unleased_state, NEW.priority, NEW.run_at, NEW.retry_at, NEW.expires_at));

	of_queue text := CASE WHEN leaves THEN OLD.queue ELSE NEW.queue END;
	policy text;
	asked text;
	due timestamptz;
	due_micros bigint;
	line text;
BEGIN
	IF NOT leaves AND NOT comes THEN
		RETURN NULL;
	END IF;

	-- Settings of the transaction say what the policy of the last queue was when the statement read it. The server would plan a query that inserts what it
	-- has read anew for each row, so there are two.
	asked := concat_ws(' ', TG_RELID, statement_timestamp(), of_queue);
	IF current_setting('jq.policy_of', TRUE) = asked THEN
		policy := current_setting('jq.policy');
	ELSE
		SELECT CASE WHEN ordered THEN 'ordered' WHEN max_per_key IS NOT NULL THEN 'limited' WHEN fair THEN 'fair' END
		INTO policy
		FROM {schema}.policies
		WHERE name = of_queue;
		policy := set_config('jq.policy', coalesce(policy, ''), TRUE); -- an assignment costs less than a query
		asked := set_config('jq.policy_of', asked, TRUE);
	END IF;

	IF leaves AND (policy = 'ordered' OR policy = 'limited' AND OLD.lease_expires_at IS NOT NULL) THEN
		INSERT INTO {schema}.hints (queue, limit_key)
		VALUES (OLD.queue, OLD.limit_key);
	END IF;
	IF leaves AND policy = 'ordered' THEN
		DELETE FROM {schema}.ordered
		WHERE limit_key = OLD.limit_key AND queue = OLD.queue AND job_id = OLD.id;
	END IF;
	IF NOT comes THEN
		RETURN NULL;
	END IF;

	IF NEW.queue <> of_queue THEN
		SELECT CASE WHEN ordered THEN 'ordered' WHEN max_per_key IS NOT NULL THEN 'limited' WHEN fair THEN 'fair' END
		INTO policy
		FROM {schema}.policies
		WHERE name = NEW.queue;
	END IF;

	-- A transaction leaves no hint after one for the same line that tells of an earlier job: both are seen together, and new jobs of one customer may be
	-- many. Settings say which hint was the last one.
	IF waits AND policy <> '' THEN
		due := CASE NEW.unleased_state WHEN 'ready' THEN NEW.run_at ELSE NEW.retry_at END;
		due_micros := extract(epoch FROM due) * 1000000;
		line := concat_ws(' ', TG_RELID, NEW.unleased_state, NEW.priority, length(NEW.queue), NEW.queue, NEW.limit_key);
		IF current_setting('jq.last_line', TRUE) IS DISTINCT FROM line OR current_setting('jq.last_due', TRUE)::bigint > due_micros THEN
			INSERT INTO {schema}.hints (queue, limit_key, retry, priority, due_at)
			VALUES (NEW.queue, NEW.limit_key, NEW.unleased_state = 'failed', NEW.priority, due);
			line := set_config('jq.last_line', line, TRUE);
			line := set_config('jq.last_due', due_micros::text, TRUE);
		END IF;
	END IF;
	IF policy = 'ordered' AND (moves OR NOT lived) THEN
		INSERT INTO {schema}.ordered (queue, limit_key, job_id)
		VALUES (NEW.queue, NEW.limit_key, NEW.id)
		ON CONFLICT DO NOTHING;
	END IF;
	RETURN NULL;
END
$$;
