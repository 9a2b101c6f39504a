-- The least rights with which jq works in a Postgres database, for two roles:
--
--   jq_owner  owns the schema, makes it and migrates it: for jobq migrate up
--   jq_app    reads and writes jobs: for serve, work and enqueue, and for programs that import jq. It changes no table's form
--
-- Change the names to yours, and give both roles a way to log in. Then run this once, as a superuser and in the database that is to
-- keep the jobs, before the first jobq migrate up:
--
--   psql --set ON_ERROR_STOP=1 --dbname DATABASE --file postgres-rights.sql
CREATE ROLE jq_owner LOGIN;
CREATE ROLE jq_app LOGIN;

CREATE SCHEMA jq AUTHORIZATION jq_owner;
GRANT USAGE ON SCHEMA jq TO jq_app;

-- For each table that a migration makes, now or later. UPDATE on sequences is for Fence, which raises ids.
ALTER DEFAULT PRIVILEGES FOR ROLE jq_owner IN SCHEMA jq GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO jq_app;
ALTER DEFAULT PRIVILEGES FOR ROLE jq_owner IN SCHEMA jq GRANT SELECT, UPDATE ON SEQUENCES TO jq_app;

-- Without this, doctor does not see the transactions of other roles, which may hold back vacuum.
GRANT pg_read_all_stats TO jq_app;
