-- The jobs in flight of each key, so that claims can count them. A program of an earlier version would count the jobs that rows of keys name instead, and claim
-- too many, since claims write no such names any more.
--
-- Least compatible version: 19.

CREATE INDEX jobs_in_flight_by_key ON jobs (queue, limit_key) WHERE state = 'in_flight' AND limit_key <> '';
DROP TRIGGER IF EXISTS ordered_in_flight;
