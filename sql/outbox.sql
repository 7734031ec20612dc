-- The recommended outbox table. Run with psql as the owner of the application's tables, in the application's database:
--
--   psql -v ON_ERROR_STOP=1 -f sql/outbox.sql
--
-- The application inserts a row in the transaction that makes the change. postrider reads it from the WAL: unless [prune]
-- or [write_back] is on, it never queries, updates or deletes rows, so there is no index to poll by and no status column.

-- Names without a schema mean those of PostgreSQL itself, whatever somebody has made in public.
BEGIN;
SET LOCAL search_path = pg_catalog, pg_temp;

CREATE TABLE IF NOT EXISTS public.outbox (
    -- Sent as a header: consumers recognise a row that was published twice by it. Random, so that it also says nothing about
    -- how many events there are; the application may set it.
    id             uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    -- Chooses the topic: outbox.event.<aggregate_type>, unless configured otherwise.
    aggregate_type text        NOT NULL,
    -- The key: events of one aggregate keep their order, because they go to the same partition.
    aggregate_id   text        NOT NULL,
    -- What happened, for consumers, such as OrderCreated.
    event_type     text        NOT NULL,
    -- The value. NULL is published as a tombstone if that is configured.
    payload        jsonb,
    -- Members become headers of their own if that is configured; NULL: none.
    headers        jsonb,
    -- For people, for clean-up and for finding rows again. The order of events is that of commits, which this is not.
    created_at     timestamptz NOT NULL DEFAULT now()
);

COMMENT ON TABLE public.outbox IS 'Events to publish. Insert only; postrider relays each row after its commit.';
COMMIT;

-- Rows can be deleted once they are published: postrider ignores deletes, also one in the transaction of the insert. Keep some days,
-- since a lost slot can be repaired only with rows that are still there. At more than some hundred rows a second take
-- outbox_partitioned.sql: dropping a day costs nothing, deleting it does.
