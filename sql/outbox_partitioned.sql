-- The recommended outbox table, one partition per day: old rows go away by dropping a partition, which writes no WAL worth
-- mentioning and leaves no dead rows behind.
--
--   psql -v ON_ERROR_STOP=1 -f sql/outbox_partitioned.sql
--
-- Run again, it replaces the function and makes what is missing; the rest stays as it is.
--
-- The columns are those of outbox.sql, where they are explained. The publication needs publish_via_partition_root = true, so that
-- rows come under the name of this table and not of a day's.

-- Names without a schema mean those of PostgreSQL itself, whatever somebody has made in public.
BEGIN;
SET LOCAL search_path = pg_catalog, pg_temp;

CREATE TABLE IF NOT EXISTS public.outbox (
    id             uuid        NOT NULL DEFAULT gen_random_uuid(),
    aggregate_type text        NOT NULL,
    aggregate_id   text        NOT NULL,
    event_type     text        NOT NULL,
    payload        jsonb,
    headers        jsonb,
    created_at     timestamptz NOT NULL DEFAULT now(),
    -- A unique key of a partitioned table has to contain what it is partitioned by.
    PRIMARY KEY (id, created_at)
) PARTITION BY RANGE (created_at);

COMMENT ON TABLE public.outbox IS 'Events to publish. Insert only; postrider relays each row after its commit.';

-- Indexes of a table that exists already, and the function below, may be somebody else's code.
DO $owner$
BEGIN
    IF EXISTS (SELECT FROM pg_catalog.pg_class WHERE oid = 'public.outbox'::regclass::oid AND relowner <> (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = current_user))
        OR EXISTS (SELECT FROM pg_catalog.pg_proc WHERE oid = to_regprocedure('public.outbox_maintain(integer, interval)')::oid
            AND proowner <> (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = current_user)) THEN
        RAISE EXCEPTION 'table or function of this name exists and belongs to another role: run the script as that role';
    END IF;
END
$owner$;

-- Takes what no other partition takes, so that an insert never fails because the maintenance did not run.
CREATE TABLE IF NOT EXISTS public.outbox_default PARTITION OF public.outbox DEFAULT;

DO $default$
BEGIN
    IF (SELECT partdefid FROM pg_catalog.pg_partitioned_table WHERE partrelid = 'public.outbox'::regclass::oid) = 0::oid THEN
        RAISE EXCEPTION USING MESSAGE = 'public.outbox_default exists and is no partition of public.outbox, so that inserts could fail',
            HINT = 'If it was detached, it may hold events: ALTER TABLE public.outbox ATTACH PARTITION public.outbox_default DEFAULT; '
                'If it is another table, rename it. Then run the script again.';
    END IF;
END
$default$;

-- Makes the partitions of today and the days to come, and drops those older than keep. Days are UTC. A partition that was made by hand
-- goes only if it holds exactly the day of its name.
-- It drops by time alone, also what a relay that is down has not delivered and 'postrider recover' would need. [prune] of postrider
-- makes partitions too, and drops only what was delivered: then do not call this function, or with NULL for keep.
-- It waits up to five seconds for each of its locks, and so long writers wait behind it: call it when no long transaction is open.
-- Call it once a day, by pg_cron or a timer, as the owner of the table and with both arguments: a function of the same name that takes
-- fewer would be called instead, whoever made it.  SELECT public.outbox_maintain(7, interval '7 days');
CREATE OR REPLACE FUNCTION public.outbox_maintain(ahead integer DEFAULT 7, keep interval DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, YMD' SET lock_timeout = '5s' AS $maintain$
DECLARE
    parent CONSTANT oid := 'public.outbox'::regclass::oid;
    today  CONSTANT date := (now() AT TIME ZONE 'UTC')::date;
    nsp    name;
    rel    name;
    part   name;
    bound  text;
    day    date;
BEGIN
    SELECT n.nspname, c.relname INTO nsp, rel FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = parent;
    FOR i IN 0..ahead LOOP
        day := today + i;
        part := format('%s%s', rel, to_char(day::timestamp, '_YYYYMMDD'));
        CONTINUE WHEN EXISTS (SELECT FROM pg_inherits i WHERE i.inhparent = parent AND i.inhrelid = to_regclass(format('%I.%I', nsp, part))::oid);
        -- PostgreSQL reads all of the default partition for each one that is made, with readers and writers kept out of it.
        SELECT p.partdefid::regclass::text INTO bound FROM pg_partitioned_table p
            WHERE p.partrelid = parent AND p.partdefid <> 0::oid AND pg_relation_size(p.partdefid) > 64 * 1024 * 1024;
        IF FOUND THEN
            RAISE WARNING 'partition % not made, nor any after it: % is larger than 64 MB, and would be read with writers kept out', part, bound
                USING HINT = format('Exchange it for an empty one, once the relay has no backlog: BEGIN; SET LOCAL lock_timeout = ''5s''; '
                    'ALTER TABLE %1$s DETACH PARTITION %2$s; ALTER TABLE %2$s RENAME TO %3$I; CREATE TABLE %2$s PARTITION OF %1$s DEFAULT; COMMIT; '
                    'SELECT public.outbox_maintain();', parent::regclass, bound, format('%s_default_%s', rel, to_char(today::timestamp, 'YYYYMMDD')));
            EXIT;
        END IF;
        BEGIN
            EXECUTE format('CREATE TABLE %I.%I PARTITION OF %s FOR VALUES FROM (%L) TO (%L)',
                nsp, part, parent::regclass, day::timestamp AT TIME ZONE 'UTC', (day + 1)::timestamp AT TIME ZONE 'UTC');
        EXCEPTION WHEN check_violation OR duplicate_table THEN
            -- Rows of that day are in the default partition already, or will be, since another table has the name; they are published
            -- from there just as well.
            IF (SELECT p.partdefid FROM pg_partitioned_table p WHERE p.partrelid = parent) = 0::oid THEN
                RAISE;
            END IF;
            RAISE WARNING 'partition % not made: %', part, SQLERRM;
        END;
    END LOOP;
    IF keep IS NULL THEN
        RETURN;
    END IF;
    -- Those that this function makes: in the schema of the table, of one day, by the name of that day. Another one may hold rows of today.
    FOR part, bound IN
        SELECT c.relname, pg_get_expr(c.relpartbound, c.oid)
        FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE i.inhparent = parent AND n.nspname = nsp
    LOOP
        day := substring(bound, '^FOR VALUES FROM \(''([0-9]{4}-[0-9]{2}-[0-9]{2}) 00:00:00\+00''\)')::date;
        IF day < ((now() AT TIME ZONE 'UTC') - keep)::date AND part::text = format('%s%s', rel, to_char(day::timestamp, '_YYYYMMDD'))
            AND bound = format('FOR VALUES FROM (%L) TO (%L)', day::timestamp AT TIME ZONE 'UTC', (day + 1)::timestamp AT TIME ZONE 'UTC') THEN
            EXECUTE format('DROP TABLE %I.%I', nsp, part);
        END IF;
    END LOOP;
END
$maintain$;

-- A function that another role has made since the first look, while this script waited, is still its own.
DO $function$
BEGIN
    IF EXISTS (SELECT FROM pg_catalog.pg_proc WHERE oid = to_regprocedure('public.outbox_maintain(integer, interval)')::oid
            AND proowner <> (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = current_user)) THEN
        RAISE EXCEPTION 'function of this name exists and belongs to another role: run the script as that role';
    END IF;
END
$function$;

SELECT public.outbox_maintain(7, NULL::interval);

COMMIT;
