-- What is sent to postrider: inserted rows of the outbox table, and nothing else. Run with psql as the owner of the table,
-- with CREATE on the database, before the slot is created: a slot never sends what was committed before its publication.
--
--   psql -v ON_ERROR_STOP=1 -f sql/publication.sql
--
-- Inserts only: so deletes on the outbox need no replica identity, and cleaning up costs the relay nothing.
-- Via the partition root: so rows of a partitioned outbox come under the name of the table, not of its partitions.

-- Names without a schema mean those of PostgreSQL itself, whatever somebody has made in public.
BEGIN;
SET LOCAL search_path = pg_catalog, pg_temp;

CREATE PUBLICATION postrider FOR TABLE public.outbox WITH (publish = 'insert', publish_via_partition_root = true);

COMMIT;
