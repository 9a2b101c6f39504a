-- How many jobs of a queue may be in flight at once, or NULL. A program of an earlier version would claim more.
--
-- Least compatible version: 13.

ALTER TABLE policies ADD COLUMN max_in_flight INTEGER;
