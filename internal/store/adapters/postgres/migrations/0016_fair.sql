-- Whether the keys of a queue take turns. A program of an earlier version would not let them.
--
-- Least compatible version: 16.

ALTER TABLE {schema}.policies ADD COLUMN fair boolean NOT NULL DEFAULT FALSE;

-- Here too, because claims look here whether the queue is paused.
ALTER TABLE {schema}.queues ADD COLUMN fair boolean NOT NULL DEFAULT FALSE;

-- A time in microseconds since 1970 or, in a fair queue, a turn: see sqlkit.Keys.
ALTER TABLE {schema}.keys
	ALTER COLUMN fresh_at TYPE bigint USING (extract(epoch FROM fresh_at) * 1000000)::bigint,
	ALTER COLUMN retry_at TYPE bigint USING (extract(epoch FROM retry_at) * 1000000)::bigint;

-- The numbers of claims on fair queues, in the order in which they have locked their queue.
CREATE SEQUENCE {schema}.turns;

-- As before, and for queues that are fair. A transaction leaves no hint after one for the same line that tells of an earlier job: both are seen together,
-- and new jobs of one customer may be many. A setting of the transaction says which hint was the last one, so it is undone with it.
CREATE OR REPLACE FUNCTION {schema}.hint() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	due timestamptz := CASE NEW.unleased_state WHEN 'ready' THEN NEW.run_at ELSE NEW.retry_at END;
	due_micros bigint := extract(epoch FROM due) * 1000000;
	line text := concat_ws(' ', TG_RELID, NEW.unleased_state, NEW.priority, length(NEW.queue), NEW.queue, NEW.limit_key);
BEGIN
	IF current_setting('jq.hinted_line', TRUE) = line AND current_setting('jq.hinted_due', TRUE)::bigint <= due_micros THEN
		RETURN NULL;
	END IF;
	INSERT INTO {schema}.hints (queue, limit_key, retry, priority, due_at)
	SELECT NEW.queue, NEW.limit_key, NEW.unleased_state = 'failed', NEW.priority, due
	FROM {schema}.policies
	WHERE name = NEW.queue AND (max_per_key IS NOT NULL OR fair);
	IF FOUND THEN
		PERFORM set_config('jq.hinted_line', line, TRUE), set_config('jq.hinted_due', due_micros::text, TRUE);
	END IF;
	RETURN NULL;
END
$$;
