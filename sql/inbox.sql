-- The inbox: a consumer marks each event in the transaction in which it processes it, and so recognises a duplicate.
-- Run with psql as the owner of the consumer's tables, in the consumer's database:
--
--   psql -v ON_ERROR_STOP=1 -f sql/inbox.sql
--
-- Run again, it replaces the functions and makes what is missing. It waits up to five seconds for open transactions of consumers, and
-- then fails and has changed nothing. For another name replace public.inbox everywhere.
--
-- A consumer's role needs:  GRANT SELECT, INSERT ON public.inbox TO shop;  It calls, in its transaction,
--   SELECT public.inbox_mark('billing'::text, 'id of the event'::text, 'time of the record'::timestamptz);
-- and processes the event only if that returns true. Call  SELECT public.inbox_maintain();  once a day, by pg_cron or a timer, as the
-- owner of the table.

-- Names without a schema mean those of PostgreSQL itself, whatever somebody has made in public.
BEGIN;
SET LOCAL search_path = pg_catalog, pg_temp;
SET LOCAL datestyle = 'ISO, YMD'; -- of the date that inbox_since keeps
SET LOCAL lock_timeout = '5s'; -- consumers wait behind this script while it waits for one of them

-- An event is marked in the period in which it is processed and in the next one. A duplicate that comes in the same period or in the
-- next one meets a mark of its own period, so that the primary key alone decides, at any isolation level.
CREATE TABLE IF NOT EXISTS public.inbox (
    -- The order of "C" does not change with the system's libraries: an index that is out of order finds no duplicates.
    consumer  text COLLATE "C" NOT NULL CHECK (octet_length(consumer) BETWEEN 1 AND 255),
    event_id  text COLLATE "C" NOT NULL CHECK (octet_length(event_id) BETWEEN 1 AND 1024),
    period    date             NOT NULL, -- its first day
    marked_at timestamptz      NOT NULL DEFAULT now(),
    -- A unique key of a partitioned table has to contain what it is partitioned by.
    PRIMARY KEY (consumer, event_id, period)
) PARTITION BY LIST (period);

-- A table that exists already, and the functions below, may be somebody else's code.
DO $owner$
BEGIN
    IF EXISTS (SELECT FROM pg_catalog.pg_class WHERE oid = 'public.inbox'::regclass::oid AND relowner <> (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = current_user))
        OR EXISTS (SELECT FROM pg_catalog.pg_proc WHERE oid IN (to_regprocedure('public.inbox_window()')::oid, to_regprocedure('public.inbox_since()')::oid,
            to_regprocedure('public.inbox_maintain()')::oid,
            to_regprocedure('public.inbox_mark(text, text, timestamptz)')::oid)
            AND proowner <> (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = current_user)) THEN
        RAISE EXCEPTION 'table or function of this name exists and belongs to another role: run the script as that role';
    END IF;
    IF (SELECT array_agg(format('%s %s', attname, atttypid::regtype) ORDER BY attnum) FROM pg_catalog.pg_attribute
            WHERE attrelid = 'public.inbox'::regclass::oid AND attnum > 0 AND NOT attisdropped AND attname IN ('consumer', 'event_id', 'period', 'marked_at'))
            IS DISTINCT FROM ARRAY['consumer text', 'event_id text', 'period date', 'marked_at timestamp with time zone']
        OR pg_get_partkeydef('public.inbox'::regclass::oid) IS DISTINCT FROM 'LIST (period)'
        OR NOT EXISTS (SELECT FROM pg_catalog.pg_constraint WHERE conrelid = 'public.inbox'::regclass::oid AND contype = 'p'
            AND pg_get_constraintdef(oid) = 'PRIMARY KEY (consumer, event_id, period)') THEN
        RAISE EXCEPTION USING MESSAGE = 'public.inbox exists and is no inbox of this script: its columns, its primary key or its partition key differ',
            HINT = 'Nothing was changed. Rename that table, or replace public.inbox in the script by another name. Then run the script again.';
    END IF;
    -- What the window has been so far; empty: this is the first run.
    PERFORM set_config('postrider.window', '', true), set_config('postrider.since', '-infinity', true);
    IF to_regprocedure('public.inbox_since()') IS NOT NULL THEN
        PERFORM set_config('postrider.since', public.inbox_since()::text, true);
    END IF;
    IF to_regprocedure('public.inbox_window()') IS NOT NULL THEN
        LOCK TABLE public.inbox IN ACCESS EXCLUSIVE MODE;
        PERFORM set_config('postrider.window', public.inbox_window()::text, true);
    END IF;
END
$owner$;

COMMENT ON TABLE public.inbox IS 'Events that consumers have processed, written by inbox_mark alone. A row that is deleted is an event that can be processed again.';

-- Takes what no other partition takes, so that a mark never fails because the maintenance did not run.
CREATE TABLE IF NOT EXISTS public.inbox_default PARTITION OF public.inbox DEFAULT;

DO $default$
BEGIN
    IF (SELECT partdefid FROM pg_catalog.pg_partitioned_table WHERE partrelid = 'public.inbox'::regclass::oid) = 0::oid THEN
        RAISE EXCEPTION USING MESSAGE = 'public.inbox_default exists and is no partition of public.inbox, so that marks could fail',
            HINT = 'If it was detached, it may hold marks: ALTER TABLE public.inbox ATTACH PARTITION public.inbox_default DEFAULT; '
                'If it is another table, rename it. Then run the script again.';
    END IF;
END
$default$;

-- The window in days, which is the length of a period: a duplicate that comes within it is recognised. Choose more than the topics
-- keep their records. To change it, change the number and run the script again: marks are carried over.
CREATE OR REPLACE FUNCTION public.inbox_window() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 8';

-- The day since which the inbox has all marks, whatever the window is now: another window brings no removed mark back.
DO $since$
DECLARE
    since  date := current_setting('postrider.since');
    before CONSTANT text := current_setting('postrider.window');
    today  CONSTANT date := (now() AT TIME ZONE 'UTC')::date;
BEGIN
    IF before <> '' THEN
        since := greatest(since, today - (today - date '2000-01-01') % before::integer - before::integer);
    END IF;
    EXECUTE 'CREATE OR REPLACE FUNCTION public.inbox_since() RETURNS date LANGUAGE sql IMMUTABLE AS '
        || quote_literal('SELECT ' || quote_literal(since::text) || '::pg_catalog.date');
END
$since$;

-- Marks an event and returns true, or returns false for a duplicate. Where another transaction has marked it and is still open, it waits
-- for its end. The transaction that calls it contains whatever processing the event writes. event_time is when the event came into
-- being, as the record says, or NULL for an event of any age: an event without a mark whose mark may have been removed already is refused.
CREATE OR REPLACE FUNCTION public.inbox_mark(consumer text, event_id text, event_time timestamptz) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $mark$
#variable_conflict use_column
DECLARE
    days   CONSTANT integer := public.inbox_window();
    today  CONSTANT date := (now() AT TIME ZONE 'UTC')::date;
    first  CONSTANT date := today - (today - date '2000-01-01') % days;
    since  CONSTANT date := greatest(first - days, public.inbox_since());
    marked integer;
BEGIN
    INSERT INTO public.inbox (consumer, event_id, period) VALUES ($1, $2, first), ($1, $2, first + days)
        ON CONFLICT (consumer, event_id, period) DO NOTHING;
    GET DIAGNOSTICS marked = ROW_COUNT;
    IF public.inbox_window() <> days THEN
        RAISE EXCEPTION 'the window of the inbox was changed' USING ERRCODE = 'serialization_failure', HINT = 'Repeat the transaction.';
    END IF;
    IF marked < 2 THEN
        RETURN false;
    END IF;
    IF $3 < since::timestamp AT TIME ZONE 'UTC' THEN
        RAISE EXCEPTION USING ERRCODE = 'PRIOW', MESSAGE = format('event %s of %s is older than what the inbox has marks of', $2, to_char($3 AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"')),
            DETAIL = format('The inbox recognises what was processed since %s. Whether consumer %s has processed this event before is not known.', to_char(since::timestamp, 'YYYY-MM-DD'), $1),
            HINT = 'If it has not, process it with NULL as its time. If it has, move the offset of the consumer past it.';
    END IF;
    RETURN true;
END
$mark$;

-- Makes the partitions of this period and of three to come, and removes marks that no duplicate can meet any more: those of periods
-- that ended more than a day ago. A partition that was made by hand goes only if it holds exactly the period of its name.
-- It waits up to five seconds for open transactions of consumers, and then fails and has changed nothing.
CREATE OR REPLACE FUNCTION public.inbox_maintain() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET datestyle = 'ISO, YMD' SET lock_timeout = '5s' AS $maintain$
DECLARE
    parent CONSTANT oid := 'public.inbox'::regclass::oid;
    days   CONSTANT integer := public.inbox_window();
    today  CONSTANT date := (now() AT TIME ZONE 'UTC')::date;
    first  CONSTANT date := today - (today - date '2000-01-01') % days;
    nsp    name;
    rel    name;
    part   name;
    bound  text;
    day    date;
BEGIN
    SELECT n.nspname, c.relname INTO nsp, rel FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = parent;
    -- First, as what follows locks the table until the end of the transaction.
    SELECT p.partdefid::regclass::text INTO bound FROM pg_partitioned_table p WHERE p.partrelid = parent AND p.partdefid <> 0::oid;
    IF FOUND THEN
        EXECUTE format('DELETE FROM %s WHERE period < %L', bound, today - days);
    END IF;
    FOR i IN 0..3 LOOP
        day := first + i * days;
        part := format('%s%s', rel, to_char(day::timestamp, '_YYYYMMDD'));
        CONTINUE WHEN EXISTS (SELECT FROM pg_inherits i WHERE i.inhparent = parent AND i.inhrelid = to_regclass(format('%I.%I', nsp, part))::oid);
        BEGIN
            EXECUTE format('CREATE TABLE %I.%I PARTITION OF %s FOR VALUES IN (%L)', nsp, part, parent::regclass, day);
        EXCEPTION WHEN check_violation OR duplicate_table OR invalid_object_definition THEN
            -- Marks of that period are in the default partition or in one of another name already, or will be, since another table has
            -- the name; duplicates meet them there just as well.
            IF (SELECT p.partdefid FROM pg_partitioned_table p WHERE p.partrelid = parent) = 0::oid THEN
                RAISE;
            END IF;
            RAISE WARNING 'partition % not made: %', part, SQLERRM;
        END;
    END LOOP;
    -- Those that this function makes: in the schema of the table, of one period, by the name of its first day.
    FOR part, bound IN
        SELECT c.relname, pg_get_expr(c.relpartbound, c.oid)
        FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE i.inhparent = parent AND n.nspname = nsp
    LOOP
        day := substring(bound, '^FOR VALUES IN \(''([0-9]{4}-[0-9]{2}-[0-9]{2})''\)$')::date;
        IF day + days < today AND part::text = format('%s%s', rel, to_char(day::timestamp, '_YYYYMMDD')) THEN
            EXECUTE format('DROP TABLE %I.%I', nsp, part);
        END IF;
    END LOOP;
    -- A crash of the server empties an unlogged table, and the events of its marks would be processed again.
    SELECT c.oid::regclass::text INTO bound FROM pg_class c LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
        WHERE (c.oid = parent OR i.inhparent = parent) AND c.relpersistence <> 'p' LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING MESSAGE = format('%s is unlogged: a crash of the server empties it', bound), HINT = format('ALTER TABLE %s SET LOGGED;', bound);
    END IF;
END
$maintain$;

-- Functions that another role has made since the first look, while this script waited, are still its own.
DO $functions$
BEGIN
    IF EXISTS (SELECT FROM pg_catalog.pg_proc WHERE oid IN (to_regprocedure('public.inbox_window()')::oid, to_regprocedure('public.inbox_since()')::oid,
            to_regprocedure('public.inbox_maintain()')::oid,
            to_regprocedure('public.inbox_mark(text, text, timestamptz)')::oid)
            AND proowner <> (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = current_user)) THEN
        RAISE EXCEPTION 'function of this name exists and belongs to another role: run the script as that role';
    END IF;
END
$functions$;

-- With another window periods begin on other days: what the old ones recognise now, the new ones recognise from now on. The marks lie in
-- the default partition until the maintenance removes them.
DO $carry$
DECLARE
    before CONSTANT text := current_setting('postrider.window');
    days   CONSTANT integer := public.inbox_window();
    today  CONSTANT date := (now() AT TIME ZONE 'UTC')::date;
    first  CONSTANT date := today - (today - date '2000-01-01') % days;
BEGIN
    IF days < 1 THEN
        RAISE EXCEPTION 'the window of the inbox is % days: choose one day at least', days;
    END IF;
    IF before <> '' AND before <> days::text THEN
        INSERT INTO public.inbox (consumer, event_id, period, marked_at)
            SELECT i.consumer, i.event_id, p.period, max(i.marked_at) FROM public.inbox i CROSS JOIN (VALUES (first), (first + days)) AS p (period)
            WHERE i.period >= today - before::integer GROUP BY 1, 2, 3
            ON CONFLICT (consumer, event_id, period) DO NOTHING;
    END IF;
END
$carry$;

SELECT public.inbox_maintain();

COMMIT;
