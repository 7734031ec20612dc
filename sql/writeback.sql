-- What [write_back] needs beside role.sql. Run with psql as a superuser, in the application's database, after role.sql
-- and after the outbox table is there:
--
--   psql -v ON_ERROR_STOP=1 -f sql/writeback.sql
--
-- For a table with another name replace public.outbox, and published_at by the columns that [write_back] names. A
-- partitioned table needs the last GRANT for each of its partitions, those to come too: see docs/WRITE-BACK.md.

-- Names without a schema mean those of PostgreSQL itself, whatever somebody has made in public.
BEGIN;
SET LOCAL search_path = pg_catalog, pg_temp;

-- Which rows the slot has delivered, one row per slot and table, as for 'postrider prune'. It is in the database so
-- that a restore brings it back together with the rows. Whoever can write it can have rows marked that were not
-- delivered.
CREATE TABLE IF NOT EXISTS public.postrider_prune (
    system_identifier text        NOT NULL,
    slot              text        NOT NULL,
    relation          oid         NOT NULL,
    state             jsonb       NOT NULL,
    saved_at          timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    PRIMARY KEY (system_identifier, slot, relation)
);
REVOKE ALL ON public.postrider_prune FROM PUBLIC;
GRANT SELECT, INSERT, UPDATE, DELETE ON public.postrider_prune TO postrider;

GRANT USAGE ON SCHEMA public TO postrider;
GRANT SELECT, UPDATE (published_at) ON public.outbox TO postrider;

-- By the date of this reset the slot is recognised after a restart. Without it rows of around a kill of the relay or a
-- crash of the server may stay pending.
GRANT EXECUTE ON FUNCTION pg_stat_reset_replication_slot(text) TO postrider;

COMMIT;
