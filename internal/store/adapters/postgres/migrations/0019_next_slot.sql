-- Claims that lock a queue and count its slots by one statement.
--
-- Least compatible version: 17.

-- Locks a queue whose only limit is MaxInFlight, and returns the number of its next slot if there is room for so many jobs, even if all that have slots are
-- still in flight, and if these are not too many. It counts by a query of its own, which sees what was committed before it had the lock; the statement that
-- calls it does not.
CREATE FUNCTION {schema}.next_slot(of_queue text, jobs bigint, most_slots bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	first bigint;
	most bigint;
	slots bigint;
	last bigint;
BEGIN
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		RETURN NULL; -- every query sees the same
	END IF;
	SELECT first_slot, max_in_flight
	INTO first, most
	FROM {schema}.queues
	WHERE name = of_queue AND NOT paused AND counted AND max_in_flight IS NOT NULL AND max_per_key IS NULL AND rate_n IS NULL AND NOT fair AND NOT ordered
	FOR UPDATE;
	IF NOT FOUND THEN
		RETURN NULL;
	END IF;
	SELECT count(*), max(number)
	INTO slots, last
	FROM {schema}.slots
	WHERE queue = of_queue AND number >= first;
	IF slots + jobs > most OR slots > most_slots THEN
		RETURN NULL;
	END IF;
	RETURN coalesce(last + 1, first);
END $$;

GRANT EXECUTE ON FUNCTION {schema}.next_slot TO PUBLIC; -- it does nothing that its caller may not do
