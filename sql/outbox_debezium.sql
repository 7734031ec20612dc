-- The outbox table with the columns of Debezium's outbox event router, for applications and libraries that know those.
--
--   psql -v ON_ERROR_STOP=1 -f sql/outbox_debezium.sql

-- Names without a schema mean those of PostgreSQL itself, whatever somebody has made in public.
BEGIN;
SET LOCAL search_path = pg_catalog, pg_temp;

CREATE TABLE IF NOT EXISTS public.outbox (
    id            uuid         PRIMARY KEY DEFAULT gen_random_uuid(),
    aggregatetype varchar(255) NOT NULL, -- chooses the topic
    aggregateid   varchar(255) NOT NULL, -- the key
    type          varchar(255) NOT NULL, -- what happened
    payload       jsonb                  -- the value
);

COMMENT ON TABLE public.outbox IS 'Events to publish. Insert only; postrider relays each row after its commit.';
COMMIT;
