-- The role postrider connects as. Run with psql as a superuser, in the application's database:
--
--   psql -v ON_ERROR_STOP=1 -f sql/role.sql
--
-- It then has no password: set one with  \password postrider
--
-- REPLICATION is all it needs. It reads everything that is published, without SELECT on any table, and may do no more in
-- the database. Only snapshot.mode (SELECT), [prune] and [write_back] need rights on tables: docs/INSTALL.md,
-- docs/PRUNING.md and docs/WRITE-BACK.md name them.
-- With REPLICATION it could also take a physical copy of the whole cluster: allow the database in pg_hba.conf and reject the
-- keyword replication, which stands for physical connections only:
--
--   hostssl  shop         postrider  10.0.0.0/24  scram-sha-256
--   host     replication  postrider  all          reject
--
-- On Amazon RDS instead of REPLICATION:  GRANT rds_replication TO postrider;

-- Names without a schema mean those of PostgreSQL itself, whatever somebody has made in public.
BEGIN;
SET LOCAL search_path = pg_catalog, pg_temp;

DO $role$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'postrider') THEN
        CREATE ROLE postrider LOGIN REPLICATION NOSUPERUSER NOCREATEDB NOCREATEROLE;
    END IF;
    EXECUTE pg_catalog.format('GRANT CONNECT ON DATABASE %I TO postrider', pg_catalog.current_database());
END
$role$;

-- Two connections: one streams, one watches the slot; a third reads the tables for a snapshot; and one of each more while the other process of a pair takes over.
-- What is granted later, as pg_monitor, or the owner of partitions that [prune] removes, has its effect by INHERIT.
ALTER ROLE postrider INHERIT CONNECTION LIMIT 8;

COMMIT;
