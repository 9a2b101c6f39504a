-- The least rights that jq needs in a Postgres database, for two roles:
--
--   jq_owner  owns, creates and migrates the schema: for jobq migrate up
--   jq_app    reads and writes jobs, but cannot change the schema: for serve, work and enqueue, and for programs that import jq
--
-- Change the names, and give both roles a way to log in. Then run this once, as a superuser, in the database that will hold the jobs,
-- before the first jobq migrate up:
--
--   psql --set ON_ERROR_STOP=1 --dbname DATABASE --file postgres-rights.sql
CREATE ROLE jq_owner LOGIN;
CREATE ROLE jq_app LOGIN;

CREATE SCHEMA jq AUTHORIZATION jq_owner;
GRANT USAGE ON SCHEMA jq TO jq_app;

-- These apply to each table that a migration creates, now or later. Fence needs UPDATE on sequences, because it raises ids.
ALTER DEFAULT PRIVILEGES FOR ROLE jq_owner IN SCHEMA jq GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO jq_app;
ALTER DEFAULT PRIVILEGES FOR ROLE jq_owner IN SCHEMA jq GRANT SELECT, UPDATE ON SEQUENCES TO jq_app;

-- Without this, doctor cannot see transactions of other roles, which may hold back vacuum.
GRANT pg_read_all_stats TO jq_app;
